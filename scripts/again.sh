#!/usr/bin/env bash
# Restart a command when it was killed: a rank lost, a machine gone. Training then resumes by itself.
#
#   scripts/again.sh N COMMAND...        # scripts/again.sh 3 scripts/launch.sh -np 8 -- python -m bert.pretrain ...
#
# At most N restarts. A command that ends with a documented status (0 done, 2 to 5 an error of its own, 75 stopped on
# request) is not repeated, nor one that ends after a signal to stop, which is passed on to it.
set -euo pipefail

exec "$(dirname "$0")/launcher.sh" again "$@"
