#!/usr/bin/env bash
# The second half of scripts/launch.sh: `supervise.sh N horovodrun ... scripts/rank.sh COMMAND...` and what comes of it.
set -euo pipefail

ranks=$1 && shift
BERT_LAUNCH=$(mktemp -d)
export BERT_LAUNCH BERT_EXIT_FILE=$BERT_LAUNCH/codes # scripts/rank.sh and bert.cli.main add a status to it, one a line
trap 'rm -rf "$BERT_LAUNCH"' EXIT
touch "$BERT_LAUNCH"/{ranks,codes,own} && mkfifo "$BERT_LAUNCH"/{out,err}

noise=$("$(dirname "$0")/quiet.sh" --pattern)

relay() { # drops the rank from the front of each line; horovodrun's own lines have none and are put aside
    trap '' TERM INT HUP
    local line && local -A seen=()
    while IFS= read -r line || [ -n "$line" ]; do
        if [[ ! $line =~ ^\[[0-9,]+\]\<std(out|err)\>:(.*)$ ]]; then
            printf '%s\n' "$line" >>"$BERT_LAUNCH/own"
            continue
        fi
        line=${BASH_REMATCH[2]}
        [[ ! $line =~ $noise && -z ${seen[x$line]:-} ]] || continue
        [[ $line != "error: "* ]] || seen[x$line]=yes
        printf '%s\n' "$line"
    done
    [ ${#seen[@]} = 0 ] || touch "$BERT_LAUNCH/reported"
}

# shellcheck disable=SC2329 # called by the trap below
stop() { # the first signal asks the ranks, who save; a second one, or one before all have started, ends horovodrun
    if [ -z "${stopping:-}" ] && [ "$(wc -l <"$BERT_LAUNCH/ranks")" = "$ranks" ]; then
        xargs kill -TERM <"$BERT_LAUNCH/ranks" 2>/dev/null || true
    else
        kill -TERM "$runner" 2>/dev/null || true
    fi
    stopping=yes
}

relay <"$BERT_LAUNCH/out" & relays=$!
relay <"$BERT_LAUNCH/err" >&2 & relays+=" $!"
# A session of its own keeps Ctrl-C from horovodrun, which would kill the ranks; --pdeathsig ends it if we are killed.
setsid setpriv --pdeathsig TERM "$@" >"$BERT_LAUNCH/out" 2>"$BERT_LAUNCH/err" & runner=$!
trap stop TERM INT HUP
while status=0 && { wait "$runner" || status=$?; } && kill -0 "$runner" 2>/dev/null; do :; done
for relay in $relays; do while kill -0 "$relay" 2>/dev/null; do wait "$relay" || true; done; done

code=$(grep -m1 -xE '[2345]|75' "$BERT_LAUNCH/codes" || head -n1 "$BERT_LAUNCH/codes")
if [ -z "$code" ]; then
    [ "$status" = 0 ] || cat "$BERT_LAUNCH/own" >&2
elif [ "$code" -gt 128 ]; then
    [ "$code" != 137 ] || hint=" ; if nobody sent it, memory ran out: use a smaller batch"
    echo "error: a rank was ended by SIG$(kill -l "$code")${hint:-}" >&2
elif [ ! -f "$BERT_LAUNCH/reported" ]; then
    echo "error: a rank ended with status $code ; its own words are above" >&2
fi
exit "${code:-$status}"
