#!/usr/bin/env bash
# Installs Horovod 0.28.1 (TensorFlow, Gloo) into the environment of an interpreter that already has TensorFlow.
#
#   scripts/install_horovod.sh .venv/bin/python
#
# The published source does not compile against TensorFlow >= 2.19: xla_mpi_ops.cc includes headers that have moved. All
# of its code is for GPUs and we keep collectives outside XLA, so that file is left out. The wheel (minutes to build) is
# kept in ${XDG_CACHE_HOME:-~/.cache}/bert-horovod, one per TensorFlow, Python and architecture; a second environment
# installs it in seconds. Exit codes: 1 the build failed, 4 the source is not the published one.
set -euo pipefail

python=${1:?usage: scripts/install_horovod.sh PYTHON}
version=0.28.1
sha256=92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0
edits=1 # count up when the edits below change: older wheels are then left alone

fail() {
    echo "error: horovod $version: $2" >&2
    exit "$1"
}

key=tf$("$python" -c 'import platform, sysconfig; from importlib.metadata import version
print(version("tensorflow"), sysconfig.get_config_var("SOABI"), *platform.libc_ver(), sep="-")')
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/bert-horovod
mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || cache=$("$python" -c 'import sys; print(sys.prefix)')
kept=$cache/$version-edits$edits-$key
log=$cache/build-$key.log
mkdir -p "$kept"
exec 8>"$kept/.lock" # of two set-ups at once, the second waits here and takes the first one's wheel
flock 8

wheel=("$kept"/horovod-*.whl)
if [ ! -f "${wheel[0]}" ]; then
    echo "horovod $version: building for $key, 2 to 5 minutes on 2 cores (log: $log)"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    echo "horovod==$version --hash=sha256:$sha256" >"$work/source.txt"
    "$python" -m pip download --no-deps --no-binary :all: --no-build-isolation --require-hashes \
        --dest "$work" --requirement "$work/source.txt" >"$log" 2>&1 ||
        if grep -q 'DO NOT MATCH' "$log"; then fail 4 "the source is not the published one: $log"; else
            fail 1 "the source could not be fetched: $log ; check the network, then repeat"; fi
    tar -xzf "$work/horovod-$version.tar.gz" -C "$work"
    source=$work/horovod-$version
    sed -i '/xla_mpi_ops\.cc/d' "$source/horovod/tensorflow/CMakeLists.txt"
    # Gloo is otherwise compiled twice: this copy, in C++14, is linked by nothing with a TensorFlow this new.
    sed -i 's/^\( *add_subdirectory(third_party\/gloo\))/\1 EXCLUDE_FROM_ALL)/' "$source/CMakeLists.txt"
    # CMake 4 refuses the policy version that Gloo asks for. Debug symbols would make the wheel 20 times larger.
    env MAKEFLAGS="-j$(nproc)" CMAKE_POLICY_VERSION_MINIMUM=3.5 LDFLAGS=-Wl,--strip-debug \
        HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 HOROVOD_CPU_OPERATIONS=GLOO \
        HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 \
        "$python" -m pip wheel --verbose --use-pep517 --no-build-isolation --no-deps --wheel-dir "$kept/new" "$source" \
        >>"$log" 2>&1 || fail 1 "the build failed: $log ; $(grep -m1 -E 'error:|CMake Error' "$log" || tail -1 "$log")"
    mv "$kept"/new/horovod-*.whl "$kept/" # only now, and at once, it counts as built
    rm "$log"
    wheel=("$kept"/horovod-*.whl)
fi
"$python" -m pip install --quiet --no-deps --force-reinstall "${wheel[0]}"
