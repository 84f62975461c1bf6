#!/usr/bin/env bash
# Run the program behind the launchers (scripts/launcher) by the environment's Python, or else by the machine's.
#
#   scripts/launcher.sh bind [--dry-run] COMMAND...   run one rank on the cores beside its GPU, as --bind does
#   scripts/launcher.sh in-venv COMMAND...            with the virtual environment in front of PATH
#   scripts/launcher.sh run COMMAND...                the same, with TensorFlow's defaults as the launchers set them
#   scripts/launcher.sh with-flags NAME COMMAND...    with the words of the variable NAME behind the command
#   scripts/launcher.sh launch|mpirun|slurm|phases|again|rank ...   for launch.sh and the other scripts
set -euo pipefail

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${VENV:-${scripts%/*}/.venv}/bin/python
[ -x "$python" ] && [ -z "${CONTAINER:-}" ] || python=python3
exec -- "$python" -S "$scripts/launcher" "$@"
