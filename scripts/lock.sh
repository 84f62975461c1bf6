#!/usr/bin/env bash
# Write requirements/, from requirements.txt and pyproject.toml: every package that set-up installs, with its version
# and the hashes of its files, for Python 3.11 to 3.13. `make lock` runs it after a change of these two files.
#
#   cpu.lock   what every environment has
#   gpu.lock   what one for GPUs has too
#   nvcc.lock  the compiler that Horovod for GPUs is built with
#   own.txt    what is installed beside a TensorFlow and a Horovod that the interpreter has already
#
# Locks in uv's own format (uv.lock) would name the servers that the files are fetched from: docs/decisions/0007.
set -euo pipefail

cd "$(dirname "$0")/.."
PATH=${VENV:-.venv}/bin:$PATH
command -v uv >/dev/null || { echo "error: ${VENV:-.venv} has no uv ; install with: make setup" >&2 && exit 2; }
extra() { # NAME: the packages of this extra
    python -c 'import sys, tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]], sep="\n")' "$1"
}
lock() { # FILE ARGUMENTS...
    uv pip compile --quiet --universal --python-version 3.11 --no-annotate --custom-compile-command "make lock" \
        --output-file "requirements/$1" "${@:2}"
}
lock cpu.lock --generate-hashes --group dev requirements.txt - < <(extra extra)
mapfile -t everywhere < <(sed -nE 's/^([a-z0-9-]+).*==.*/--no-emit-package=\1/p' requirements/cpu.lock)
lock gpu.lock --generate-hashes --constraints requirements/cpu.lock "${everywhere[@]}" - < <(extra gpu)
lock nvcc.lock --generate-hashes --no-deps --group nvcc
# Left out: what came with TensorFlow and Horovod; what may be of any version; and what needs a later TensorFlow than
# 2.17 (tensorflow-serving-api), or later versions of protobuf and ml-dtypes than 2.17 works with (onnx, with which
# openvino is used).
lock own.txt --no-deps --no-emit-package={tensorflow,tensorflow-text,tensorboard,numpy} \
    --no-emit-package={tensorflow-serving-api,onnx,onnxruntime,openvino} \
    --no-emit-package={cloudpickle,psutil,pyyaml,packaging,setuptools,requests,matplotlib} --group dev \
    requirements.txt - < <(extra extra)
