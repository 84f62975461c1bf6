#!/usr/bin/env bash
# `make parity`: do models that go out and come in compute what transformers computes?
#
# transformers and PyTorch are installed in .venv-parity, which the product does not need; done once, as set-up is.
# Where the index has PyTorch for GPUs only, that is some gigabytes. ARGUMENTS go to pytest.
set -euo pipefail

cd "$(dirname "$0")/.."
venv=.venv-parity
wanted=$(sha256sum <requirements-parity.txt)
if [ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "parity: installing transformers and PyTorch into $venv, a minute or more"
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements-parity.txt
    echo "$wanted" >"$venv/.stamp"
fi
pytest -m parity "$@"
