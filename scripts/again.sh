#!/usr/bin/env bash
# Runs a command again when it was cut down: a rank killed, a machine gone. Training then resumes by itself.
#
#   scripts/again.sh N COMMAND...        # scripts/again.sh 3 scripts/launch.sh -np 8 -- python -m bert.pretrain ...
#
# At most N times; what ends with a documented status (0 done, 2 to 5 an error of its own, 75 stopped on request) is not
# repeated, nor is what ended after a signal to stop, which is passed on.
set -euo pipefail

if ! [[ ${1:-} =~ ^[0-9]+$ ]] || [ $# -lt 2 ]; then
    echo "error: $0: '${1:-}' is no number, or there is no command ; usage: $0 N COMMAND..." >&2
    exit 2
fi
most=$1 && shift
# shellcheck disable=SC2329 # called by the traps below
stop() {
    stopping=$1
    [ -z "$child" ] || kill -s "$1" "$child" 2>/dev/null || true
}
for name in TERM INT USR1 HUP; do
    # shellcheck disable=SC2064 # the name is meant as it is now
    trap "stop $name" $name
done
for ((round = 1; ; round++)); do
    began=$SECONDS child=''
    "$@" &
    child=$!
    [ -z "${stopping:-}" ] || stop "$stopping" # it came before there was anyone to tell
    while { wait $child || true; } && kill -0 $child 2>/dev/null; do :; done
    status=0 && { wait $child || status=$?; } # again: the first may have ended for a signal
    case $status in 0 | [2-5] | 75) exit "$status" ;; esac
    [ -z "${stopping:-}" ] && [ "$round" -le "$most" ] || exit "$status"
    echo "warning: ended with status $status after $((SECONDS - began)) s; again, $round of $most" >&2
done
