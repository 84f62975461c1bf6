#!/usr/bin/env bash
# One rank of scripts/launch.sh or mpirun.sh: runs the command with its share of this host's cores, passes SIGTERM on to
# it, and tells the launcher where it runs and how it ended, in lines on standard error that begin with $BERT_LAUNCH.
#
# horovodrun and mpirun stop the other ranks with SIGSTOP or SIGKILL as soon as one ends with a status other than 0. A
# rank that stopped on request (75) is no failure: it ends with 0 here, so that the others can finish saving.
set -euo pipefail

# shellcheck source=scripts/launchers.sh
. "$(dirname "$0")/launchers.sh"
trap '[ -z "${child:-}" ] || kill -TERM "$child" 2>/dev/null || true' TERM
beside=${HOROVOD_LOCAL_SIZE:-${OMPI_COMM_WORLD_LOCAL_SIZE:-1}} cores=$(nproc)
threads $((cores > beside ? cores / beside : 1))
echo "$BERT_LAUNCH runs $(uname -n) $$" >&2
"$@" &
child=$!
while { wait "$child" || true; } 2>/dev/null && kill -0 "$child" 2>/dev/null; do :; done
status=0 && { wait "$child" || status=$?; } 2>/dev/null # again: the first may have ended for a signal
[ "$status" = 0 ] || echo "$BERT_LAUNCH ended $status" >&2
[ "$status" = 75 ] || exit "$status"
