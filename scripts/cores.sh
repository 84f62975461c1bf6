#!/usr/bin/env bash
# `cores.sh NODE PART PARTS`: one of PARTS equal shares, counted from 0, of a NUMA node's cores, for bind.sh: how many
# cores, and the numbers of their CPUs. Only what this process may use is shared out; a core goes with all its threads.
set -euo pipefail

system=${BERT_SYS:-/sys}/devices/system
numbers() { for part in ${1//,/ }; do seq "${part%-*}" "${part#*-}"; done | sort; } # 0-2,8 as 0 1 2 8, one a line

allowed=$(taskset --pid --cpu-list $$)
shared=$(comm -12 <(numbers "${allowed##*: }") <(numbers "$(cat "$system/node/node$1/cpulist")"))
threads=$(for cpu in $shared; do # each as CORE CPU, where the first thread stands for the core
    siblings=$(cat "$system/cpu/cpu$cpu/topology/thread_siblings_list" 2>/dev/null || echo "$cpu")
    echo "${siblings%%[-,]*} $cpu"
done | sort -n)
mapfile -t cores < <(cut -d' ' -f1 <<<"$threads" | uniq)
first=$((${#cores[@]} * $2 / $3)) end=$((${#cores[@]} * ($2 + 1) / $3))
[ -n "$shared" ] && [ ${#cores[@]} -ge "$3" ] || exit 1
echo $((end - first)) "$(awk -v low="${cores[first]}" -v high="${cores[end - 1]}" '
    $1 >= low && $1 <= high { print $2 }' <<<"$threads" | sort -n | paste -sd,)"
