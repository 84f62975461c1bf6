#!/usr/bin/env bash
# Builds the image.
#
#   scripts/docker_build.sh [--target ngc|cpu] [--base IMAGE] [--tag NAME] [--dry-run]
set -euo pipefail

target=ngc tag=bert arguments=() run=()
while [ $# -gt 0 ]; do
    case $1 in
    --target | --base | --tag)
        [ $# -gt 1 ] || { echo "error: $1 wants a value" >&2 && exit 2; }
        case $1 in
        --target) target=$2 ;;
        --base) arguments=(--build-arg "BASE=$2") ;;
        --tag) tag=$2 ;;
        esac
        shift 2
        ;;
    --dry-run) run=(printf '%q ') && shift ;;
    *) echo "error: scripts/docker_build.sh: unknown argument $1 ; see the head of the file" >&2 && exit 2 ;;
    esac
done

cd "$(dirname "$0")/.."
"${run[@]}" docker build --target "$target" --tag "$tag:$target" "${arguments[@]}" .
