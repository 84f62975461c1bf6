#!/usr/bin/env bash
# What mixed precision and XLA bring, as in "BERT Meets GPUs": one recipe on the same data in float32, in mixed
# precision, and in mixed precision with XLA; loss curves and speeds on one page.
#
#   [NP=8] [COMPUTE=float16|bfloat16] scripts/ablation.sh RECIPE --data.train DIR --run.steps 200 [FLAGS...]
#
# Everything goes to $BERT_WORKDIR/ablation; a run that is done is not repeated.
set -euo pipefail

if [ $# = 0 ]; then
    echo "error: $0: no recipe ; usage: $0 RECIPE --data.train DIR --run.steps N [FLAGS...]" >&2
    exit 2
fi
out=${BERT_WORKDIR:-workdir}/ablation/$1
compute=${COMPUTE:-float16}
here=$(dirname "$0")
run() { # NAME FLAGS...: a training run of that name
    local name=$1
    shift
    "$here/launch.sh" -np "${NP:-1}" -- python -m bert.pretrain "$@" --run.directory "$out/$name"
}
run float32 "$@" --precision.compute float32 --precision.compress false --precision.xla false
run "$compute" "$@" --precision.compute "$compute" --precision.xla false
run "${compute}_xla" "$@" --precision.compute "$compute" --precision.xla true
python -m bert.report "$out/float32" "$out/$compute" "$out/${compute}_xla" --output "$out"
