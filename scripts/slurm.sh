#!/usr/bin/env bash
# A training run as a SLURM job: one task a GPU, and every task is a rank that runs the command.
#
#   sbatch --nodes=4 --ntasks-per-node=8 --gpus-per-node=8 --time=4:00:00 scripts/slurm.sh python -m bert.pretrain ...
#   sbatch --dependency=afterok:JOB ... scripts/slurm.sh python -m bert.pretrain ..._phase2 --init.checkpoint ...
#   CONTAINER=bert.sqsh MOUNTS=/data:/data sbatch ... scripts/slurm.sh python -m ...    # in a container: pyxis, enroot
#   scripts/slurm.sh --dry-run python -m ...                                              # shows the command
#
# Two minutes before its time is over, or when it is preempted, the ranks save and end with 75; the job is put back into
# the queue and goes on, until it is done: jobs that depend on it wait so long. Horovod finds its ranks by MPI, whose
# kind MPI names (pmix; see `srun --mpi=list`). Horovod's and NCCL's settings are taken from the environment.
#SBATCH --job-name=bert
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

[ "${1:-}" != --dry-run ] || { dry_run=yes && shift; }
[ $# -gt 0 ] || { echo "error: $0: no command ; usage: sbatch ... $0 [--dry-run] COMMAND..." >&2 && exit 2; }
cd "${SLURM_SUBMIT_DIR:-.}"
venv=${VENV:-$PWD/.venv}
[ -n "${CONTAINER:-}" ] || [ ! -x "$venv/bin/python" ] || export PATH="$venv/bin:$PATH"
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}

# Ranks that have stopped wait for the one that saves; should one die, the others are ended after five minutes.
run=(srun --mpi="${MPI:-pmix}" --kill-on-bad-exit=0 --wait=300 --cpu-bind=cores)
if [ -n "${CONTAINER:-}" ]; then
    run+=(--container-image="$CONTAINER" --container-mounts="$PWD:$PWD${MOUNTS:+,$MOUNTS}" --container-workdir="$PWD")
fi
run+=("$@")
if [ -n "${dry_run:-}" ]; then
    printf '%q ' "${run[@]}"
    echo
    exit 0
fi
status=0
"${run[@]}" || status=$?
if [ "$status" = 75 ] && [ -n "${SLURM_JOB_ID:-}" ]; then
    echo "job $SLURM_JOB_ID was stopped and saved: back into the queue" >&2
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
