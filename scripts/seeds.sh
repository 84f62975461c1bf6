#!/usr/bin/env bash
# Fine-tune with several seeds; print the scores of each, a line a seed. F1 on SQuAD varies by half a
# point between seeds, and the scores of small data sets by much more.
#
#   [SEEDS="1 2 3"] [NP=2] scripts/seeds.sh squad RECIPE TRAIN.json DEV.json --init.checkpoint RUN [training flags...]
#   [SEEDS="1 2 3"] [NP=2] scripts/seeds.sh tasks RECIPE FOLDER --init.checkpoint RUN [training flags...]
#   [SEEDS="1 2 3"] [NP=2] scripts/seeds.sh tasks RECIPE TRAIN DEV --init.checkpoint RUN [training flags...]
#
# FOLDER is a data set as it is distributed; TRAIN and DEV are files of your own. Results are in
# $BERT_WORKDIR/seeds/RECIPE: a folder for each seed. A finished run is not repeated.
set -euo pipefail

fail() {
    echo "error: $0: $1 ; usage: $0 squad RECIPE TRAIN DEV [FLAGS...], or $0 tasks RECIPE FOLDER [FLAGS...]" >&2
    exit 2
}

if [ $# -lt 3 ]; then fail "package, recipe and data are needed"; fi
package=$1 recipe=$2 train=$3 dev='' out=${BERT_WORKDIR:-workdir}/seeds/$2
shift 3
if [ $# -gt 0 ] && [[ $1 != --* ]]; then
    dev=$1
    shift
fi
case $package:${dev:+dev} in
    squad:dev) given=(--data.train_file "$train") ;;
    squad:) fail "a development set is needed" ;;
    tasks:dev) given=(--data.train "$train" --data.dev "$dev") scored=(--input "$dev") ;;
    tasks:) given=(--data.folder "$train") scored=(--folder "$train") ;;
    *) fail "$package is neither squad nor tasks" ;;
esac

here=$(dirname "$0") scores=()
run() { "$here/launcher.sh" run python -m "$@"; }

score() { # prints the scores of a run
    if [ "$package" = squad ]; then
        run squad.predict --model "$1" --dataset "$dev" --output "$1/predictions.json"
        python -m squad.metric "$dev" "$1/predictions.json"
    else
        run tasks.evaluate --model "$1" "${scored[@]}"
    fi
}

for seed in ${SEEDS:-1 2 3 4 5}; do
    run=$out/seed-$seed
    "$here/launch.sh" -np "${NP:-1}" -- python -m "$package.train" "$recipe" "${given[@]}" --run.seed "$seed" \
        --run.directory "$run" "$@"
    if [ ! -f "$run/score.json" ]; then
        score "$run" >"$run/score.json.part"
        mv "$run/score.json.part" "$run/score.json"
    fi
    scores+=("$run/score.json")
done
cat "${scores[@]}"
