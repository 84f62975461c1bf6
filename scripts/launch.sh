#!/usr/bin/env bash
# Run a command as N Horovod ranks: on this machine, or by horovodrun on several.
#
#   scripts/launch.sh -np 8 [flags] -- python -m bert.pretrain ...                       on this machine
#   scripts/launch.sh -np 16 -H node1:8,node2:8 [flags] -- python -m bert.pretrain ...   on several
#
#   -np N                         ranks in all
#   -H HOST:RANKS,...             hosts; each has this folder, and the virtual environment, under the same path
#   --ssh-port PORT               port of the other hosts' sshd, which must let this host in without a password
#   --network-interfaces NAMES    by which ranks find each other; horovodrun searches for them if they are not given
#   -x NAME,...                   variables that the ranks need besides those that are passed on: docs/launch.md
#   --bind                        each rank on its share of the cores beside its GPU
#   --dry-run                     print the settings and the command
#
# The exit status is the failing rank's. An error that all ranks report is printed once, without horovodrun's
# traceback. Each rank gets its share of the cores. SIGTERM, SIGINT (Ctrl-C), SIGHUP and SIGUSR1 reach the ranks, which
# save and end with 75; a second signal ends them at once. Standard output and standard error stay apart.
set -euo pipefail

exec "$(dirname "$0")/launcher.sh" launch "$@"
