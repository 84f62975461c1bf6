#!/usr/bin/env bash
# Makes the virtual environment that everything here runs in; done once, it takes a fraction of a second to see that.
#
#   PYTHON=python3.12 scripts/setup.sh        # VENV=/elsewhere puts it there; `make` knows both variables too
# An interpreter that brings its own Horovod (an NGC container) keeps it, and its TensorFlow, and only gets the rest.
# The stamp is written last: an environment without one was interrupted and is made anew.
# Exit codes: 2 a tool is missing, 1 an installation failed.
set -euo pipefail

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=${VENV:-.venv}
PATH=${PATH//"$(realpath -m "$venv")/bin:"/} # where it is activated: it cannot be made with itself
missing() { echo "error: $1 ; install with: $2" >&2 && exit 2; }

command -v "$python" >/dev/null || missing "$python: no such interpreter" "apt-get install python3 python3-venv"
found=$("$python" -c 'import sys; print(*sys.version_info[:3], sep=".")
sys.exit(not (3, 11) <= sys.version_info < (3, 14))') ||
    missing "$python is Python $found, 3.11 to 3.13 are supported" \
        "apt-get install python3.11 python3.11-venv, and set PYTHON=python3.11"
exec 9<scripts/setup.sh # a second set-up at the same time waits here
flock 9
stamp="$venv/.stamp"
wanted="$found $(cat requirements*.txt scripts/install_horovod.sh | sha256sum | cut -c1-16)"
[ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || exit 0

own_horovod=$("$python" -c 'import importlib.util, sys
print(int(sys.prefix == sys.base_prefix and importlib.util.find_spec("horovod") is not None))')
if [ "$own_horovod" = 0 ]; then
    lacks=()
    for tool in g++ make cmake; do command -v $tool >/dev/null || lacks+=("$tool"); done
    [ ${#lacks[@]} = 0 ] || missing "${lacks[*]}: not found, Horovod is built with it" "apt-get install ${lacks[*]}"
fi
if [ "$(cut -d' ' -f1 "$stamp" 2>/dev/null)" != "$found" ]; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        missing "$python cannot make virtual environments" "apt-get install python${found%.*}-venv"
    [ ! -e "$venv" ] || [ -f "$venv/pyvenv.cfg" ] || missing "$venv is no virtual environment" "VENV=elsewhere"
    rm -rf "$venv"
    [ "$own_horovod" = 0 ] || from_system=--system-site-packages
    "$python" -m venv ${from_system:+"$from_system"} "$venv"
fi
rm -f "$stamp"
echo "set-up: installing into $venv, a minute or two"
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
version() { "$python" -c 'import sys; from importlib.metadata import version; print(version(sys.argv[1]))' "$1"; }
if [ "$own_horovod" = 1 ]; then
    install --no-deps "tensorflow-text==$(version tensorflow | cut -d. -f1,2).*"
    install --constraint <(echo "numpy==$(version numpy)") --requirement requirements-dev.txt requests matplotlib \
        --requirement <(grep -E '^(nltk|wikiextractor|tokenizers|safetensors|google-crc32c|urllib3|pytest)==' \
            requirements.txt)
else
    install --requirement requirements.txt --requirement requirements-dev.txt
    scripts/install_horovod.sh "$venv/bin/python"
fi
built=$(PATH="$venv/bin:$PATH" horovodrun --check-build 2>/dev/null) || true
if [[ $built != *"[X] TensorFlow"* || ($own_horovod == 0 && $built != *"[X] Gloo"*) ]]; then
    echo "error: horovodrun --check-build shows no TensorFlow and Gloo ; remove $venv and repeat" >&2
    exit 1
fi
echo "$wanted" >"$stamp"
