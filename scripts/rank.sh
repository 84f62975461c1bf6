#!/usr/bin/env bash
# One rank of scripts/launch.sh: runs the command, passes SIGTERM on to it and notes its exit status.
#
# horovodrun stops the other ranks with SIGSTOP or SIGKILL as soon as one ends with a status other than 0. A rank that
# stopped on request (75) is no failure: it ends with 0 here, so that the others can finish saving.
set -euo pipefail

trap '[ -z "${child:-}" ] || kill -TERM "$child" 2>/dev/null || true' TERM
echo $$ >>"$BERT_LAUNCH/ranks"
"$@" &
child=$!
while status=0 && { wait "$child" || status=$?; } 2>/dev/null && kill -0 "$child" 2>/dev/null; do :; done
[ "$status" = 0 ] || echo "$status" >>"$BERT_EXIT_FILE"
[ "$status" = 75 ] || exit "$status"
