"""A PATH on which a machine's MPI and SLURM are not found, so that a test meets its stand-ins or nothing."""

import functools
import tempfile
from pathlib import Path

HIDDEN = ("mpirun", "mpiexec", "mpicxx", "srun", "sbatch", "scontrol", "scancel", "squeue")

_links: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


@functools.cache
def without_schedulers(path: str) -> str:
    """Return `path`, in which a folder that has one of these is replaced by links to all else in it."""
    folders = []
    for folder in path.split(":"):
        if any(Path(folder, name).exists() for name in HIDDEN):
            _links.append(tempfile.TemporaryDirectory(prefix="programs"))
            for program in Path(folder).iterdir():
                if program.name not in HIDDEN:
                    Path(_links[-1].name, program.name).symlink_to(program)
            folder = _links[-1].name
        folders.append(folder)
    return ":".join(folders)
