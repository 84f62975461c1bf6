#!/usr/bin/env bash
# Serve MODEL over HTTP, as `make serve` does: by default SQUAD_RUN, or the model of RECIPE, or the demo's.
set -euo pipefail

scripts=$(dirname "$0") model=${MODEL:-${SQUAD_RUN:-}}
if [ -z "$model" ]; then
    for model in "$BERT_WORKDIR/squad/$RECIPE" "$BERT_WORKDIR/demo/squad/pretrained" ''; do
        [ ! -f "$model/config.json" ] || break
    done
fi
if [ -z "$model" ]; then
    echo "error: no model to serve ; repeat as: make serve MODEL=RUN, or run make demo first" >&2
    exit 2
fi
exec "$scripts/launcher.sh" with-flags FLAGS "$scripts/launcher.sh" quiet python -m serve --model "$model"
