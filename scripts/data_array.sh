#!/usr/bin/env bash
# Run a stage of data preparation as a SLURM job array: each job does its share of the tasks, and the last one to end
# completes the stage.
#
#   sbatch --array=0-15 --cpus-per-task=16 scripts/data_array.sh data.tfrecords --source ... --vocab ... --output ...
#
# A job that was killed or requeued resumes; so does the same command when it is repeated. To repeat some jobs of the
# array alone, say how many it had:
#
#   JOBS=16 sbatch --array=3,7,11 ...
#SBATCH --job-name=bert-data
set -euo pipefail

: "${SLURM_ARRAY_TASK_COUNT:?not in a job array ; submit it with sbatch --array=0-N}"
cd "${SLURM_SUBMIT_DIR:-.}"
first=${JOBS:+0} jobs=${JOBS:-$SLURM_ARRAY_TASK_COUNT}
share=$((SLURM_ARRAY_TASK_ID - ${first:-$SLURM_ARRAY_TASK_MIN}))
numbers=$((SLURM_ARRAY_TASK_MAX - SLURM_ARRAY_TASK_MIN + 1)) # as many as jobs, unless the array has gaps
if [ "${JOBS:-$numbers}" != "$jobs" ] || [ $share -ge "$jobs" ]; then
    echo "error: job $SLURM_ARRAY_TASK_ID has no share of $jobs ; give --array=0-N without gaps, or, to repeat some" \
        "jobs of such an array, JOBS=N+1" >&2
    exit 2
fi
exec scripts/launcher.sh run python -m "${1:?no stage, as data.tfrecords}" "${@:2}" \
    --workers "${SLURM_CPUS_PER_TASK:-1}" \
    --task $share --of "$jobs"
