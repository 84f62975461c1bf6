#!/usr/bin/env bash
# Install Horovod 0.28.1 into the environment of an interpreter that already has TensorFlow.
#
#   scripts/install_horovod.sh .venv/bin/python [cpu|gpu]    cpu: Gloo; gpu: Gloo, NCCL, and MPI where there is one
#
# build_horovod.sh takes minutes, so the wheel is kept in ${XDG_CACHE_HOME:-~/.cache}/bert-horovod, one for each
# combination of what it is built from; a second environment installs it in seconds. Beside each is its SHA-256: a wheel
# that has another one, or none, was changed or not finished, and is built again.
# Exit codes: 1 the build failed, 2 a tool is missing, 4 the source is not the published one.
set -euo pipefail

usage="usage: scripts/install_horovod.sh PYTHON [cpu|gpu]"
export python=${1:?$usage} device=${2:-cpu} version=0.28.1
# Increase it when build_horovod.sh changes what it builds: older wheels are then not used.
declare -A edits=([cpu]=4 [gpu]=5)
scripts=$(dirname "$0")
fail() { echo "error: horovod $version: $2" >&2 && exit "$1"; }
export -f fail

key=$device-tf$("$python" -c 'import platform, sysconfig; from importlib.metadata import version
print(version("tensorflow"), sysconfig.get_config_var("SOABI"), *platform.libc_ver(), sep="-")')
if [ "$device" = gpu ]; then
    # shellcheck source=scripts/cuda_toolkit.sh
    . "$scripts/cuda_toolkit.sh"
    look_for_cuda
    key+=-nccl$nccl-cuda$cuda-sm${capabilities//,/.}${mpi:+-$mpi}
fi
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/bert-horovod
mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || cache=$("$python" -c 'import sys; print(sys.prefix)')
kept=$cache/$version-edits${edits[$device]}-$key
mkdir -p "$kept"
exec 8>"$kept/.lock" # a second set-up at the same time waits here and uses the first one's wheel
flock 8

wheel=("$kept"/horovod-*.whl)
if [ -f "${wheel[0]}" ] && ! (cd "$kept" && sha256sum --status --check wheel.sha256) 2>/dev/null; then
    echo "warning: ${wheel[0]} is not the wheel that was built here ; it is built again" >&2
    rm -f "$kept"/horovod-*.whl
fi
wheel=("$kept"/horovod-*.whl)
if [ ! -f "${wheel[0]}" ]; then
    log=$cache/build-$key.log
    echo "horovod $version: building for $key, 2 to 5 minutes on 2 cores (log: $log)"
    rm -rf "$kept/new"
    "$scripts/build_horovod.sh" "$kept/new" "$log"
    (cd "$kept/new" && sha256sum horovod-*.whl) >"$kept/wheel.sha256"
    mv "$kept"/new/horovod-*.whl "$kept/" # complete, and in one step
    rm "$log"
    wheel=("$kept"/horovod-*.whl)
fi
read -r sha256 _ <"$kept/wheel.sha256"
[[ $sha256 =~ ^[0-9a-f]{64}$ ]] || fail 4 "$kept/wheel.sha256 has no hash ; remove $kept"
# pip checks the file that it installs, so that a change after the check above is noticed.
"$python" -m pip install --quiet --no-deps --force-reinstall --no-index --find-links "$kept" --require-hashes \
    --requirement <(echo "horovod==$version --hash=sha256:$sha256")
