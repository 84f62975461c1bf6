#!/usr/bin/env bash
# Make the virtual environment for everything here. If it is up to date, that takes a fraction of a second.
#
#   DEVICE=gpu PYTHON=python3.12 scripts/setup.sh    # VENV=/elsewhere puts it there; `make` has the same variables
#
# DEVICE: gpu (CUDA libraries, a Horovod with NCCL) or cpu. If it is not set, the machine decides, and an existing
# environment for GPUs is kept: it works without a GPU too.
# An interpreter with its own Horovod (an NGC container) keeps it and its TensorFlow, and gets only the rest.
# The stamp in the environment is `PYTHON-VERSION DEVICE HASH`: the hash of the files that define what is installed. It
# is written last: an environment without one was interrupted and is made again.
# Exit codes: 2 a tool is missing, 1 an installation failed.
set -euo pipefail

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=${VENV:-.venv}
[[ $venv != -* ]] || venv=./$venv # which would be taken for a flag
stamp="$venv/.stamp" found='' device=''
builds="scripts/install_horovod.sh scripts/build_horovod.sh"
declare -A files=(
    [cpu]="requirements/cpu.lock $builds"
    [gpu]="requirements/cpu.lock requirements/gpu.lock requirements/nvcc.lock $builds scripts/cuda_toolkit.sh"
    [own]="requirements/own.txt"
)
declare -A takes=([cpu]="a minute or two" [gpu]="minutes, 7 GB" [own]="a minute or two") \
    parts=([cpu]="TensorFlow Gloo" [gpu]="TensorFlow Gloo NCCL" [own]=TensorFlow)

fail() { echo "error: $1" >&2 && exit 1; }
missing() { echo "error: $1 ; install with: $2" >&2 && exit 2; }
version() { "$python" -c 'import sys; from importlib.metadata import version; print(version(sys.argv[1]))' "$1"; }
failed() { fail "$1 could not install into $venv, its message is above ; check the network and the disk, then repeat"; }
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" || failed pip; }
install_locked() { # LOCK...: by the uv that is locked too, which does what pip does in a fraction of the time
    install --require-hashes --requirement <(sed -n '/^uv==/,/[^\\]$/p' requirements/cpu.lock)
    "$venv/bin/python" scripts/uv.py pip install --quiet --python "$venv/bin/python" --compile-bytecode \
        --require-hashes "${@/#/--requirement=}" || failed uv
}

step() { # TEXT: print what is done now; at a terminal also the seconds since the beginning, until the next call
    [ -z "${clock:-}" ] || { kill "$clock" && wait "$clock"; } 2>/dev/null || true
    clock=''
    [ ! -t 1 ] || printf '\r'
    echo "set-up: $1"
    [ -t 1 ] || return 0
    while sleep 1 && kill -0 $$ 2>/dev/null; do printf '\r%4d s' "$SECONDS"; done 9<&- &
    clock=$!
}

state() { # DEVICE: the stamp of an environment for it
    # shellcheck disable=SC2086 # a list of names
    echo "$found $1 $(cat ${files[$1]} 2>/dev/null | sha256sum | cut -c1-16)"
}

check_python() {
    command -v "$python" >/dev/null || missing "$python: no such interpreter" "apt-get install python3 python3-venv"
    found=$("$python" -c 'import sys; print(*sys.version_info[:3], sep=".")
sys.exit(not (3, 11) <= sys.version_info < (3, 14))') ||
        missing "$python is Python $found, 3.11 to 3.13 are supported" \
            "apt-get install python3.11 python3.11-venv, and export PYTHON=python3.11"
}

choose_device() { # set `device`; end with 0 if the environment is up to date
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

PATH=${PATH//"$(realpath -m "$venv")/bin:"/} # if it is activated: it cannot be made with its own Python
check_python
choose_device # ends here if the environment is up to date
[ ! -e "$venv" ] || [ -w "$venv" ] ||
    { echo "error: $venv is out of date, but user $(id -u) cannot write to it ; set VENV=elsewhere" >&2 && exit 2; }
exec 9<scripts/setup.sh # a second set-up at the same time waits here
flock 9
choose_device

own_horovod=$("$python" -c 'import importlib.util, sys
print(int(sys.prefix == sys.base_prefix and importlib.util.find_spec("horovod") is not None))')
[ "$own_horovod" = 0 ] || device=own
if [ "$own_horovod" = 0 ]; then
    lacks=()
    for tool in g++ make cmake; do command -v $tool >/dev/null || lacks+=("$tool"); done
    [ ${#lacks[@]} = 0 ] || missing "${lacks[*]}: not found, needed to build Horovod" "apt-get install ${lacks[*]}"
fi
if [ "$(cut -d' ' -f1,2 "$stamp" 2>/dev/null)" != "$found $device" ]; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        missing "$python cannot make virtual environments" "apt-get install python${found%.*}-venv"
    [ ! -e "$venv" ] || [ -f "$venv/pyvenv.cfg" ] || missing "$venv is no virtual environment" "VENV=elsewhere"
    rm -rf "$venv"
    [ "$own_horovod" = 0 ] || from_system=--system-site-packages
    "$python" -m venv ${from_system:+"$from_system"} "$venv"
fi
rm -f "$stamp"
trap '[ -z "${clock:-}" ] || kill "$clock" 2>/dev/null || true' EXIT
step "installing into $venv for DEVICE=$device, ${takes[$device]}"
if [ "$own_horovod" = 1 ]; then
    (install --no-deps "tensorflow-text==$(version tensorflow | cut -d. -f1,2).*") 2>/dev/null || true # optional
    # pip, because uv does not see the packages of the interpreter itself
    install --constraint <(for name in tensorflow numpy protobuf ml-dtypes; do echo "$name==$(version $name)"; done) \
        --requirement requirements/own.txt requests matplotlib
else
    locks=(requirements/cpu.lock)
    [ "$device" = cpu ] || locks+=(requirements/gpu.lock)
    install_locked "${locks[@]}"
    step "Horovod: built for this machine the first time, afterwards taken from the cache"
    scripts/install_horovod.sh "$venv/bin/python" "$device"
fi
built=$(PATH="$venv/bin:$PATH" horovodrun --check-build 2>/dev/null) || true
for part in ${parts[$device]}; do
    [[ $built == *"[X] $part"* ]] || fail "horovodrun --check-build shows no $part ; remove $venv and repeat"
done
state "$device" >"$stamp"
size=$(du -sh "$venv" | cut -f1)
step "$venv is ready, $size, $SECONDS s; next: . $venv/bin/activate, or make demo"
