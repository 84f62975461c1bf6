#!/usr/bin/env bash
# Run all stages on invented text, under $BERT_WORKDIR/demo, as `make demo` does. Each stage prints its seconds; its own
# output goes to demo.log. When repeated, the data is used again and the models are trained again.
set -euo pipefail

demo=${BERT_WORKDIR:-workdir}/demo
log=$demo/demo.log
mkdir -p "$demo"
rm -rf "$demo/pretrain" "$demo/squad"
: >"$log"
export BERT_WORKDIR=$demo BERT_NEXT=none # of all stages below
here=$(dirname "$0")

stage() { # TITLE COMMAND...: run it; if it fails, end the demo with its error and exit code
    local title=$1 begun=${EPOCHREALTIME/./} status=0
    shift
    [ ! -t 1 ] || printf ' ...    %s\r' "$title"
    "$@" >>"$log" 2>&1 || status=$?
    if [ "$status" != 0 ]; then
        grep '^error: ' "$log" >&2 || echo "error: stage \"$title\" failed: see $log" >&2
        exit "$status"
    fi
    printf '%4d s  %s\n' $(((${EPOCHREALTIME/./} - begun + 500000) / 1000000)) "$title"
}
data() { python -m "data.$1" "${@:2}"; }
pretrain() { # PHASE LENGTH [FLAGS...]
    "$here/launch.sh" -np 2 -- python -m bert.pretrain "$1" --data.train "$demo/tfrecords/seq$2" \
        --run.directory "$demo/pretrain/$1" "${@:3}"
}
tfrecords() { # LENGTH
    data tfrecords --source "$demo/shards" --vocab "$demo/vocab/vocab.txt" --output "$demo/tfrecords/seq$1" \
        --max_seq_length "$1" --dupe_factor 2
}
questions() { # NAME FLAGS...: fine-tune on one core, answer and score; && because `|| status` above disables errexit
    local run=$demo/squad/$1 dev=$demo/synthetic/dev.json
    BERT_WORKDIR=$run OMP_NUM_THREADS=1 "$here/launch.sh" -np 1 -- python -m squad.train squad_tiny "${@:2}" \
        --data.train_file "$demo/synthetic/train.json" --run.directory "$run" &&
        python -m squad.predict --model "$run" --dataset "$dev" --output "$run/predictions.json" &&
        python -m squad.metric "$dev" "$run/predictions.json"
}
fine_tune_both() { # at the same time
    questions pretrained --init.checkpoint "$demo/pretrain/demo_phase2" & local first=$!
    questions random --init.checkpoint none --data.vocab "$demo/vocab/vocab.txt" & local second=$!
    wait "$first" && wait "$second"
}

stage "invent a Wikipedia dump, books and questions" data synthetic --output "$demo/synthetic"
stage "extract the dump" data wikipedia --source "$demo/synthetic/wiki.xml.bz2" --output "$demo/wikipedia"
stage "read the books" data books --source "$demo/synthetic/books" --output "$demo/books"
stage "split into sentences" data documents --source "$demo/wikipedia" "$demo/books" --output "$demo/documents"
stage "shard" data shards --source "$demo/documents" --output "$demo/shards" --shards 2
stage "make a vocabulary" data vocab --source "$demo/shards" --output "$demo/vocab" --size 400
stage "make training samples of 48 tokens" tfrecords 48
stage "make training samples of 64 tokens" tfrecords 64
stage "pretrain on 2 ranks, 48 tokens" pretrain demo_phase1 48
stage "pretrain on 2 ranks, 64 tokens" pretrain demo_phase2 64 --init.checkpoint "$demo/pretrain/demo_phase1"
stage "answer questions, from pretrained and from random weights" fine_tune_both
echo
python -m squad.report --pretraining "$demo/pretrain/demo_phase1" "$demo/pretrain/demo_phase2" --output "$demo" \
    --pretrained "$demo/squad/pretrained" --random "$demo/squad/random" --dataset "$demo/synthetic/dev.json" \
    --require_exact_match 70 --require_gain 10
echo "to ask it    make serve, then open http://127.0.0.1:8000"
