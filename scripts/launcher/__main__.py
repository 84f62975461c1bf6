"""The program behind scripts/launch.sh, mpirun.sh, slurm.sh, slurm_phases.sh and again.sh; scripts/launcher.sh runs it.

It needs the standard library alone, and of the product only the table of recipes, for slurm_phases.sh. So it starts at
once.
"""

import sys

import binding
import command_line
import here
import processes
import runners
import settings
import slurm

COMMANDS = {
    "launch": runners.launch,
    "mpirun": runners.mpirun,
    "slurm": slurm.run,
    "phases": slurm.phases,
    "rank": processes.rank,
    "here": here.run,
    "run": processes.replace,
    "bind": binding.main,
    "in-venv": processes.replace,
    "again": processes.again,
    "with-flags": processes.with_flags,
}


def main() -> None:
    name, *words = sys.argv[1:] or [""]
    if name not in COMMANDS:
        command_line.print_help("launcher.sh")
    if name in ("in-venv", "with-flags"):
        settings.use_venv()
    elif name != "again":
        settings.prepare_environment()
    COMMANDS[name](words)


main()
