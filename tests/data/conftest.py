"""What the tests of the data stages share: running a stage as its command does, and small inputs."""

import importlib
import json
import math
import random
import shutil
import string
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bert import commands
from bert.core import cli, outputs, progress
from bert.text.vocabulary import SPECIAL
from data import shards, tfrecords, verify
from tests.downloads import BODY
from tests.finished import PREDICTIONS, SEQUENCE
from tests.hostile import Site


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """Runs `python -m data.<name> arguments`, in this process: exit code and the lines on stderr, without progress."""
    monkeypatch.setattr(progress, "FIRST", math.inf)  # a slow machine would show some

    def run(name: str, *arguments: object) -> tuple[int, list[str]]:
        module = importlib.import_module(commands.EXTENSIONS.get(f"data.{name}", f"data.{name}"))
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            cli.main(module.main)
        return int(str(ending.value.code)), capsys.readouterr().err.splitlines()

    return run


@pytest.fixture
def site() -> Iterator[Site]:
    """A server on this machine with one file, `/a.bin`."""
    with Site().running() as running:
        running.files["/a.bin"] = BODY
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes a finished folder of `stage` with the given files of records, as that stage would have left it."""

    def write(name: str, stage: str, files: dict[str, list[dict[str, Any]]]) -> Path:
        def make(partial: Path) -> outputs.StageResult:
            for file, records in files.items():
                lines = [json.dumps(record) + "\n" for record in records]
                (partial / file).write_text("".join(lines), encoding="utf-8")
            return outputs.StageResult(counts={})

        return outputs.build(tmp_path / name, stage=stage, parameters={"test": name}, inputs=[], make=make).path

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


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work folder: corpus/{documents,shards}, tfrecords/seq37, of random words."""
    root, draw = tmp_path_factory.mktemp("work"), random.Random(3)
    words = ["".join(draw.choices(string.ascii_lowercase, k=5)) for _ in range(90)]

    def documents(partial: Path) -> outputs.StageResult:
        sentences = characters = 0
        for part, size in enumerate((41, 62)):
            with open(partial / f"part-0000{part}.jsonl", "w") as stream:
                for number in range(size):
                    text = [" ".join(draw.choices(words, k=draw.randint(3, 11))) for _ in range(draw.randint(2, 9))]
                    stream.write(json.dumps({"id": f"test:{part}-{number}", "sentences": text}) + "\n")
                    sentences, characters = sentences + len(text), characters + sum(map(len, text))
        counts = {"documents": 103, "sentences": sentences, "characters": characters}
        return outputs.StageResult(counts=counts, records={"part-00000.jsonl": 41, "part-00001.jsonl": 62})

    corpus = root / "corpus"
    outputs.build(corpus / "documents", stage="documents", parameters={}, inputs=[], make=documents)
    size = ["--shards", "3", "--held_out_fraction", "0.1"]
    shards.main(["--source", str(corpus / "documents"), "--output", str(corpus / "shards"), *size])
    (root / "vocab.txt").write_text("".join(f"{token}\n" for token in (*SPECIAL, *words)))
    shape = ["--max_seq_length", str(SEQUENCE), "--max_predictions_per_seq", str(PREDICTIONS), "--workers", "1"]
    inputs = ["--source", str(corpus / "shards"), "--vocab", str(root / "vocab.txt")]
    tfrecords.main([*inputs, "--output", str(root / "tfrecords" / "seq37"), *shape])
    return root


@pytest.fixture
def damaged_copy(finished: Path, tmp_path: Path) -> Path:
    """A work folder to damage."""
    return Path(shutil.copytree(finished, tmp_path / "work"))


@pytest.fixture
def verify_folders(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[str]]]:
    """Runs data.verify on folders: exit code and lines on stdout; on stderr there is one if and only if it fails."""

    def command(*arguments: object, workers: int = 1) -> tuple[int, list[str]]:
        monkeypatch.setattr("sys.argv", ["verify", *map(str, arguments), "--workers", str(workers)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            cli.main(verify.main)
        code, shown = int(str(ending.value.code)), capsys.readouterr()
        errors = [line for line in shown.err.splitlines() if not line.startswith("verify: ")]  # progress, if slow
        assert len(errors) == (code != 0)
        return code, shown.out.splitlines()

    return command
