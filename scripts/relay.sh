#!/usr/bin/env bash
# `relay.sh NOTES`: one stream of all ranks, for supervise.sh. The rank goes from the front of each line, what a rank
# reports to us goes into NOTES/runs and NOTES/ended, an error that several report is shown once. The launcher's own
# lines have no rank; they go into NOTES/own.
set -euo pipefail

trap '' TERM INT HUP # the ranks end first
noise=$("$(dirname "$0")/quiet.sh" --pattern)
tag='^\[[0-9]+(\]<std(out|err)>:|,[0-9]+\]<std(out|err)>: ?)' # horovodrun's; Open MPI's, which from 5 adds a space
declare -A seen=()
while IFS= read -r line || [ -n "$line" ]; do
    if [[ ! $line =~ $tag(.*)$ ]]; then
        printf '%s\n' "$line" >>"$1/own"
        continue
    fi
    line=${BASH_REMATCH[-1]}
    if [[ $line =~ ^(.*)"$BERT_LAUNCH "(runs|ended)" "(.*)$ ]]; then
        echo "${BASH_REMATCH[3]}" >>"$1/${BASH_REMATCH[2]}"
        line=${BASH_REMATCH[1]}
        [ -n "$line" ] || continue
    fi
    [[ ! $line =~ $noise|^(Terminated|Killed)$ && -z ${seen[x$line]:-} ]] || continue # so say horovodrun's shells
    [[ $line != "error: "* ]] || seen[x$line]=yes
    printf '%s\n' "$line"
done
[ ${#seen[@]} = 0 ] || touch "$1/reported"
