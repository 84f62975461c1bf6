#!/usr/bin/env bash
# A training run as a SLURM job: one task a GPU, and every task is a rank that runs the command.
#
#   sbatch --nodes=4 --ntasks-per-node=8 --gpus-per-node=8 --time=4:00:00 scripts/slurm.sh python -m bert.pretrain ...
#   CONTAINER=bert.sqsh MOUNTS=/data:/data sbatch ... scripts/slurm.sh [flags] python -m ...  # pyxis, enroot
#
#   --bind      each rank on its share of the cores beside its GPU (scripts/bind.sh), instead of SLURM's choice
#   --dry-run   prints the settings and the command
#
# Submit it in the repository's folder. Two minutes before its time is over, or when it is preempted, the ranks save and
# end with 75; the job is put back into the queue and goes on, until it is done: jobs that depend on it wait so long.
# Horovod finds its ranks by MPI, whose kind MPI names (pmix; see `srun --mpi=list`).
#SBATCH --job-name=bert
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}" # SLURM runs a copy of this file, from elsewhere
[ -f scripts/launchers.sh ] || { echo "error: $PWD: not the repository ; submit scripts/slurm.sh there" >&2 && exit 2; }
# shellcheck source=scripts/launchers.sh
. "$PWD/scripts/launchers.sh"
parse "" "$@"

# Ranks that have stopped wait for the one that saves; should one die, the others are ended after five minutes.
[ ${#bind[@]} = 0 ] && cores=cores || cores=none
run=(srun --mpi="${MPI:-pmix}" --kill-on-bad-exit=0 --wait=300 --cpu-bind="$cores")
if [ -n "${CONTAINER:-}" ]; then
    run+=(--container-image="$CONTAINER" --container-mounts="$PWD:$PWD${MOUNTS:+,$MOUNTS}" --container-workdir="$PWD")
    ours=$(comm -12 <(compgen -e | sort) <(knobs | grep -oE '(HOROVOD|NCCL)_[A-Z0-9_]+' | sort) | paste -sd,)
    [ -z "$ours" ] || run+=(--container-env="$ours") # over what the image sets
fi
run+=("${bind[@]}" "${rest[@]}")
[ -z "$dry_run" ] || { show "${run[@]}" && exit 0; }
[ -n "${CONTAINER:-}" ] || need_mpi
status=0
"${run[@]}" || status=$?
if [ "$status" = 75 ] && [ -n "${SLURM_JOB_ID:-}" ]; then
    echo "job $SLURM_JOB_ID was stopped and saved: back into the queue" >&2
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
