#!/usr/bin/env bash
# `make tfrecords`: the corpus to masked samples for both phases, under $BERT_WORKDIR/tfrecords.
set -euo pipefail

work=${BERT_WORKDIR:-workdir}
for length in "${PHASE1_SEQ:-128}" "${PHASE2_SEQ:-512}"; do
    python -m data.tfrecords --source "$work/corpus/shards" --vocab "$work/corpus/vocab/vocab.txt" \
        --output "$work/tfrecords/seq$length" --lower_case "${LOWER_CASE:-true}" --dupe_factor "${DUPE_FACTOR:-5}" \
        --max_seq_length "$length" --masked_lm_prob "${MASKED_LM_PROB:-0.15}" --kind "${RECORDS:-instances}"
done
