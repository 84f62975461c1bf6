#!/usr/bin/env bash
# Horovod's and NCCL's settings as flags, the same on all launchers, which source this: each sets one variable of the
# environment. docs/launch.md says when to touch which.
set -euo pipefail

knobs() { # 1: a switch; TEXT: as it is; N: a whole number; MS: a number; MIB: a whole number, which is set in bytes
    cat <<'END'
  --fusion-mb               HOROVOD_FUSION_THRESHOLD=MIB      gradients in one collective (128; 0: each alone)
  --cycle-ms                HOROVOD_CYCLE_TIME=MS             how long Horovod waits for more of them (1)
  --cache-capacity          HOROVOD_CACHE_CAPACITY=N          tensors whose agreement is remembered (1024; 0: none)
  --hierarchical-allreduce  HOROVOD_HIERARCHICAL_ALLREDUCE=1  sum within each node, then between nodes
  --hierarchical-allgather  HOROVOD_HIERARCHICAL_ALLGATHER=1  the same for what is gathered
  --torus-allreduce         HOROVOD_TORUS_ALLREDUCE=1         the same with NCCL between nodes, too
  --autotune                HOROVOD_AUTOTUNE=1                try values of the above while training
  --autotune-log            HOROVOD_AUTOTUNE_LOG=TEXT         the file that names what it tried
  --nccl-streams            HOROVOD_NUM_NCCL_STREAMS=N        collectives in flight on a GPU (1)
  --gloo-timeout            HOROVOD_GLOO_TIMEOUT_SECONDS=N    seconds that Gloo waits for a rank (30)
  --start-timeout           HOROVOD_START_TIMEOUT=N           seconds that horovodrun waits for all hosts (30)
  --horovod-log             HOROVOD_LOG_LEVEL=TEXT            trace, debug, info, warning, error or fatal
  --nccl-debug              NCCL_DEBUG=TEXT                   VERSION, WARN, INFO or TRACE
  --nccl-ifname             NCCL_SOCKET_IFNAME=TEXT           network interfaces, as eth0 or ^docker0,lo
  --nccl-ib-hca             NCCL_IB_HCA=TEXT                  InfiniBand adapters, as mlx5_0,mlx5_1
  --nccl-ib-disable         NCCL_IB_DISABLE=1                 TCP even where there is InfiniBand
  --nccl-p2p-disable        NCCL_P2P_DISABLE=1                no direct copies between GPUs
  --nccl-gdr-level          NCCL_NET_GDR_LEVEL=TEXT           LOC, PIX, PXB, PHB or SYS: how near, for GPUDirect RDMA
  --nccl-algo               NCCL_ALGO=TEXT                    Ring, Tree, CollnetChain, NVLS ...
  --nccl-proto              NCCL_PROTO=TEXT                   LL, LL128, Simple
  --nccl-min-channels       NCCL_MIN_NCHANNELS=N              at least so many parallel channels
  --nccl-max-channels       NCCL_MAX_NCHANNELS=N              at most so many
END
}

# shellcheck disable=SC2034 # launchers.sh reads `taken`
knob() { # FLAG [VALUE]: sets the flag's variable, and `taken` to the words used up
    local flag variable kind value
    while IFS='= ' read -r flag variable kind _; do [ "$flag" != "$1" ] || break; done < <(knobs)
    [ "$flag" = "$1" ] || usage "unknown flag $1"
    value=1
    [ "$kind" = 1 ] || value=${2:-} taken=2
    case $kind in
    MS) [[ $value =~ ^[0-9]+(\.[0-9]+)?$ ]] || usage "$1 wants a number, not '$value'" ;;
    N | MIB) [[ $value =~ ^[0-9]{1,9}$ ]] || usage "$1 wants a whole number, not '$value'" ;;
    esac
    [ "$kind" != MIB ] || value=$((10#$value << 20))
    export "$variable=$value"
}
