#!/usr/bin/env bash
# Run COMMAND with an additional environment: `extra_venv.sh NAME COMMAND...` makes .venv-NAME of requirements-NAME.txt
# once; the stamp in it is written last.
#
#   parity      transformers and PyTorch, for `make parity` and `make bench`; some gigabytes where the index has only
#               PyTorch for GPUs
#   gpu-check   XLA's compiler for NVIDIA GPUs, about a gigabyte, for `make gpu-check`; no GPU and no driver is needed
#   tf217       TensorFlow 2.17, for scripts/test_tf217.sh
#   oracles     scikit-learn, SciPy and Triton's client, for tests of scores and exports
#   lock        uv, for scripts/lock.sh
#   audit       pip-audit, for scripts/audit.sh
set -euo pipefail

cd "$(dirname "$0")/.."
name=$1 venv=.venv-$1 && shift
wanted=$(sha256sum <"requirements-$name.txt")
if [ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "installing requirements-$name.txt into $venv, a minute or more"
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "requirements-$name.txt"
    echo "$wanted" >"$venv/.stamp"
fi
exec "$@"
