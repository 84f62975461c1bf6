#!/usr/bin/env bash
# Run a stage of data preparation as a SLURM job array: each job does its share of the tasks, and the last one to end
# completes the stage.
#
#   sbatch --array=0-15 --cpus-per-task=16 scripts/data_array.sh data.tfrecords --source ... --vocab ... --output ...
#
# A job that was killed or requeued resumes; so does the same command when it is repeated.
#SBATCH --job-name=bert-data
set -euo pipefail

: "${SLURM_ARRAY_TASK_COUNT:?not in a job array ; submit it with sbatch --array=0-N}"
cd "${SLURM_SUBMIT_DIR:-.}"
exec scripts/launcher.sh run python -m "${1:?no stage, as data.tfrecords}" "${@:2}" \
    --workers "${SLURM_CPUS_PER_TASK:-1}" \
    --task $((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN)) --of "$SLURM_ARRAY_TASK_COUNT"
