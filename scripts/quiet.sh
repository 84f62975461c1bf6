#!/usr/bin/env bash
# Runs a command without what TensorFlow 2.21 says on standard error at import on any machine without a GPU, whatever
# its log level: lines of absl's own. `quiet.sh --pattern` prints the expression that finds them.
set -euo pipefail

noise='^([IW][0-9]{4} [0-9:.]+ |E[0-9]{4} .* cuda_platform\.cc|WARNING: All log messages before absl|To enable the fol)'
[ "${TF_CPP_MIN_LOG_LEVEL:-2}" -ge 2 ] || noise='$^'
if [ "${1:-}" = --pattern ]; then
    echo "$noise"
    exit 0
fi
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1} # tensors in huge pages, see docs/decisions/0013
[ ! -t 2 ] || exec "$@" # a progress bar wants the terminal itself
exec "$@" 2> >(trap '' INT TERM && exec grep --line-buffered -vE "$noise" >&2)
