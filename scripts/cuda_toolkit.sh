#!/usr/bin/env bash
# Find what Horovod is built with for GPUs, and set the variables of its build. Sourced by install_horovod.sh, for the
# key of the wheel, and by build_horovod.sh. The caller has `python` and `fail`. Reasons: docs/decisions/0017.
set -euo pipefail

nvcc_list=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/requirements/nvcc.lock

look_for_cuda() { # sets nccl and nccl_home, cuda and cuda_home (empty: pip's nvcc is fetched), capabilities, mpi
    local found driver place nvcc release refused='' places
    found=$("${python:?}" -c 'import importlib.metadata as m
nccl = m.distribution("nvidia-nccl-cu12"); print(nccl.version, nccl.locate_file("nvidia/nccl"))' 2>/dev/null) ||
        fail 2 "$python has no NCCL ; install with: make setup DEVICE=gpu"
    export nccl=${found%% *} nccl_home=${found#* } cuda='' cuda_home='' mpi=''
    driver=$(timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n1) || true
    [[ $driver =~ ^[0-9]+ ]] && driver=${BASH_REMATCH[0]} || driver='' # no driver here, as where an image is built
    read -ra places <<<"${CUDA_PLACES-$(command -v nvcc) $(echo /usr/local/cuda /usr/local/cuda-1[23]*)}"
    for place in ${CUDA_HOME:+"$CUDA_HOME"} "${places[@]}"; do
        nvcc=$place && [ ! -d "$place" ] || nvcc=$place/bin/nvcc
        [ -x "$nvcc" ] || continue
        release=$("$nvcc" --version | sed -nE 's/.*release .*V([0-9.]+)$/\1/p')
        if [[ $release != 1[23].* ]]; then
            refused+=", $nvcc is of CUDA ${release:-?} and 12 or 13 is supported"
        elif [[ $release == 13.* && -n $driver && $driver -lt 580 ]]; then
            refused+=", $nvcc is of CUDA $release and needs driver 580 or later, not $driver"
        elif [ -z "$cuda" ] || [[ $release == 12.* ]]; then
            # nvcc may be a link, or a script that starts another: --dryrun prints its real folder
            place=$("$nvcc" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p') || true
            cuda_home=$(realpath "${place:-$(dirname "$nvcc")/..}") cuda=$release
            [[ $release != 12.* && $nvcc != "${CUDA_HOME:-/none}"/* ]] || break # as TensorFlow, or set by the user
        fi
    done
    if [ -z "$cuda" ]; then
        [ -z "$driver" ] || [ "$driver" -ge 580 ] ||
            fail 2 "no nvcc that driver $driver can use$refused ; install a CUDA 12 toolkit, and set CUDA_HOME to it"
        cuda=$(sed -nE 's/^nvidia-cuda-nvcc==([0-9.]+).*/\1/p' "$nvcc_list")-pip
    fi
    # Machine code runs on later GPUs of the same major version; for others the driver compiles the last one's PTX.
    local all=75,80,90,100,120
    [ -z "$cuda_home" ] || all=$("$cuda_home/bin/nvcc" --list-gpu-arch | grep -oE '[0-9]+$' |
        grep -xE '70|75|80|90|100|120' | sort -n | paste -sd,)
    export capabilities=${HOROVOD_BUILD_CUDA_CC_LIST:-$all}
    [ "${HOROVOD_WITHOUT_MPI:-}" = 1 ] || ! command -v mpicxx >/dev/null ||
        mpi=$( (mpirun --version || echo mpi) 2>&1 | head -n2 | tr -cs 'A-Za-z0-9.\n' - | paste -sd- |
            sed 's/-*$//' | cut -c1-40)
}

use_cuda() { # WORK: set what Horovod's CMake reads; WORK takes what pip's packages lack
    local work=$1
    if [ -z "$cuda_home" ]; then
        "$python" -m pip install --no-deps --require-hashes --target "$work/nvcc" --requirement "$nvcc_list" || return 1
        cuda_home=$work/nvcc/nvidia/cu13
        ln -s lib "$cuda_home/lib64" && ln -s libcudart.so.13 "$cuda_home/lib/libcudart.so" # as CMake expects
    fi
    mkdir "$work/nccl" && ln -s "$nccl_home/lib/libnccl.so.2" "$work/nccl/libnccl.so"
    if [ -n "$mpi" ]; then export HOROVOD_WITH_MPI=1; else export HOROVOD_WITHOUT_MPI=1; fi
    export PATH=$cuda_home/bin:$PATH HOROVOD_CUDA_HOME=$cuda_home CUDAARCHS=${capabilities%%,*} \
        HOROVOD_BUILD_CUDA_CC_LIST=$capabilities HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_LINK=SHARED \
        HOROVOD_NCCL_INCLUDE=$nccl_home/include HOROVOD_NCCL_LIB=$work/nccl
}
