#!/usr/bin/env bash
# `make pretrain`: the phases of a recipe on NP ranks, under $BERT_WORKDIR/pretrain. A finished phase is not repeated, a
# stopped one goes on where it was; phase 2 starts from all weights of phase 1.
set -euo pipefail

work=${BERT_WORKDIR:-workdir}
read -ra flags <<<"${FLAGS:-}"
for phase in ${PHASES:?names of bert/recipes.py}; do
    length=${PHASE1_SEQ:-128} start=()
    if [[ $phase == *_phase2 ]]; then
        length=${PHASE2_SEQ:-512} start=(--init.checkpoint "$work/pretrain/${phase%2}1")
    fi
    scripts/launch.sh -np "${NP:-2}" -- python -m bert.pretrain "$phase" "${start[@]}" \
        --data.train "$work/tfrecords/seq$length" --run.directory "$work/pretrain/$phase" "${flags[@]}"
done
