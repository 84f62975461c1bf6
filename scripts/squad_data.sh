#!/usr/bin/env bash
# Prints the path of a question set: squad1 is downloaded first, anything else is a path already.
#
#   scripts/squad_data.sh squad1 train|dev
set -euo pipefail

if [ "$1" != squad1 ] || [ -e "$1" ]; then
    echo "$1"
    exit
fi
folder=${BERT_WORKDIR:-workdir}/download/squad1
python -m data.download squad1 --output "$folder" >&2
echo "$folder/$2-v1.1.json"
