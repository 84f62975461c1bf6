#!/usr/bin/env bash
# Prints the path of a question set: squad1 and squad2 are downloaded first, anything else is a path already.
#
#   scripts/squad_data.sh squad1|squad2 train|dev
set -euo pipefail

case $1 in
    squad1) version=v1.1 ;;
    squad2) version=v2.0 ;;
    *) version= ;;
esac
if [ -z "$version" ] || [ -e "$1" ]; then
    echo "$1"
    exit
fi
folder=${BERT_WORKDIR:-workdir}/download/$1
python -m data.download "$1" --output "$folder" >&2
echo "$folder/$2-$version.json"
