#!/usr/bin/env bash
# Builds Horovod's wheel into a folder, for install_horovod.sh, which exports `python`, `version`, `device`,
# `fail`, and for GPUs what cuda_toolkit.sh finds.
#
#   scripts/build_horovod.sh FOLDER LOG
#
# The published source does not compile against TensorFlow >= 2.19. What is edited, and why, stands beside
# each edit, here and in edit_horovod.sh.
set -euo pipefail

into=$1 log=$2
: "${python:?}" "${version:?}" "${device:?}" # are install_horovod.sh's
sha256=92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "horovod==$version --hash=sha256:$sha256" >"$work/source.txt"
"$python" -m pip download --no-deps --no-binary :all: --no-build-isolation --require-hashes \
    --dest "$work" --requirement "$work/source.txt" >"$log" 2>&1 ||
    if grep -q 'DO NOT MATCH' "$log"; then fail 4 "the source is not the published one: $log"; else
        fail 1 "the source could not be fetched: $log ; check the network, then repeat"; fi
tar -xzf "$work/horovod-$version.tar.gz" -C "$work"
source=$work/horovod-$version
# xla_mpi_ops.cc includes headers that have moved. All of its code is for collectives inside XLA, and ours stay outside.
sed -i '/xla_mpi_ops\.cc/d' "$source/horovod/tensorflow/CMakeLists.txt"
# Gloo is otherwise compiled twice: this copy, in C++14, is linked by nothing with a TensorFlow this new.
sed -i 's/^\( *add_subdirectory(third_party\/gloo\))/\1 EXCLUDE_FROM_ALL)/' "$source/CMakeLists.txt"
# CMake 4 refuses the policy version that Gloo asks for. Debug symbols would make the wheel 20 times larger.
jobs=$(nproc)
export MAKEFLAGS=-j$jobs CMAKE_POLICY_VERSION_MINIMUM=3.5 LDFLAGS=-Wl,--strip-debug \
    HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 HOROVOD_CPU_OPERATIONS=GLOO \
    HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
if [ "$device" = gpu ]; then
    # shellcheck source=scripts/cuda_toolkit.sh
    . "$(dirname "$0")/cuda_toolkit.sh"
    use_cuda "$work" >>"$log" 2>&1 ||
        fail 1 "nvcc could not be fetched: $log ; check the network, or set CUDA_HOME to a toolkit of CUDA 12"
    "$(dirname "$0")/edit_horovod.sh" "$source"
    # NCCL lies beside Horovod, as TensorFlow's libraries look for it too.
    LDFLAGS+=",--enable-new-dtags,-rpath,\$ORIGIN/../../nvidia/nccl/lib"
else
    export HOROVOD_WITHOUT_MPI=1
fi
"$python" -m pip wheel --verbose --use-pep517 --no-build-isolation --no-deps --wheel-dir "$into" "$source" \
    >>"$log" 2>&1 ||
    fail 1 "the build failed: $log ; $( (grep -m1 -A1 -E 'error:|CMake Error' "$log" || tail -1 "$log") | paste -sd' ')"
[ "$device" = gpu ] || exit 0
"$python" -m zipfile -e "$into"/horovod-*.whl "$work/wheel"
if nm --dynamic --undefined-only "$work"/wheel/horovod/tensorflow/mpi_lib*.so 2>/dev/null | grep -E ' _*cuda'; then
    rm -r "$into" && fail 1 "it would take CUDA's runtime from TensorFlow: the linker did not do as told"
fi
