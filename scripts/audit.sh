#!/usr/bin/env bash
# Compare all packages that set-up installs, for every device and Python, and Horovod with the published advisories.
#
#   scripts/audit.sh        # make audit
#
# Exit codes: 0 none has a known vulnerability, 3 the advisories could not be fetched for all of them, 4 some have one.
set -euo pipefail

cd "$(dirname "$0")/.."
failed() { echo "error: the audit is not complete: $1 ; repeat it with a network" >&2 && exit 3; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    sed -nE 's/^([a-z0-9][a-z0-9._-]*)(==[^ ;\\]+).*/\1\2/p' requirements/*.lock
    sed -nE 's/.* version=([0-9.]+)$/horovod==\1/p' scripts/install_horovod.sh
} | sort -u >"$work/all"
# One list cannot have two versions of a package, which the locks have for different Pythons.
awk -F== -v folder="$work" '{ print >(folder "/list-" ++seen[$1]) }' "$work/all"

scripts/extra_venv.sh audit true || failed "pip-audit could not be installed, the message is above"
found=''
for list in "$work"/list-*; do
    # Without --strict it ends with 0 where its service knows none of the packages. It prints a table of what it found.
    .venv-audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement "$list" \
        >"$work/found" 2>"$work/log" || [ -s "$work/found" ] || failed "$(tail -n1 "$work/log")"
    [ ! -s "$work/found" ] || found=yes
    cat "$work/found"
done
if [ -n "$found" ]; then
    echo "error: packages with known vulnerabilities ; raise them where they are pinned, then make lock" >&2
    exit 4
fi
echo "$(wc -l <"$work/all") packages compared, none has a known vulnerability"
