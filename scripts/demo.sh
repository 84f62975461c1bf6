#!/usr/bin/env bash
# `make demo`: the whole journey on invented text, under $BERT_WORKDIR/demo. Each stage prints its seconds; what it says
# itself goes to demo.log. A second time the data is used as it is, and the models are trained anew.
set -euo pipefail

demo=${BERT_WORKDIR:-workdir}/demo
log=$demo/demo.log
mkdir -p "$demo"
rm -rf "$demo/pretrain" "$demo/squad"
: >"$log"
export BERT_WORKDIR=$demo # of all stages below
cores=$(nproc)

stage() { # TITLE COMMAND...: runs it, or ends the demo with its last line
    local title=$1 begun=$EPOCHREALTIME status=0
    shift
    "$@" >>"$log" 2>&1 || status=$?
    if [ "$status" != 0 ]; then
        tail -n 1 "$log" >&2
        echo "$title: failed with exit code $status; everything it said is in $log" >&2
        exit "$status"
    fi
    printf '%6.1f s  %s\n' "$(bc <<<"$EPOCHREALTIME - $begun")" "$title"
}
