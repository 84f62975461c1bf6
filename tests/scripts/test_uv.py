"""scripts/uv.py and the scripts that call it: pip's settings reach uv, and nothing is fetched twice."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.uv import translated

ROOT = Path(__file__).resolve().parents[2]


def test_uv_gets_the_settings_of_pip() -> None:
    listed = """
        :env:.find-links='/env/wheels /more'
        global.extra-index-url='\\nhttps://a/simple\\nhttps://b/simple'
        global.find-links='/etc/wheels'
        global.index-url='https://mirror/simple?a=b'
        global.quiet='1'
        global.proxy=''
        install.index-url='https://own/simple'
        install.no-index='true'
        list.format='columns'
    """
    found, flags = translated("\n".join(line.strip() for line in listed.splitlines()))
    assert flags == ["--no-index"] and translated("global.no-index='1'\n:env:.no-index='0'")[1] == []
    assert found == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",  # an index with other versions does not hide the one that is locked
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_DEFAULT_INDEX": "https://own/simple",
        "UV_INDEX": "https://a/simple https://b/simple",
        "UV_FIND_LINKS": "/env/wheels,/more",
    }


def test_variables_of_uv_come_before_those_of_pip(tmp_path: Path) -> None:
    python, uv = tmp_path / "python", tmp_path / "uv"
    python.symlink_to(sys.executable)
    uv.write_text('#!/bin/sh\necho "$* $UV_FIND_LINKS $UV_INDEX"\n')
    uv.chmod(0o755)
    settings = {
        "PIP_FIND_LINKS": "/pip",
        "PIP_EXTRA_INDEX_URL": "file:///x",
        "PIP_NO_INDEX": "1",
        "UV_FIND_LINKS": "/uv",
    }
    command = [str(python), str(ROOT / "scripts" / "uv.py"), "word"]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "word --no-index /uv file:///x\n"), done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Scripts and lists, beside an environment whose `uv` notes its arguments and what it reads."""
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", "requirements.txt", *(f"scripts/{name}" for name in ("extra_venv.sh", "lock.sh"))):
        shutil.copy(ROOT / name, tmp_path / name)
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "uv").write_text('#!/bin/sh\necho "uv $*"\ncase "$*" in *" -") cat ;; esac\n')
    (binaries / "python").write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\nshift\nexec uv "$@"\n')
    for program in binaries.iterdir():
        program.chmod(0o755)
    return tmp_path


def run(checkout: Path, *command: str) -> str:
    """Return what the command prints."""
    env = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=True).stdout


def test_an_additional_environment_has_the_packages_of_its_group(checkout: Path) -> None:
    lines = run(checkout, "scripts/extra_venv.sh", "audit", "echo", "done").splitlines()
    install = "uv pip install --quiet --python .venv-audit/bin/python --requirement -"
    assert lines == ["uv venv --quiet --python python3 .venv-audit", install, "pip-audit==2.10.1", "done"]
    (checkout / ".venv-audit/bin").mkdir(parents=True)
    (checkout / ".venv-audit/bin/python").symlink_to("/bin/true")
    assert run(checkout, "scripts/extra_venv.sh", "audit", "true").splitlines() == lines[1:3]


def test_the_lock_for_gpus_adds_to_that_for_cpus(checkout: Path) -> None:
    (checkout / "requirements").mkdir()
    (checkout / "requirements" / "cpu.lock").write_text(
        "# six==1\nsix==1.17.0 ; x \\\n    --hash=sha256:0\nabsl-py==2\n"
    )
    calls = [line for line in run(checkout, "scripts/lock.sh").splitlines() if line.startswith("uv ")]
    names = ["cpu.lock", "gpu.lock", "nvcc.lock", "own.txt"]
    assert [call.split("--output-file requirements/")[1].split()[0] for call in calls] == names
    assert "--constraints requirements/cpu.lock --no-emit-package=six --no-emit-package=absl-py -" in calls[1]
    assert all("--generate-hashes" in call for call in calls[:3])
