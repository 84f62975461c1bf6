#!/usr/bin/env bash
# Give the Makefile's variables their defaults and put the virtual environment in front of PATH: recipes source it.
set -euo pipefail

: "${VOCAB:=train}" "${VOCAB_SIZE:=30522}" "${BPE:=train}" "${BPE_SIZE:=50257}"
: "${PHASE1_SEQ:=128}" "${PHASE2_SEQ:=512}" "${RECIPE:=bert_mini}" "${NP:=2}"
: "${BERT_WORKDIR:=workdir}" "${PYTHON:=python3}" "${VENV:=.venv}"
# As an argument, a path that begins with - would be taken for a flag.
for path in WIKIPEDIA BOOKS PUBMED TEXT VOCAB BPE SQUAD_TRAIN SQUAD_DEV SQUAD_RUN GLUE RACE NER TASK_RUN MODEL \
    PRETRAINED BERT_WORKDIR; do
    [[ ${!path:-} != -* ]] || printf -v "$path" './%s' "${!path}"
done
unset path
VENV=$(realpath -ms -- "$VENV")
PATH=$VENV/bin:$PATH
