#!/usr/bin/env bash
# What mixed precision and XLA bring, as in "BERT Meets GPUs": one recipe on the same data in float32, in mixed
# precision, and in mixed precision with XLA; loss curves and speeds on one page. With ALL=1 also in tf32, without
# dropout on attention weights, then with cuDNN's attention if it answers here, and packed.
#
#   [NP=8] [COMPUTE=float16|bfloat16] [ALL=1] scripts/ablation.sh RECIPE --data.train DIR --run.steps 200 [FLAGS...]
#
# Everything goes to $BERT_WORKDIR/ablation; a run that is done is not repeated.
set -euo pipefail

if [ $# = 0 ]; then
    echo "error: $0: no recipe ; usage: $0 RECIPE --data.train DIR --run.steps N [FLAGS...]" >&2
    exit 2
fi
out=${BERT_WORKDIR:-workdir}/ablation/$1
compute=${COMPUTE:-float16}
all=${ALL:-}
here=$(dirname "$0")
command=("$@")
runs=()
run() { # NAME FLAGS...: a training run of that name
    runs+=("$out/$1")
    "$here/launch.sh" -np "${NP:-1}" -- python -m bert.pretrain "${command[@]}" "${@:2}" --run.directory "$out/$1"
}
run float32 --precision.compute float32 --precision.compress false --precision.xla false
[ -z "$all" ] || run tf32 --precision.compute tf32 --precision.compress false --precision.xla false
run "$compute" --precision.compute "$compute" --precision.xla false
mixed=(--precision.compute "$compute" --precision.xla true)
run "${compute}_xla" "${mixed[@]}"
if [ -n "$all" ]; then
    mixed+=(--model.attention_probs_dropout_prob 0)
    run undropped "${mixed[@]}"
    fused=(--model.fused_attention true)
    if run fused "${mixed[@]}" "${fused[@]}"; then
        run fused_packed "${mixed[@]}" "${fused[@]}" --batch.pack true
    else # with 2 before its first update, if cuDNN does not answer here: the page is about the others then
        code=$?
        [ $code = 2 ] || exit $code
        unset 'runs[-1]'
        run packed "${mixed[@]}" --batch.pack true
    fi
fi
python -m bert.report "${runs[@]}" --output "$out"
