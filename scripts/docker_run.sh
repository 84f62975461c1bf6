#!/usr/bin/env bash
# Run a command in the image as the calling user, with the host's work folder, and the folder of --data read-only.
#
#   scripts/docker_run.sh [--image NAME] [--gpus all|none] [--cluster] [--workdir DIR] [--data DIR] [--shm-size SIZE]
#       [--dry-run] -- COMMAND...
#   scripts/docker_run.sh --data ~/corpus -- make pretrain WIKIPEDIA=/data/enwiki.xml.bz2 RECIPE=bert_large NP=8
#
#   --cluster         for one of several nodes: use the host's network and its InfiniBand devices, if it has any
#   --shm-size SIZE   shared memory, in which NCCL's ranks exchange data (1g)
#
# The container gets no capability and no way to gain privileges; with --cluster it may pin memory.
#
# ENGINE=podman uses podman instead of docker, also as a user who is not root. It finds GPUs by the file that
# `nvidia-ctk cdi generate` writes.
set -euo pipefail

image=bert:cuda gpus=all cluster='' shm=1g workdir=${BERT_WORKDIR:-workdir} mounts=() run=()
usage() {
    echo "error: scripts/docker_run.sh: $1 ; see the head of the file" >&2
    exit 2
}
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
    --image | --gpus | --workdir | --data | --shm-size)
        [ $# -gt 1 ] || usage "$1 needs a value"
        case $1 in
        --image) image=$2 ;;
        --gpus) gpus=$2 ;;
        --workdir) workdir=$2 ;;
        --shm-size)
            [[ $2 =~ ^[1-9][0-9]*[kmg]?$ ]] || usage "--shm-size $2: it is a number with k, m or g, as 1g"
            shm=$2
            ;;
        --data)
            [ -d "$2" ] || usage "--data $2: no such folder"
            mounts=(--volume "$(realpath "$2"):/data:ro")
            ;;
        esac
        shift 2
        ;;
    --cluster) cluster=yes && shift ;;
    --dry-run) run=(printf '%q ') && shift ;;
    *) usage "unknown argument $1" ;;
    esac
done
[ $# -gt 1 ] || usage "no command after --"
shift

engine=${ENGINE:-docker} identity=(--user "$(id -u):$(id -g)") memlock=-1
[[ $engine =~ ^(docker|podman)$ ]] || usage "ENGINE=$engine: it is docker or podman"
gpu=(--gpus "$gpus")
if [ "$engine" = podman ]; then
    [[ $gpus =~ ^(all|none)$ ]] || usage "--gpus $gpus: with podman it is all or none"
    gpu=(--device nvidia.com/gpu=all) # --gpus is accepted by podman 4 and has no effect
    if [ "$(id -u)" != 0 ]; then
        identity=(--userns=keep-id) # any other number in the container is one of the user's subordinate ones outside
        # Without root no limit can be raised.
        memlock=$(ulimit -Hl) && [ "$memlock" = unlimited ] && memlock=-1 || memlock=$((memlock * 1024))
        [ "$memlock" = -1 ] || [ "$gpus" = none ] ||
            echo "warning: $((memlock >> 20)) MiB may be pinned, which is little for NCCL ; raise memlock in" \
                "/etc/security/limits.conf" >&2
    fi
fi
devices=(--security-opt no-new-privileges --cap-drop ALL)
[ "$gpus" = none ] || devices+=("${gpu[@]}")
if [ -n "$cluster" ]; then
    devices+=(--network=host --cap-add=IPC_LOCK) # InfiniBand pins the memory that it reads and writes
    for device in "${DEVICES:-/dev}/infiniband" "${DEVICES:-/dev}/gdrdrv"; do
        [ ! -e "$device" ] || devices+=(--device="$device")
    done
fi
terminal=()
[ ! -t 0 ] || [ ! -t 1 ] || terminal=(--tty --interactive)
[ ${#run[@]} -gt 0 ] || mkdir -p "$workdir" # docker would make it as root
# Ranks of one machine exchange gradients through shared memory, which NCCL pins: hence shm-size, memlock and stack. All
# of them are in this container, so the host's shared memory is not needed.
"${run[@]}" "$engine" run --rm --init "${terminal[@]}" "${devices[@]}" \
    --shm-size="$shm" --ulimit memlock="$memlock" --ulimit stack=67108864 "${identity[@]}" --env HOME=/tmp \
    --volume "$(realpath -m "$workdir"):/workdir" "${mounts[@]}" "$image" "$@"
