"""What the launchers' tests share: an environment without settings, and commands that stand in for real ones."""

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs import without_schedulers

# Every kind of variable that the launcher passes on, and what launchers, schedulers and containers set themselves.
SETTINGS = (
    *("BERT_", "HOROVOD_", "NCCL_", "OMP_", "TF_", "XLA_", "AWS_", "AZURE_", "GOOGLE_"),
    *("LD_LIBRARY_PATH", "PYTHONPATH", "VENV", "OMPI_", "SLURM_", "CUDA_", "CONTAINER", "MOUNTS", "MPI"),
)

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


@pytest.fixture
def environment(clean: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A clean environment that finds stand-ins first, no scheduler but a stand-in, and no virtual environment."""
    return clean | {"PATH": f"{tmp_path}/bin:{without_schedulers(os.environ['PATH'])}", "VENV": "/nonexistent"}
