#!/usr/bin/env bash
# Runs a command as N Horovod ranks, by Open MPI's mpirun: for a Horovod built with MPI, as in NVIDIA's containers.
#
#   scripts/mpirun.sh -np 16 [-H node1:8,node2:8] [flags] -- python -m bert.pretrain ...
#
#   -np N                         ranks in all
#   -H HOST:RANKS,...             where; each host has this folder, and the virtual environment, under the same path
#   --ssh-port PORT               of the other hosts' sshd, which must let this host in without a password
#   --network-interfaces NAMES    that MPI and NCCL use, as eth0
#   --bind                        each rank on its share of the cores beside its GPU: scripts/bind.sh
#   --dry-run                     prints the settings and the command
#
# The command is the one that Horovod documents (docs/mpi.rst); exit codes, errors and signals are as with launch.sh.
set -euo pipefail

# shellcheck source=scripts/launchers.sh
. "$(cd "$(dirname "$0")" && pwd)/launchers.sh"
parse "-np -H --ssh-port --network-interfaces" "$@"
run=(mpirun --allow-run-as-root --tag-output -np "${given[-np]:-}")
[ -z "${given[-H]:-}" ] || run+=(-H "${given[-H]}")
# Open MPI binds a rank to one core unless told not to; what matters travels by NCCL, the rest by TCP.
run+=(--bind-to none --map-by slot --mca pml ob1 --mca btl ^openib)
[ -z "${given[--ssh-port]:-}" ] || run+=(--mca plm_rsh_args "-p ${given[--ssh-port]}")
if [ -n "${given[--network-interfaces]:-}" ]; then
    run+=(--mca btl_tcp_if_include "${given[--network-interfaces]}")
    export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-${given[--network-interfaces]}}
fi
export_these='^(BERT|HOROVOD|NCCL|OMP|TF|XLA)_|^(LD_LIBRARY_PATH|PATH|PYTHONPATH|VENV)$'
for name in $(compgen -e | grep -E "$export_these" | LC_ALL=C sort); do run+=(-x "$name"); done
[ -n "$dry_run" ] || need_mpi
start "${run[@]}" -x BERT_LAUNCH
