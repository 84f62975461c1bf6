#!/usr/bin/env bash
# Run one stage of training, as `make STAGE` does; the settings are environment variables that the Makefile exports.
#
#   scripts/train.sh pretrain              the phases of a recipe; phase 2 starts from all weights of phase 1
#   scripts/train.sh squad|squad-eval      fine-tune on SQUAD_TRAIN; answer SQUAD_DEV and print the scores
#   scripts/train.sh glue|race|ner         fine-tune on TASK of GLUE, on RACE, on NER; print the scores
#   scripts/train.sh check-STAGE           check the settings of a stage alone: 2 if one is missing or wrong
#   scripts/train.sh is-pretrained         0 if what is to be fine-tuned is given, or its run is finished
#
# A finished run is not repeated, and a stopped one resumes.
set -euo pipefail

scripts=$(dirname "$0") work=$BERT_WORKDIR
wrong() { # MESSAGE
    echo "error: $1" >&2
    exit 2
}
need() { # NAME [VALUE]
    [ -n "${!1:-}" ] || wrong "$1 is not set ; repeat as: make $goal $1=${2:-FILE}"
}
recipes() { # FILE: the names of the recipes in it
    sed -nE 's/^def ([a-z][a-z0-9_]*)\(.*/\1/p' "$1"
}
is_name() { # VALUE LIST: it is one of the lines
    [[ $1 =~ ^[a-z0-9_]+$ ]] && grep -qxF -e "$1" <<<"$2"
}
choose_recipes() { # set `phases` and `squad_recipe`, or end with 2
    local known squad size phase
    known=$(recipes bert/recipes.py) squad=$(recipes squad/recipes.py) phases=()
    for phase in "$RECIPE" "${RECIPE}_phase1" "${RECIPE}_phase2"; do
        ! is_name "$phase" "$known" || phases+=("$phase")
    done
    [ ${#phases[@]} -gt 0 ] || wrong "RECIPE is $(printf %q "$RECIPE") ; it is one of: $(
        sed -E 's/_phase[12]$//' <<<"$known" | sort -u | paste -sd' ')"
    size=${RECIPE#*_} size=${size%%_*} squad_recipe=${SQUAD_RECIPE:-}
    if [ -z "$squad_recipe" ]; then
        case $size in base | large) squad_recipe=squad_$size ;; *) squad_recipe=squad_mini ;; esac
    fi
    is_name "$squad_recipe" "$squad" ||
        wrong "SQUAD_RECIPE is $(printf %q "$squad_recipe") ; it is one of: $(paste -sd' ' <<<"$squad")"
}
launch() { # NAME WORDS...: run a module on all ranks, with the flags of a variable behind
    "$scripts/launcher.sh" with-flags "$1" "$scripts/launch.sh" -np "$NP" -- python -m "${@:2}"
}
question_set() { # VALUE train|dev: the path of a question set; `make download` has fetched squad1 and squad2
    local version=''
    case $1 in squad1) version=1.1 ;; squad2) version=2.0 ;; esac
    if [ -z "$version" ] || [ -e "$1" ]; then echo "$1"; else echo "$work/download/$1/$2-v$version.json"; fi
}
is_finished() { # RUN
    local steps
    steps=$(sed -nE 's/.*"run\.steps": ([0-9]+).*/\1/p' "$1/config.json" 2>/dev/null) || return 1
    [[ $steps =~ ^[0-9]+$ && -d $1/checkpoints/step-$(printf %08d "$((10#$steps))") ]]
}

task_of_goal() { # set `chosen`, a recipe, and `folder` of a goal, or end with 2
    case $goal in
    glue)
        need GLUE FOLDER && need TASK mrpc && chosen=$TASK folder=$GLUE
        is_name "$chosen" "${tasks_of_glue// /$'\n'}" ||
            wrong "TASK is $(printf %q "$chosen") ; it is one of: $tasks_of_glue"
        ;;
    race) need RACE FOLDER && chosen=race folder=$RACE ;;
    ner) need NER FOLDER && chosen=conll2003 folder=$NER ;;
    esac
}

tasks_of_glue='cola sst2 mrpc qqp stsb mnli qnli rte wnli'
goal=${1#check-}
choose_recipes
start=${PRETRAINED:-$work/pretrain/${phases[-1]}} run=${SQUAD_RUN:-$work/squad/$RECIPE}
case $1 in
check-*)
    for flags in PRETRAIN_FLAGS SQUAD_FLAGS TASK_FLAGS; do "$scripts/launcher.sh" with-flags "$flags" true; done
    case $goal in squad) need SQUAD_TRAIN ;; squad-eval) need SQUAD_DEV ;; glue | race | ner) task_of_goal ;; esac
    [[ $goal == pretrain || $goal == squad-eval || $RECIPE != gpt2_* || -n ${PRETRAINED:-} ]] ||
        wrong "RECIPE is $RECIPE, a causal model, which cannot be fine-tuned ; set a BERT recipe or PRETRAINED"
    ;;
is-pretrained) [ -n "${PRETRAINED:-}" ] || is_finished "$start" ;;
pretrain)
    for phase in "${phases[@]}"; do
        data=$work/tfrecords/seq$PHASE1_SEQ from=()
        case $phase in
        *_phase2) data=$work/tfrecords/seq$PHASE2_SEQ from=(--init.checkpoint "$work/pretrain/${phase%2}1") ;;
        gpt2_*) data=$work/tokens ;;
        esac
        launch PRETRAIN_FLAGS bert.pretrain "$phase" "${from[@]}" --data.train "$data" \
            --run.directory "$work/pretrain/$phase"
    done
    ;;
squad)
    launch SQUAD_FLAGS squad.train "$squad_recipe" --data.train_file "$(question_set "$SQUAD_TRAIN" train)" \
        --init.checkpoint "$start" --run.directory "$run"
    ;;
glue | race | ner)
    task_of_goal
    launch TASK_FLAGS tasks.train "$chosen" --data.folder "$folder" --init.checkpoint "$start" \
        --run.directory "${TASK_RUN:-$work/tasks/$chosen}"
    "$scripts/launcher.sh" quiet python -m tasks.evaluate --model "${TASK_RUN:-$work/tasks/$chosen}" --folder "$folder"
    ;;
squad-eval)
    dev=$(question_set "$SQUAD_DEV" dev)
    [ -f "$run/config.json" ] ||
        wrong "$run: no fine-tuned model ; repeat with SQUAD_TRAIN=train.json, or SQUAD_RUN=its folder"
    "$scripts/launcher.sh" quiet python -m squad.predict --model "$run" --dataset "$dev" \
        --output "$run/predictions.json"
    python -m squad.metric "$dev" "$run/predictions.json"
    ;;
esac
