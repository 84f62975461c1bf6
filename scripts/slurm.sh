#!/usr/bin/env bash
# A training run as a SLURM job: one task per GPU; every task is a rank that runs the command.
#
#   sbatch --nodes=4 --ntasks-per-node=8 --cpus-per-task=16 --gpus-per-node=8 --time=4:00:00 scripts/slurm.sh python ...
#   CONTAINER=bert.sqsh MOUNTS=/data:/data sbatch ... scripts/slurm.sh [flags] python -m ...  # pyxis, enroot
#
#   --bind      each rank on its share of the cores beside its GPU, instead of SLURM's choice
#   --dry-run   print the settings and the command
#
# Give --cpus-per-task too: otherwise SLURM gives each rank one core.
# Submit it in the repository's folder. Two minutes before its time is over, or when it is preempted, the ranks save and
# end with 75, and the job is put back into the queue until it is done. So it is when a rank dies, at most three times
# in succession. Jobs that depend on it wait that long.
# Up to 64 ranks find each other by Gloo, without MPI; MPI=pmix takes MPI (see `srun --mpi=list`), as more ranks do.
#SBATCH --job-name=bert
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}" # SLURM runs a copy of this file, from elsewhere
if [ ! -f scripts/launcher.sh ]; then
    echo "error: $PWD: not the repository ; submit scripts/slurm.sh in the repository's folder" >&2
    exit 2
fi
exec scripts/launcher.sh slurm "$@"
