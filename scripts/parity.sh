#!/usr/bin/env bash
# Runs COMMAND with transformers and PyTorch at hand in .venv-parity: for `make parity` and `make bench`.
#
# The product does not need that environment; it is made once, as set-up is. Where the index has PyTorch for GPUs only,
# that is some gigabytes.
set -euo pipefail

cd "$(dirname "$0")/.."
venv=.venv-parity
wanted=$(sha256sum <requirements-parity.txt)
if [ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "installing transformers and PyTorch into $venv, a minute or more"
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements-parity.txt
    echo "$wanted" >"$venv/.stamp"
fi
exec "$@"
