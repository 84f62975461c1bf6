#!/usr/bin/env bash
# Runs a command as N Horovod ranks, by horovodrun; one rank on this machine runs plainly, without it.
#
#   scripts/launch.sh -np 8 [flags] -- python -m bert.pretrain ...                       on this machine
#   scripts/launch.sh -np 16 -H node1:8,node2:8 [flags] -- python -m bert.pretrain ...   on several
#
#   -np N                         ranks in all
#   -H HOST:RANKS,...             where; each host has this folder, and the virtual environment, under the same path
#   --ssh-port PORT               of the other hosts' sshd, which must let this host in without a password
#   --network-interfaces NAMES    that ranks find each other by; horovodrun looks for them if they are not given
#   --bind                        each rank on its share of the cores beside its GPU: scripts/bind.sh
#   --dry-run                     prints the settings and the command
#
# What horovodrun alone lacks: the exit status is the failing rank's, an error that all ranks report is one line without
# a launcher's traceback, each rank gets its share of the cores, and SIGTERM or Ctrl-C reach the ranks, which then save
# and end with 75; a second signal ends them at once. Standard output and standard error stay apart.
set -euo pipefail

# shellcheck source=scripts/launchers.sh
. "$(cd "$(dirname "$0")" && pwd)/launchers.sh"
parse "-np -H --ssh-port --network-interfaces" "$@"
# Gloo is said, for a Horovod that has MPI too would start the ranks by mpirun, without what is promised above.
run=(horovodrun -np "${given[-np]:-}" --disable-cache)
for flag in -H --ssh-port --network-interfaces; do [ -z "${given[$flag]:-}" ] || run+=("$flag" "${given[$flag]}"); done
run+=(--gloo)
# horovodrun sets this to the interfaces that it found; a later word wins.
[ -z "${NCCL_SOCKET_IFNAME:-}" ] || run+=(env "NCCL_SOCKET_IFNAME=$NCCL_SOCKET_IFNAME")
start "${run[@]}"
