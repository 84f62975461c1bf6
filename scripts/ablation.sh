#!/usr/bin/env bash
# What mixed precision and XLA bring, as in "BERT Meets GPUs": one recipe on the same data in float32, in mixed
# precision, and in mixed precision with XLA; loss curves and speeds on one page. With ALL=1 also in tf32, without
# dropout on attention weights, then with cuDNN's attention, and packed.
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
    mixed+=(--model.fused_attention true)
    run fused "${mixed[@]}"
    run fused_packed "${mixed[@]}" --batch.pack true
fi
python -m bert.report "${runs[@]}" --output "$out"
