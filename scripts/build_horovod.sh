#!/usr/bin/env bash
# Build Horovod's wheel into a folder, for install_horovod.sh, which exports `python`, `version`, `device`, `fail`, and
# for GPUs the variables that cuda_toolkit.sh sets.
#
#   scripts/build_horovod.sh FOLDER LOG
#
# The published source does not compile against TensorFlow >= 2.19. The reason for each edit is given beside it.
set -euo pipefail

into=$1 log=$2
: "${python:?}" "${version:?}" "${device:?}" # exported by install_horovod.sh
sha256=92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

edit_for_gpus() { # SOURCE: what TensorFlow 2.21 and CUDA 13 need
    local source=$1 operations=$1/horovod/tensorflow/mpi_ops.cc kernels=$1/horovod/common/ops/cuda/CMakeLists.txt
    # TensorFlow no longer exports this function. Its result is a member of the stream.
    local handle='namespace stream_executor { namespace gpu { GpuStreamHandle AsGpuStreamValue(Stream* stream) '
    handle+='{ return static_cast<GpuStreamHandle>(stream->platform_specific_handle().stream); } } }'
    sed -i "0,/^#endif \/\/ HAVE_GPU/s//$handle\n&/" "$operations"
    # The code for GPUs uses Horovod's LOG, which TensorFlow's headers no longer include.
    sed -i 's|^#include "../common/common.h"|&\n#include "../common/logging.h"|' "$operations"
    # TensorFlow exports functions of CUDA's runtime that open its own CUDA 12. Without the toolkit's whole runtime in
    # front of them, kernels would be compiled for one runtime and started by the other.
    local runtime='list(APPEND LINKER_LIBS -Wl,--whole-archive cudart_static -Wl,--no-whole-archive)'
    sed -i "s/^ *list(APPEND LINKER_LIBS \${NCCL_LIBRARIES})/&\n$runtime/" "$source/CMakeLists.txt"
    # CMake would write the folder of this build into the library as the place of NCCL. LDFLAGS sets the right one.
    sed -i 's/^project(horovod CXX)/&\nset(CMAKE_SKIP_RPATH TRUE)/' "$source/CMakeLists.txt"
    # CUDA 13 has no C++11. The second copy of the kernels, for an older C++ library, is not linked into anything.
    sed -i -e 's/CMAKE_CUDA_STANDARD 11/CMAKE_CUDA_STANDARD 17/' \
        -e 's/^add_library(compatible_horovod_cuda_kernels/& EXCLUDE_FROM_ALL/' "$kernels"
}

echo "horovod==$version --hash=sha256:$sha256" >"$work/source.txt"
"$python" -m pip download --no-deps --no-binary :all: --no-build-isolation --require-hashes \
    --dest "$work" --requirement "$work/source.txt" >"$log" 2>&1 ||
    if grep -q 'DO NOT MATCH' "$log"; then fail 4 "the source is not the published one: $log"; else
        fail 1 "the source could not be downloaded: $log ; check the network, then repeat"; fi
tar -xzf "$work/horovod-$version.tar.gz" -C "$work"
source=$work/horovod-$version
# xla_mpi_ops.cc includes headers that have moved. Its code is for collectives inside XLA, which are not used here.
sed -i '/xla_mpi_ops\.cc/d' "$source/horovod/tensorflow/CMakeLists.txt"
# Gloo is otherwise compiled twice. With a TensorFlow this new, nothing links this copy, which is in C++14.
sed -i 's/^\( *add_subdirectory(third_party\/gloo\))/\1 EXCLUDE_FROM_ALL)/' "$source/CMakeLists.txt"
# Gloo would add float16 numbers one by one in software. It has code for the instructions that Horovod is compiled with
# where the compiler's machine has them, but does not build it. The bits are the same.
avx='if(CMAKE_CXX_FLAGS MATCHES "-mf16c")\nadd_definitions(-DGLOO_USE_AVX=1)\nendif()'
sed -i "s|^set_build_arch_flags.*|&\n$avx|" "$source/CMakeLists.txt"
sed -i 's|^\(.*SOURCE_DIR}/\)context\.cc"|&\n\1math.cc"|' "$source/third_party/gloo/gloo/CMakeLists.txt"
# Gloo sends a sum in segments, of which two are on their way at a time. With 1 MiB they do not fill a link of 1 Gb/s
# with a delay of 5 ms: 43 MB take 0.54 s, with 4 MiB 0.42 s. Without a delay both are equally fast.
sed -i 's/\(kMaxSegmentSize = \)1024 \* 1024;/\14 * 1024 * 1024;/' "$source/third_party/gloo/gloo/allreduce.h"
# CMake 4 refuses the policy version that Gloo asks for. Debug symbols would make the wheel 20 times larger.
jobs=$(nproc)
export MAKEFLAGS=-j$jobs CMAKE_POLICY_VERSION_MINIMUM=3.5 LDFLAGS=-Wl,--strip-debug \
    HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 HOROVOD_CPU_OPERATIONS=GLOO \
    HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
if [ "$device" = gpu ]; then
    # shellcheck source=scripts/cuda_toolkit.sh
    . "$(dirname "$0")/cuda_toolkit.sh"
    use_cuda "$work" >>"$log" 2>&1 ||
        fail 1 "nvcc could not be downloaded: $log ; check the network, or set CUDA_HOME to a toolkit of CUDA 12"
    edit_for_gpus "$source"
    # For `python -m bert.doctor`, which compares it with the driver and the GPUs.
    echo "BUILT_WITH = {'cuda': '${cuda%-pip}', 'capabilities': [$capabilities], 'nccl': '$nccl'}" \
        >"$source/horovod/built_with.py"
    # NCCL's place beside Horovod, where TensorFlow's libraries look for it too.
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
    rm -r "$into" && fail 1 "the library would use TensorFlow's CUDA runtime: the linker ignored its options"
fi
