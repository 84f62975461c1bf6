#!/usr/bin/env bash
# Run COMMAND with an additional environment: `extra_venv.sh NAME COMMAND...` makes .venv-NAME of the dependency group
# NAME in pyproject.toml, or completes it. That needs no network when nothing is missing.
#
#   parity      transformers and PyTorch, for `make parity` and `make bench`; some gigabytes where the index has only
#               PyTorch for GPUs
#   optimum     optimum, which loads ONNX and OpenVINO, for `make parity`; it needs an earlier transformers than parity
#   gpu-check   XLA's compiler for NVIDIA GPUs, about a gigabyte, for `make gpu-check`; no GPU and no driver is needed
#   tf217       TensorFlow 2.17, for scripts/test_tf217.sh
#   oracles     scikit-learn, SciPy and Triton's client, for tests of scores and exports
#   stores      moto, a server of S3 on this machine, for tests of object stores
#   docs        mkdocs-material, for `make docs`
#   audit       pip-audit, for scripts/audit.sh
set -euo pipefail

cd "$(dirname "$0")/.."
name=$1 venv=.venv-$1 && shift
PATH=${VENV:-.venv}/bin:$PATH
command -v uv >/dev/null || { echo "error: ${VENV:-.venv} has no uv ; install with: make setup" >&2 && exit 2; }
[ -x "$venv/bin/python" ] || python scripts/uv.py venv --quiet --python "${PYTHON:-python3}" "$venv"
# With --group instead of a list, uv asks the index also where nothing is missing.
python -c 'import sys, tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"][sys.argv[1]], sep="\n")' "$name" |
    python scripts/uv.py pip install --quiet --python "$venv/bin/python" --requirement -
exec "$@"
