#!/usr/bin/env bash
# Both phases of a recipe as SLURM jobs: phase 2 waits until phase 1 is done and starts from all its weights.
#
#   scripts/slurm_phases.sh [sbatch options] -- [flags] RECIPE [--data1 DIR] [--data2 DIR] [training flags]
#   scripts/slurm_phases.sh --nodes=4 --ntasks-per-node=8 --cpus-per-task=16 --gpus-per-node=8 --time=240 -- bert_large
#
#   --data1 DIR, --data2 DIR   records of each phase (default: where `make tfrecords` puts them under $BERT_WORKDIR)
#   --dry-run                  print the settings and both commands
#
# The flags are those of scripts/slurm.sh, which runs the phases; training flags are for both. A phase that is stopped
# goes back into the queue, and phase 2 continues to wait; if phase 1 fails, phase 2 is cancelled.
set -euo pipefail

exec "$(dirname "$0")/launcher.sh" phases "$@"
