#!/usr/bin/env bash
# `make corpus`: WIKIPEDIA, BOOKS and TEXT (any or all) to sharded documents and a vocabulary, under
# $BERT_WORKDIR/corpus. A name instead of a path is downloaded first; a file or folder of that name wins. Each stage
# skips itself when it is up to date. Without sources, a corpus that is already there is used as it is.
set -euo pipefail

corpus=${BERT_WORKDIR:-workdir}/corpus
wikipedia=${WIKIPEDIA:-} books=${BOOKS:-} text=${TEXT:-}
if [ -z "$wikipedia$books$text" ]; then
    [ ! -f "$corpus/shards/manifest.json" ] || [ ! -f "$corpus/vocab/manifest.json" ] || exit 0
    echo "error: no WIKIPEDIA, BOOKS or TEXT is set ; repeat with WIKIPEDIA=dump.xml.bz2 or BOOKS=folder, or both" >&2
    exit 2
fi
if [[ $wikipedia =~ ^(simple|[a-z]{2,3})$ ]] && [ ! -e "$wikipedia" ]; then
    python -m data.download wikipedia --wiki "$wikipedia" --output "$corpus/dump-$wikipedia"
    wikipedia=$corpus/dump-$wikipedia
fi
if [ "$books" = pg19 ] && [ ! -e pg19 ]; then
    python -m data.download pg19 --output "$corpus/pg19"
    books=$corpus/pg19
fi

sources=()
stage() { # NAME SOURCE: reads a source, if it is given
    [ -n "$2" ] || return 0
    python -m "data.$1" --source "$2" --output "$corpus/$1"
    sources+=("$corpus/$1")
}
stage wikipedia "$wikipedia"
stage books "$books"
stage text "$text"
python -m data.documents --source "${sources[@]}" --output "$corpus/documents"
python -m data.shards --source "$corpus/documents" --output "$corpus/shards" --shards "${SHARDS:-8}"

vocab=(--size "${VOCAB_SIZE:-30522}")
[ "${VOCAB:-train}" = train ] || vocab=(--vocab "$VOCAB")
python -m data.vocab --source "$corpus/shards" --output "$corpus/vocab" --lower_case "${LOWER_CASE:-true}" "${vocab[@]}"
