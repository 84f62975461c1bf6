#!/usr/bin/env bash
# Run a command as N Horovod ranks, by Open MPI's mpirun: for a Horovod built with MPI, as in NVIDIA's containers.
#
#   scripts/mpirun.sh -np 16 [-H node1:8,node2:8] [flags] -- python -m bert.pretrain ...
#
#   -np N                         ranks in all
#   -H HOST:RANKS,...             hosts; each has this folder, and the virtual environment, under the same path
#   --ssh-port PORT               port of the other hosts' sshd, which must let this host in without a password
#   --network-interfaces NAMES    that MPI and NCCL use, as eth0
#   -x NAME,...                   variables that the ranks need besides those that are passed on: docs/launch.md
#   --bind                        each rank on its share of the cores beside its GPU
#   --dry-run                     print the settings and the command
#
# The command is the one that Horovod documents (docs/mpi.rst). Exit codes, errors and signals are as with launch.sh.
set -euo pipefail

exec "$(dirname "$0")/launcher.sh" mpirun "$@"
