#!/usr/bin/env bash
# What launch.sh, mpirun.sh and slurm.sh share, sourced by them: reading flags, showing a command, starting ranks.
set -euo pipefail

scripts=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=scripts/knobs.sh
. "$scripts/knobs.sh"
venv=${VENV:-${scripts%/scripts}/.venv}
[ -n "${CONTAINER:-}" ] || [ ! -x "$venv/bin/python" ] || export PATH="$venv/bin:$PATH" # a container has its own
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2} GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}
# The launcher's own flags with values, what stands before each rank's command, whether to show only, the command:
declare -A given=() && bind=() dry_run='' rest=()
usage() { echo "error: $0: $1 ; see $0 --help" >&2 && exit 2; }

parse() { # OWN WORDS...: takes flags up to the command, after `--` or at a word without a dash; OWN have a value
    local own=$1 && shift
    while [[ ${1:-} == -* && $1 != -- ]]; do
        taken=1
        case $1 in
        --bind) bind=("$scripts/bind.sh") ;;
        --dry-run) dry_run=yes ;;
        -h | --help) sed -n '2,/^set -/s/^# \{0,1\}//p' "$0" && echo && knobs && exit 0 ;;
        *) if [[ " $own " == *" $1 "* ]]; then given[$1]=${2:-} taken=2; else knob "$@"; fi ;;
        esac
        [ $# -ge "$taken" ] || usage "$1 wants a value"
        shift "$taken"
    done
    [ "${1:-}" != -- ] || shift
    [ $# -gt 0 ] || usage "there is no command"
    rest=("$@")
}

show() { # COMMAND...: prints the settings and the command, as --dry-run does
    env | grep -E '^(OMP_NUM|TF_CPP|TF_NUM|HOROVOD|NCCL)_' | LC_ALL=C sort || true
    printf '%q ' "$@" && echo
}

threads() { # N: a process uses so many, unless the environment says otherwise
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$1}
    export TF_NUM_INTRAOP_THREADS=${TF_NUM_INTRAOP_THREADS:-$OMP_NUM_THREADS}
    export TF_NUM_INTEROP_THREADS=${TF_NUM_INTEROP_THREADS:-$OMP_NUM_THREADS}
}

need_mpi() { # a Horovod in the virtual environment must have it, else each rank would take itself for the only one
    local library=("$venv"/lib/python3*/site-packages/horovod/tensorflow/mpi_lib*.so)
    [ ! -e "${library[0]}" ] || ldd "${library[0]}" | grep -q libmpi || usage "the Horovod in $venv has no MPI"
}

start() { # RUNNER...: the ranks, by the command that takes theirs behind it; one rank on this host needs none
    local ranks=${given[-np]:-} run=("$@" "${bind[@]}" "$scripts/rank.sh" "${rest[@]}")
    [[ $ranks =~ ^[1-9][0-9]*$ ]] || usage "-np wants the number of ranks, not '$ranks'"
    local first=("$scripts/supervise.sh" "$ranks")
    if [ "$ranks" = 1 ] && [ -z "${given[-H]:-}" ]; then
        run=("${bind[@]}" "${rest[@]}") first=("$scripts/quiet.sh")
        [ ${#bind[@]} -gt 0 ] || threads "$(nproc)"
    fi
    [ -z "$dry_run" ] || { show "${run[@]}" && exit 0; }
    command -v "${run[0]}" >/dev/null || usage "no ${run[0]} here: make setup brings horovodrun, an MPI its mpirun"
    exec "${first[@]}" "${run[@]}"
}
