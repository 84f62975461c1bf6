#!/usr/bin/env bash
# Runs one rank on its share of the cores beside its GPU, and names NCCL the InfiniBand adapters there:
# `bind.sh [--dry-run] COMMAND...` stands before the command of each rank, as the launchers' --bind puts it.
#
# The GPU is the one that bert.hardware.devices chooses. Ranks whose GPUs hang on the same NUMA node share its cores;
# without GPUs the ranks are dealt to the nodes in order. It never fails a run: where it cannot find its way, local rank 0 says why
# and the ranks run unbound.
set -euo pipefail

# shellcheck source=scripts/launchers.sh
. "$(dirname "$0")/launchers.sh"
parse "" "$@"
sys=${BERT_SYS:-/sys} rank=${HOROVOD_LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}}
size=${HOROVOD_LOCAL_SIZE:-${OMPI_COMM_WORLD_LOCAL_SIZE:-${SLURM_STEP_TASKS_PER_NODE:-1}}}
size=${size%%[(,]*} # SLURM's may read 8(x4): four nodes of 8

run() { # COMMAND...
    [ -z "$dry_run" ] || { show "$@" && exit 0; }
    exec "$@"
}
unbound() { # WHY
    [ "$rank" != 0 ] || echo "warning: $0: $1 ; the ranks run unbound" >&2
    threads $(($(nproc) > size ? $(nproc) / size : 1))
    run "${rest[@]}"
}

declare -A bus=() && listed=()
while IFS=', ' read -r index uuid id; do
    [[ $id != *:*:* ]] || { bus[$index]=$id && bus[$uuid]=$id && listed+=("$index"); }
done < <(nvidia-smi --query-gpu=index,uuid,pci.bus_id --format=csv,noheader 2>/dev/null)
IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES-$(IFS=, && echo "${listed[*]}")}"
mapfile -t nodes < <(grep -l '[0-9]' "$sys"/devices/system/node/node*/cpulist 2>/dev/null)
[ ${#nodes[@]} -gt 0 ] || unbound "no NUMA nodes in $sys"
node() { # LOCAL_RANK: the node of its GPU, whose bus is 00000000:0F:00.0 in nvidia-smi's words, 0000:0f:00.0 in Linux's
    if [ ${#gpus[@]} = 0 ] || [ ${#nodes[@]} = 1 ]; then
        local folder=${nodes[$1 * ${#nodes[@]} / size]%/cpulist} && echo "${folder##*node}" && return
    fi
    local id=${bus[${gpus[$1 % ${#gpus[@]}]}]:-}
    id=${id,,} && cat "$sys/bus/pci/devices/${id: -12}/numa_node" 2>/dev/null
}
here=$(node "$rank") && [ "${here:--1}" -ge 0 ] || unbound "no NUMA node is known for the GPU"
before=0 sharers=0 # ranks of this node, and those before this one
for ((peer = 0; peer < size; peer++)); do
    [ "$(node "$peer")" != "$here" ] || sharers=$((sharers + 1)) before=$((before + (peer < rank)))
done
read -r cores cpus < <("$scripts/cores.sh" "$here" "$before" "$sharers" 2>/dev/null) ||
    unbound "NUMA node $here has fewer cores for us than ranks ($sharers)"

threads "$cores"
adapters=''
for adapter in "$sys"/class/infiniband/*; do
    [ "$(cat "$adapter/device/numa_node" 2>/dev/null)" = "$here" ] || continue
    ! grep -qs ACTIVE "$adapter"/ports/*/state || adapters+=,${adapter##*/}
done
[ -z "$adapters" ] || export NCCL_IB_HCA=${NCCL_IB_HCA:-=${adapters#,}} # NCCL reads = as: these names, no longer ones
for binder in "numactl --physcpubind=$cpus --membind=$here" "taskset --cpu-list $cpus"; do # containers forbid the first
    read -ra words <<<"$binder"
    ! "${words[@]}" true 2>/dev/null || run "${words[@]}" "${rest[@]}"
done
unbound "neither numactl nor taskset can bind to the cores $cpus"
