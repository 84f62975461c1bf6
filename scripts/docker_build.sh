#!/usr/bin/env bash
# Build an image; with --save, write it into a file too.
#
#   scripts/docker_build.sh [--target cuda|ngc|cpu] [--base IMAGE] [--digest SHA256] [--tag NAME] [--save FILE]
#       [--dry-run]
#
#   --base IMAGE      base image instead of the Dockerfile's
#   --digest SHA256   sha256:..., the digest that the base image must have; docs/containers.md says how to find it
#   --save FILE       .tar: an archive for `docker load`; .sif: for Apptainer; .sqsh: for enroot and pyxis
#
# ENGINE=podman or buildah builds with that instead of docker. Exit codes: 2 usage, else the failing command's.
set -euo pipefail

target=cuda tag=bert base='' digest='' save='' run=() engine=${ENGINE:-docker}
usage() {
    echo "error: scripts/docker_build.sh: $1 ; see the head of the file" >&2
    exit 2
}
show() { printf '%q ' "$@" && echo; }
while [ $# -gt 0 ]; do
    case $1 in
    --target | --base | --digest | --tag | --save)
        [ $# -gt 1 ] || usage "$1 needs a value"
        declare "${1#--}=$2"
        shift 2
        ;;
    --dry-run) run=(show) && shift ;;
    *) usage "unknown argument $1" ;;
    esac
done
[[ $target =~ ^(cuda|ngc|cpu)$ ]] || usage "--target $target: it is cuda, ngc or cpu"
[[ -z $digest || $digest =~ ^sha256:[0-9a-f]{64}$ ]] || usage "--digest $digest: it is sha256: and 64 digits of 0-9a-f"
[[ -z $save || $save =~ \.(tar|sif|sqsh)$ ]] || usage "--save $save: it ends in .tar, .sif or .sqsh"
[[ $engine =~ ^(docker|podman|buildah)$ ]] || usage "ENGINE=$engine: it is docker, podman or buildah"
tools=("$engine")
[[ $save != *.sif ]] || tools+=(apptainer)
[[ $save != *.sqsh ]] || tools+=(enroot)
[ -z "$save" ] || [ ! -e "$save" ] || usage "--save $save exists already"
for tool in "${tools[@]}"; do
    [ ${#run[@]} -gt 0 ] || command -v "$tool" >/dev/null || usage "$tool is not installed, or not in PATH"
done
[ -z "$save" ] || save=$(realpath -m "$save")

cd "$(dirname "$0")/.."
image=$tag:$target
"${run[@]}" "$engine" build --target "$target" --tag "$image" ${base:+--build-arg "${target^^}_BASE=$base"} \
    ${digest:+--build-arg "${target^^}_DIGEST=@$digest"} .
archive=${save%.*}.tar
case $engine in
docker | podman) pack=("$engine" save --output "$archive" "$image") from=$engine ;;
buildah) pack=(buildah push "$image" "docker-archive:$archive:$image") from=podman ;; # it shares them
esac
[ "$from" != docker ] || from=dockerd
case $save in
*.tar) "${run[@]}" "${pack[@]}" ;;
*.sif) "${run[@]}" "${pack[@]}" && "${run[@]}" apptainer build "$save" "docker-archive:$archive" &&
    "${run[@]}" rm "$archive" ;;
*.sqsh) "${run[@]}" enroot import --output "$save" "$from://$image" ;;
esac
