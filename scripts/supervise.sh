#!/usr/bin/env bash
# The second half of scripts/launch.sh and mpirun.sh: `supervise.sh N horovodrun ... scripts/rank.sh COMMAND...` runs
# that, passes on what the ranks say and the signals that it gets, and ends with the status of the rank that failed.
set -euo pipefail

ranks=$1 && shift
scripts=$(dirname "$0") host=$(uname -n) notes=$(mktemp -d)
export BERT_LAUNCH="@launch-$host-$$" # begins the lines in which rank.sh and bert.cli.main report to relay.sh
trap 'rm -rf "$notes"' EXIT
touch "$notes"/{runs,ended,own} && mkfifo "$notes"/{out,err}

# shellcheck disable=SC2329 # called by the trap below
stop() { # the first signal asks the ranks of this host, whereupon all save; if it cannot, or a second time, it ends all
    local here && here=$(awk -v host="$host" '$1 == host { print $2 }' "$notes/runs")
    if [ -z "${stopping:-}" ] && [ -n "$here" ] && [ "$(wc -l <"$notes/runs")" = "$ranks" ]; then
        xargs kill -TERM <<<"$here" 2>/dev/null || true
    else
        kill -TERM "${runner:-$!}" 2>/dev/null || true # relays take no notice
    fi
    stopping=yes
}

"$scripts/relay.sh" "$notes" <"$notes/out" & relays=$!
trap stop TERM INT HUP
"$scripts/relay.sh" "$notes" <"$notes/err" >&2 & relays+=" $!"
# A session of its own keeps Ctrl-C from horovodrun, which would kill the ranks; --pdeathsig ends it if we are killed.
setsid setpriv --pdeathsig TERM "$@" >"$notes/out" 2>"$notes/err" & runner=$!
[ -z "${stopping:-}" ] || kill -TERM "$runner" 2>/dev/null || true # asked for before it ran
while { wait "$runner" || true; } && kill -0 "$runner" 2>/dev/null; do :; done
status=0 && { wait "$runner" || status=$?; } # again: the first may have ended for a signal
for relay in $relays; do while kill -0 "$relay" 2>/dev/null; do wait "$relay" || true; done; done

# The rank that failed: one with a documented status, or else one that a signal ended, but for those that were told to
# end (143), or else the first of the others, which may have noticed no more than that a rank was gone.
code=$(grep -m1 -xE '[2345]|75' "$notes/ended" || grep -m1 -vxE '.{1,2}|1[01].|12[0-8]|143' "$notes/ended" ||
    grep -m1 -vx 143 "$notes/ended" || head -n1 "$notes/ended")
unreachable=$(sed -n 's/^ssh not successful for host \(.*\):$/\1/p' "$notes/own" | sort | paste -sd' ')
if [ -z "$code" ] && [ -n "$unreachable" ]; then
    echo "error: no ssh without a password to $unreachable ; try it as: ssh ${unreachable%% *} true" >&2
    code=2
elif [ -z "$code" ] && [ -n "${stopping:-}" ]; then
    echo "error: ended before the ranks saved, which takes a rank on $host, all ranks running, and no second signal ;" \
        "the same command goes on from the last checkpoint" >&2
elif [ -z "$code" ]; then
    [ "$status" = 0 ] || cat "$notes/own" >&2
elif [ "$code" -gt 128 ]; then
    [ "$code" != 137 ] || hint=" ; if nobody sent it, memory ran out: use a smaller batch"
    echo "error: a rank was ended by SIG$(kill -l "$code")${hint:-}" >&2
elif [ ! -f "$notes/reported" ]; then
    echo "error: a rank ended with status $code ; its own words are above" >&2
fi
exit "${code:-$status}"
