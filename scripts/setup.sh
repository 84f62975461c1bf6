#!/usr/bin/env bash
# Makes the virtual environment that everything here runs in; done once, it takes a fraction of a second to see that.
#
#   DEVICE=gpu PYTHON=python3.12 scripts/setup.sh    # VENV=/elsewhere puts it there; `make` knows these variables too
#
# DEVICE: gpu (CUDA libraries, a Horovod with NCCL) or cpu. If it is not set, the machine decides, and an environment
# for GPUs that is already there is kept: it works without one too.
# An interpreter that brings its own Horovod (an NGC container) keeps it, and its TensorFlow, and only gets the rest.
# The stamp is written last: an environment without one was interrupted and is made anew.
# Exit codes: 2 a tool is missing, 1 an installation failed.
set -euo pipefail

cd "$(dirname "$0")/.."
# shellcheck source=scripts/setup_state.sh
. scripts/setup_state.sh
PATH=${PATH//"$(realpath -m "$venv")/bin:"/} # where it is activated: it cannot be made with itself
look_at_python
look_at_device # ends here if the environment is as it should be
[ ! -e "$venv" ] || [ -w "$venv" ] ||
    { echo "error: $venv is out of date, but user $(id -u) may not write it ; set VENV=elsewhere" >&2 && exit 2; }
exec 9<scripts/setup.sh # a second set-up at the same time waits here
flock 9
look_at_device

own_horovod=$("$python" -c 'import importlib.util, sys
print(int(sys.prefix == sys.base_prefix and importlib.util.find_spec("horovod") is not None))')
[ "$own_horovod" = 0 ] || device=own
if [ "$own_horovod" = 0 ]; then
    lacks=()
    for tool in g++ make cmake; do command -v $tool >/dev/null || lacks+=("$tool"); done
    [ ${#lacks[@]} = 0 ] || missing "${lacks[*]}: not found, Horovod is built with it" "apt-get install ${lacks[*]}"
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
echo "set-up: installing into $venv for DEVICE=$device, ${takes[$device]}"
if [ "$own_horovod" = 1 ]; then
    (install --no-deps "tensorflow-text==$(version tensorflow | cut -d. -f1,2).*") 2>/dev/null || true # optional
    install --constraint <(echo "numpy==$(version numpy)") --requirement requirements-dev.txt requests matplotlib \
        --requirement <(grep -E '^(nltk|wikiextractor|tokenizers|safetensors|google-crc32c|urllib3|pytest)==' \
            requirements.txt)
else
    lists=(--requirement requirements.txt --requirement requirements-dev.txt)
    [ "$device" = cpu ] || lists+=(--requirement requirements-gpu.txt)
    install "${lists[@]}"
    scripts/install_horovod.sh "$venv/bin/python" "$device"
fi
built=$(PATH="$venv/bin:$PATH" horovodrun --check-build 2>/dev/null) || true
for part in ${parts[$device]}; do
    [[ $built == *"[X] $part"* ]] || fail "horovodrun --check-build shows no $part ; remove $venv and repeat"
done
state "$device" >"$stamp"
