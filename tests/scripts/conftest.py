"""What the launchers' tests share: an environment without settings, and commands that stand in for real ones."""

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

SETTINGS = (
    "TF_",
    "OMP_",
    "HOROVOD_",
    "NCCL_",
    "OMPI_",
    "SLURM_",
    "CUDA_",
    "BERT_",
    "VENV",
    "CONTAINER",
    "MOUNTS",
    "MPI",
)

SCHEDULERS = ("mpirun", "mpiexec", "srun", "sbatch", "scontrol", "scancel", "squeue")

StandIn = Callable[[str, str], Path]


@pytest.fixture
def clean() -> dict[str, str]:
    """This process's environment less what launchers and schedulers set."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    """`stand_in(name, text)` writes a Python program, or a shell script where the text has a first line of its own."""

    def write(name: str, text: str) -> Path:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        text = textwrap.dedent(text).lstrip()
        program.write_text(text if text.startswith("#!") else f"#!{sys.executable}\n{text}")
        program.chmod(0o755)
        return program

    return write


@pytest.fixture(scope="session")
def path_without_schedulers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PATH, in which a folder that has an MPI's or SLURM's programs is replaced by links to all others in it."""
    folders = []
    for part in os.environ["PATH"].split(":"):
        if any(Path(part, name).exists() for name in SCHEDULERS):
            links = tmp_path_factory.mktemp("programs")
            for program in Path(part).iterdir():
                if program.name not in SCHEDULERS:
                    (links / program.name).symlink_to(program)
            part = str(links)
        folders.append(part)
    return ":".join(folders)


@pytest.fixture
def environment(clean: dict[str, str], tmp_path: Path, path_without_schedulers: str) -> dict[str, str]:
    """A clean environment that finds stand-ins first, no scheduler but a stand-in, and no virtual environment."""
    return clean | {"PATH": f"{tmp_path}/bin:{path_without_schedulers}", "VENV": "/nonexistent"}
