"""Which model `make serve` serves, and what the demo says of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A work folder, beside a copy of the script with a launcher that only prints its arguments."""
    shutil.copy(SCRIPTS / "serve.sh", tmp_path / "serve.sh")
    launcher = tmp_path / "launcher.sh"
    launcher.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$@"\n')
    launcher.chmod(0o755)
    return tmp_path / "a work folder"


def served(workdir: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "BERT_WORKDIR": str(workdir), "RECIPE": "bert_tiny"}
    command = ["bash", str(workdir.parent / "serve.sh")]
    return subprocess.run(command, env=environment | variables, capture_output=True, text=True)


def test_the_model_that_is_named_is_served_or_that_of_the_recipe_or_the_demos(workdir: Path) -> None:
    found = served(workdir)
    assert found.returncode == 2 and not found.stdout
    assert found.stderr.startswith("error: no model to serve") and len(found.stderr.splitlines()) == 1
    for name in ("demo/squad/pretrained", "squad/bert_tiny"):  # each wins over those before it
        (workdir / name).mkdir(parents=True)
        (workdir / name / "config.json").touch()
        assert served(workdir).stdout.splitlines()[-5:] == ["python", "-m", "serve", "--model", str(workdir / name)]
    assert served(workdir, SQUAD_RUN="b c").stdout.splitlines()[-1] == "b c"
    assert served(workdir, SQUAD_RUN="b c", MODEL="d e").stdout.splitlines()[-1] == "d e"


def test_the_demo_ends_with_how_to_open_the_page() -> None:
    last = (SCRIPTS / "demo.sh").read_text().strip().splitlines()[-1]
    assert "make serve" in last and "http://127.0.0.1:8000" in last
