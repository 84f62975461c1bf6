#!/usr/bin/env bash
# Write requirements-cpu.lock and requirements-gpu.lock: every package that `make setup` installs, with its version and
# the hashes of its files, for Python 3.11 to 3.13; and requirements-nvcc.lock, for the build of Horovod. `make lock`
# runs it after a change of requirements*.txt.
set -euo pipefail

cd "$(dirname "$0")/.."
lock() { # DEVICE LIST...
    scripts/extra_venv.sh lock .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
        --generate-hashes --no-annotate --custom-compile-command "make lock" \
        --output-file "requirements-$1.lock" "${@:2}"
}
lock cpu requirements.txt requirements-dev.txt
lock gpu requirements.txt requirements-dev.txt requirements-gpu.txt
lock nvcc --no-deps requirements-nvcc.txt
