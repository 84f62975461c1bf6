#!/usr/bin/env bash
# Compare all packages that set-up installs, for every device and Python, and Horovod with the published advisories.
#
#   scripts/audit.sh        # make audit
#
# Exit codes: 0 none has a known vulnerability, 3 the advisories could not be fetched for all of them, 4 some have one.
# pip-audit itself ends with 0 where its service knows none of the packages, so its report is read here.
set -euo pipefail

cd "$(dirname "$0")/.."
failed() { echo "error: the audit is not complete: $1 ; repeat it with a network" >&2 && exit 3; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
horovod=$(sed -nE 's/.* version=([0-9.]+)$/horovod==\1/p' scripts/install_horovod.sh)
{
    sed -nE 's/^([a-z0-9][a-z0-9._-]*)(\[[a-z,-]+\])?(==[^ ;\\]+).*/\1\3/p' requirements-*.lock
    echo "$horovod"
} | sort -u >"$work/all"
# One list cannot have two versions of a package, which the locks have for different Pythons.
awk -F== -v folder="$work" '{ print >(folder "/list-" ++seen[$1]) }' "$work/all"

scripts/extra_venv.sh audit true || failed "pip-audit could not be installed, the message is above"
for list in "$work"/list-*; do
    # 1 also where something was found, so the report decides
    .venv-audit/bin/pip-audit --no-deps --disable-pip --progress-spinner off --format json --requirement "$list" \
        >"$list.json" 2>"$list.log" || grep -q '"dependencies"' "$list.json" || failed "$(tail -n1 "$list.log")"
done
code=0
"${PYTHON:-python3}" -c 'import json, sys
packages = [package for name in sys.argv[1:] for package in json.load(open(name))["dependencies"]]
flaws = [(package, flaw) for package in packages for flaw in package.get("vulns", [])]
for package, flaw in flaws:
    versions = ", ".join(flaw.get("fix_versions") or ["no version yet"])
    print(package["name"], package["version"] + ":", flaw["id"] + ", mended in", versions)
compared = sum("vulns" in package for package in packages)
print(compared, "of", len(packages), "packages compared,", len(flaws), "known vulnerabilities")
sys.exit(4 if flaws else 0 if 0 < compared == len(packages) else 3)' "$work"/list-*.json || code=$?
case $code in
0) ;;
3) failed "the service of advisories does not know all packages" ;;
4) echo "error: packages with known vulnerabilities ; raise them in requirements*.txt, then make lock" >&2 && exit 4 ;;
*) failed "pip-audit's report cannot be read" ;;
esac
