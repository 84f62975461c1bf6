#!/usr/bin/env bash
# A stage of data preparation as a SLURM job array: each job does its share of the tasks, the last one completes.
#
#   sbatch --array=0-15 --cpus-per-task=16 scripts/data_array.sh data.tfrecords --source ... --vocab ... --output ...
#
# A job that is killed or requeued goes on where it was; so does the same command given again.
#SBATCH --job-name=bert-data
set -euo pipefail

: "${SLURM_ARRAY_TASK_COUNT:?submit it with sbatch --array=0-N}"
cd "${SLURM_SUBMIT_DIR:-.}"
venv=${VENV:-.venv}
[ ! -x "$venv/bin/python" ] || export PATH="$PWD/$venv/bin:$PATH"
exec python -m "${1:?which stage, as data.tfrecords}" "${@:2}" --workers "${SLURM_CPUS_PER_TASK:-1}" \
    --task $((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN)) --of "$SLURM_ARRAY_TASK_COUNT"
