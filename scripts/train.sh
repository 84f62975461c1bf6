#!/usr/bin/env bash
# Run one stage of training, as `make STAGE` does; the settings are environment variables that the Makefile exports.
#
#   scripts/train.sh pretrain              the phases of a recipe; phase 2 starts from all weights of phase 1
#   scripts/train.sh squad|squad-eval      fine-tune on SQUAD_TRAIN; answer SQUAD_DEV and print the scores
#   scripts/train.sh finished DIRECTORY    print the run directory if it holds its last checkpoint
#
# A finished run is not repeated, and a stopped one resumes.
set -euo pipefail

scripts=$(dirname "$0") work=${BERT_WORKDIR:-}
launch() { "$scripts/launch.sh" -np "$NP" -- python -m "$@"; }
question_set() { # VALUE train|dev: the path of a question set; `make download` has fetched squad1 and squad2
    local version=''
    case $1 in squad1) version=1.1 ;; squad2) version=2.0 ;; esac
    if [ -z "$version" ] || [ -e "$1" ]; then echo "$1"; else echo "$work/download/$1/$2-v$version.json"; fi
}

case $1 in
pretrain)
    read -ra flags <<<"${PRETRAIN_FLAGS:-}"
    for phase in $PHASES; do
        length=$PHASE1_SEQ start=()
        if [[ $phase == *_phase2 ]]; then
            length=$PHASE2_SEQ start=(--init.checkpoint "$work/pretrain/${phase%2}1")
        fi
        launch bert.pretrain "$phase" "${start[@]}" --data.train "$work/tfrecords/seq$length" \
            --run.directory "$work/pretrain/$phase" "${flags[@]}"
    done
    ;;
squad)
    read -ra flags <<<"${SQUAD_FLAGS:-}"
    launch squad.train "$SQUAD_RECIPE" --data.train_file "$(question_set "$SQUAD_TRAIN" train)" \
        --init.checkpoint "$SQUAD_START" --run.directory "$SQUAD_RUN" "${flags[@]}"
    ;;
squad-eval)
    dev=$(question_set "$SQUAD_DEV" dev)
    if [ ! -f "$SQUAD_RUN/config.json" ]; then
        echo "error: $SQUAD_RUN: no fine-tuned model ; repeat with SQUAD_TRAIN=train.json, or SQUAD_RUN=its folder" >&2
        exit 2
    fi
    "$scripts/launcher.sh" quiet python -m squad.predict --model "$SQUAD_RUN" --dataset "$dev" \
        --output "$SQUAD_RUN/predictions.json"
    python -m squad.metric "$dev" "$SQUAD_RUN/predictions.json"
    ;;
finished)
    steps=$(sed -nE 's/.*"run\.steps": ([0-9]+).*/\1/p' "$2/config.json" 2>/dev/null) || exit 0
    [ ! -d "$2/checkpoints/step-$(printf %08d "$steps")" ] || echo "$2"
    ;;
esac
