#!/usr/bin/env bash
# Both phases of a recipe as SLURM jobs: phase 2 waits until phase 1 is done and starts from all its weights.
#
#   scripts/slurm_phases.sh [sbatch options] -- [flags] RECIPE [--data1 DIR] [--data2 DIR] [training flags]
#   scripts/slurm_phases.sh --nodes=4 --ntasks-per-node=8 --gpus-per-node=8 --time=4:00:00 -- --bind bert_large
#
#   --data1 DIR, --data2 DIR   records of either phase (where `make tfrecords` puts them under $BERT_WORKDIR)
#   --dry-run                  prints the settings and both commands
#
# The flags are those of scripts/slurm.sh, which runs the phases; training flags are for both. A phase that is stopped
# goes back into the queue, and phase 2 goes on waiting; if phase 1 fails, phase 2 is cancelled.
set -euo pipefail

# shellcheck source=scripts/launchers.sh
. "$(cd "$(dirname "$0")" && pwd)/launchers.sh"
cd "$scripts/.."
[[ ! ${1:-} =~ ^(-h|--help)$ ]] || parse "" --help
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1") && shift; done
[ $# -gt 0 ] || usage "there is no -- between sbatch's options and the recipe"
shift
parse "" "$@"
flags=() training=() recipe=${rest[0]} work=${BERT_WORKDIR:-workdir}
for word in "${@:1:$#-${#rest[@]}}"; do [ "$word" = --dry-run ] || flags+=("$word"); done
[[ $recipe != *_phase[12] ]] || usage "$recipe is one phase; both are ${recipe%_phase?}"
declare -A records=([1]="$work/tfrecords/seq128" [2]="$work/tfrecords/seq512")
set -- "${rest[@]:1}"
while [ $# -gt 0 ]; do
    case $1 in
    --data[12])
        [ $# -gt 1 ] || usage "$1 wants a folder"
        records[${1#--data}]=$2
        shift
        ;;
    --data.train* | --run.directory* | --init.checkpoint*) usage "$1 is not one for both phases" ;;
    *) training+=("$1") ;;
    esac
    shift
done

phase() { # NUMBER SBATCH-OPTION...: submits it; `job` is its number, or JOB if it is only shown
    local name=${recipe}_phase$1 start=()
    [ "$1" = 1 ] || start=(--init.checkpoint "$work/pretrain/${recipe}_phase1")
    local run=(sbatch --parsable --job-name="$name" "${options[@]}" "${@:2}" scripts/slurm.sh "${flags[@]}"
        python -m bert.pretrain "$name" --data.train "${records[$1]}" --run.directory "$work/pretrain/$name"
        "${start[@]}" "${training[@]}")
    [ -z "$dry_run" ] || { job=JOB && show "${run[@]}" && return; }
    job=$("${run[@]}") || return
    job=${job%%;*} && echo "$name is job $job" # JOB;CLUSTER where there are several
}
phase 1
before=$job
if ! phase 2 --dependency="afterok:$before" --kill-on-invalid-dep=yes; then
    scancel "$before"
    usage "phase 2 was not accepted, so phase 1 (job $before) is cancelled"
fi
