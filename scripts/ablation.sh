#!/usr/bin/env bash
# Measure the effect of mixed precision and XLA, as in "BERT Meets GPUs": train one recipe on the same data in float32,
# in mixed precision, and in mixed precision with XLA; write loss curves and speeds on one page. With ALL=1 also train
# in tf32, without dropout on attention weights, with cuDNN's attention where it is supported, and with packing.
#
#   [NP=8] [COMPUTE=float16|bfloat16] [ALL=1] scripts/ablation.sh RECIPE --data.train DIR --run.steps 200 [FLAGS...]
#
# Results are in $BERT_WORKDIR/ablation; a finished run is not repeated.
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
run() { # NAME FLAGS...
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
    else # exit code 2 before the first update: cuDNN does not support it here, so the page is without it
        code=$?
        [ $code = 2 ] || exit $code
        unset 'runs[-1]'
        run packed "${mixed[@]}" --batch.pack true
    fi
fi
python -m bert.report "${runs[@]}" --output "$out"
