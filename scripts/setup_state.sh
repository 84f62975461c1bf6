#!/usr/bin/env bash
# What setup.sh, which sources this, finds out before it does anything: the interpreter, the device, and whether the
# environment is already what it would make. The stamp in an environment is `PYTHON-VERSION DEVICE HASH`, the hash that
# of the files that say what goes into it, and of no others: more files beside them change nothing.
set -euo pipefail

python=${PYTHON:-python3}
venv=${VENV:-.venv}
stamp="$venv/.stamp" found='' device=''
builds="scripts/install_horovod.sh scripts/build_horovod.sh"
declare -A files=(
    [cpu]="requirements.txt requirements-extra.txt requirements-dev.txt $builds"
    [gpu]="requirements.txt requirements-extra.txt requirements-dev.txt requirements-gpu.txt requirements-nvcc.txt \
        $builds scripts/cuda_toolkit.sh scripts/edit_horovod.sh"
    [own]="requirements.txt requirements-extra.txt requirements-dev.txt"
)
# shellcheck disable=SC2034 # read by setup.sh
declare -A takes=([cpu]="a minute or two" [gpu]="minutes, 7 GB" [own]="a minute or two") \
    parts=([cpu]="TensorFlow Gloo" [gpu]="TensorFlow Gloo NCCL" [own]=TensorFlow)

fail() { echo "error: $1" >&2 && exit 1; }
missing() { echo "error: $1 ; install with: $2" >&2 && exit 2; }
version() { "$python" -c 'import sys; from importlib.metadata import version; print(version(sys.argv[1]))' "$1"; }
install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" ||
        fail "pip could not install into $venv, its words are above ; check the network and the disk, then repeat"
}

state() { # DEVICE: what the stamp of an environment for it is
    # shellcheck disable=SC2086 # a list of names
    echo "$found $1 $(cat ${files[$1]} 2>/dev/null | sha256sum | cut -c1-16)"
}

look_at_python() {
    command -v "$python" >/dev/null || missing "$python: no such interpreter" "apt-get install python3 python3-venv"
    found=$("$python" -c 'import sys; print(*sys.version_info[:3], sep=".")
sys.exit(not (3, 11) <= sys.version_info < (3, 14))') ||
        missing "$python is Python $found, 3.11 to 3.13 are supported" \
            "apt-get install python3.11 python3.11-venv, and set PYTHON=python3.11"
}

look_at_device() { # sets `device`; ends with 0 where the environment is there already
    local have='' kind
    device=${DEVICE:-}
    [[ $device =~ ^(gpu|cpu|)$ ]] || { echo "error: DEVICE=$device ; it is gpu or cpu" >&2 && exit 2; }
    [ ! -r "$stamp" ] || have=$(<"$stamp")
    kind=${have#* } kind=${kind% *}
    if [ -z "$device" ] && [ "$kind" = gpu ]; then
        device=gpu
    elif [ -z "$device" ]; then
        device=cpu
        if [ -e /dev/nvidia0 ] || { command -v nvidia-smi && timeout 20 nvidia-smi -L; } >/dev/null 2>&1; then
            device=gpu
        fi
    fi
    if [[ $kind == own || $kind == "$device" ]] && [ "$have" = "$(state "$kind")" ]; then exit 0; fi
}
