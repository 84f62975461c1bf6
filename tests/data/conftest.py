"""What the tests of the data stages share: running a stage as its command does, and small inputs."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bert import cli
from bert.storage import manifest


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """Runs `python -m data.<name> arguments`, in this process: exit code and the lines on stderr."""

    def run(name: str, *arguments: object) -> tuple[int, list[str]]:
        module = importlib.import_module(f"data.{name}")
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            cli.main(module.main)
        return int(str(ending.value.code)), capsys.readouterr().err.splitlines()

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes a finished folder of `stage` with the given files of records, as that stage would have left it."""

    def write(name: str, stage: str, files: dict[str, list[dict[str, Any]]]) -> Path:
        def make(partial: Path) -> manifest.StageResult:
            for file, records in files.items():
                lines = [json.dumps(record) + "\n" for record in records]
                (partial / file).write_text("".join(lines), encoding="utf-8")
            return manifest.StageResult(counts={})

        return manifest.build(tmp_path / name, stage=stage, parameters={"test": name}, inputs=[], make=make).path

    return write


@pytest.fixture
def read() -> Callable[[Path], list[dict[str, Any]]]:
    """The records of all parts of a folder."""

    def records(folder: Path, pattern: str = "*.jsonl") -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for path in sorted(folder.glob(pattern))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]

    return records


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder with its bytes."""
    return lambda folder: {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
