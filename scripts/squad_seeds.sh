#!/usr/bin/env bash
# Fine-tune with several seeds and print mean and deviation of the scores: F1 varies by half a point between seeds.
#
#   [SEEDS="1 2 3"] [NP=2] scripts/squad_seeds.sh RECIPE TRAIN.json DEV.json --init.checkpoint RUN [training flags...]
#
# Results are in $BERT_WORKDIR/seeds/RECIPE; a finished run is not repeated.
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "error: $0: recipe, training and development set are needed ; usage: $0 RECIPE TRAIN DEV [FLAGS...]" >&2
    exit 2
fi
recipe=$1 train=$2 dev=$3 out=${BERT_WORKDIR:-workdir}/seeds/$1
shift 3
here=$(dirname "$0") scores=()
for seed in ${SEEDS:-1 2 3 4 5}; do
    run=$out/seed-$seed
    "$here/launch.sh" -np "${NP:-1}" -- python -m squad.train "$recipe" --data.train_file "$train" --run.seed "$seed" \
        --run.directory "$run" "$@"
    if [ ! -f "$run/score.json" ]; then
        "$here/launcher.sh" quiet python -m squad.predict --model "$run" --dataset "$dev" \
            --output "$run/predictions.json"
        python -m squad.metric "$dev" "$run/predictions.json" >"$run/score.json.part"
        mv "$run/score.json.part" "$run/score.json"
    fi
    scores+=("$run/score.json")
done
python -m squad.spread "${scores[@]}"
