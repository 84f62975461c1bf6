#!/usr/bin/env bash
# Runs a command as N Horovod ranks on this machine; one rank runs plainly, without horovodrun.
#
#   scripts/launch.sh -np N [--dry-run] [horovodrun options...] -- python -m bert.pretrain ...
#
# What horovodrun alone lacks: the exit status is the failing rank's, an error that all ranks report is one line without
# a launcher's traceback, each rank gets its share of the cores, and SIGTERM or Ctrl-C reach the ranks, which then save
# and end with 75; a second signal ends them at once. Standard output and standard error stay apart.
set -euo pipefail

usage() {
    echo "error: $0: $1 ; usage: $0 -np N [--dry-run] [horovodrun options...] -- COMMAND..." >&2
    exit 2
}
ranks='' dry_run='' options=()
while [ "${1:---}" != -- ]; do
    case $1 in
    -np)
        [ $# -gt 1 ] || usage "-np wants the number of ranks"
        ranks=$2
        shift
        ;;
    --dry-run) dry_run=yes ;;
    -H* | --host* | -host*) usage "$1: it starts ranks on this machine only" ;;
    *) options+=("$1") ;;
    esac
    shift
done
[[ $ranks =~ ^[1-9][0-9]*$ ]] || usage "-np wants the number of ranks, not '$ranks'"
[ $# -gt 1 ] || usage "there is no command after --"
shift

root=$(cd "$(dirname "$0")/.." && pwd)
venv=${VENV:-$root/.venv}
[ ! -x "$venv/bin/python" ] || export PATH="$venv/bin:$PATH"
threads=$(($(nproc) / ranks)) && [ "$threads" -gt 0 ] || threads=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$threads} TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
export TF_NUM_INTRAOP_THREADS=${TF_NUM_INTRAOP_THREADS:-$OMP_NUM_THREADS}
export TF_NUM_INTEROP_THREADS=${TF_NUM_INTEROP_THREADS:-$OMP_NUM_THREADS}

command -v mpirun >/dev/null || options+=(--gloo) # spares horovodrun six seconds of finding that out
command=("$@")
[ "$ranks" = 1 ] || command=(horovodrun -np "$ranks" --disable-cache "${options[@]}" "$root/scripts/rank.sh" "$@")
if [ -n "$dry_run" ]; then
    env | grep -E '^(OMP_NUM|TF_CPP|TF_NUM|HOROVOD|NCCL)_' | LC_ALL=C sort
    printf '%q ' "${command[@]}"
    echo
    exit 0
fi
[ "$ranks" != 1 ] || exec "$root/scripts/quiet.sh" "${command[@]}"
command -v horovodrun >/dev/null || usage "horovodrun is not installed: run make setup"
exec "$root/scripts/supervise.sh" "$ranks" "${command[@]}"
