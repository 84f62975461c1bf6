#!/usr/bin/env bash
# Edits Horovod's source for GPUs, for build_horovod.sh: what TensorFlow 2.21 and CUDA 13 ask for.
#
#   scripts/edit_horovod.sh FOLDER
set -euo pipefail

source=$1
# TensorFlow no longer exports this function. What it gave is a member of the stream.
handle='namespace stream_executor { namespace gpu { GpuStreamHandle AsGpuStreamValue(Stream* stream) { return '
handle+='static_cast<GpuStreamHandle>(stream->platform_specific_handle().stream); } } }'
sed -i "0,/^#endif \/\/ HAVE_GPU/s//$handle\n&/" "$source/horovod/tensorflow/mpi_ops.cc"
# The LOG of the code for GPUs is Horovod's; TensorFlow's headers have brought it no longer since their own moved.
sed -i 's|^#include "../common/common.h"|&\n#include "../common/logging.h"|' "$source/horovod/tensorflow/mpi_ops.cc"
# TensorFlow exports stand-ins for CUDA's runtime that open its own CUDA 12. Without the whole of the toolkit's in
# front of them, kernels would be compiled for one and started by the other.
runtime='list(APPEND LINKER_LIBS -Wl,--whole-archive cudart_static -Wl,--no-whole-archive)'
sed -i "s/^ *list(APPEND LINKER_LIBS \${NCCL_LIBRARIES})/&\n$runtime/" "$source/CMakeLists.txt"
# CMake would write this build's folder into the library as the place of NCCL; the linker is told the right one.
sed -i 's/^project(horovod CXX)/&\nset(CMAKE_SKIP_RPATH TRUE)/' "$source/CMakeLists.txt"
# CUDA 13 has no C++11. The second copy of the kernels, for an older C++ library, is linked by nothing.
sed -i -e 's/CMAKE_CUDA_STANDARD 11/CMAKE_CUDA_STANDARD 17/' \
    -e 's/^add_library(compatible_horovod_cuda_kernels/& EXCLUDE_FROM_ALL/' \
    "$source/horovod/common/ops/cuda/CMakeLists.txt"
