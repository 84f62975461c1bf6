#!/usr/bin/env bash
# `make corpus`: WIKIPEDIA and BOOKS (either or both) to sharded documents and a vocabulary, under $BERT_WORKDIR/corpus.
# Each stage skips itself when it is up to date. Without sources, a corpus that is already there is used as it is.
set -euo pipefail

corpus=${BERT_WORKDIR:-workdir}/corpus
if [ -z "${WIKIPEDIA:-}${BOOKS:-}" ]; then
    [ ! -f "$corpus/shards/manifest.json" ] || [ ! -f "$corpus/vocab/manifest.json" ] || exit 0
    echo "error: neither WIKIPEDIA nor BOOKS is set ; repeat with WIKIPEDIA=dump.xml.bz2 or BOOKS=folder, or both" >&2
    exit 2
fi

sources=()
if [ -n "${WIKIPEDIA:-}" ]; then
    python -m data.wikipedia --source "$WIKIPEDIA" --output "$corpus/wikipedia"
    sources+=("$corpus/wikipedia")
fi
if [ -n "${BOOKS:-}" ]; then
    python -m data.books --source "$BOOKS" --output "$corpus/books"
    sources+=("$corpus/books")
fi
python -m data.documents --source "${sources[@]}" --output "$corpus/documents"
python -m data.shards --source "$corpus/documents" --output "$corpus/shards" --shards "${SHARDS:-8}"

vocab=(--size "${VOCAB_SIZE:-30522}")
[ "${VOCAB:-train}" = train ] || vocab=(--vocab "$VOCAB")
python -m data.vocab --source "$corpus/shards" --output "$corpus/vocab" --lower_case "${LOWER_CASE:-true}" "${vocab[@]}"
