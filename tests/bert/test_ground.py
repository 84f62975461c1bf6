"""Command lines, atomic files and manifests: what every stage relies on."""

import bz2
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from bert import cli
from bert.errors import InputError, IntegrityError, UsageError
from bert.storage import files, manifest


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 3
    """how large"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """A command's options."""

    source: tuple[Path, ...]
    """what to read"""
    rate: float = 0.5
    """how fast, 10% a step"""
    kind: Literal["a", "b"] = "a"
    """which"""
    fast: bool = False
    """whether"""
    start: Path | None = None
    """where from"""
    inner: Inner = field(default_factory=Inner)
    """more"""


def parse(*argv: str) -> Options:
    return cli.parse(Options, argv, prog="tool", description="Does it.")


def test_flags_are_the_fields() -> None:
    found = parse(
        "--source", "x", "y", "--rate", "2", "--kind", "b", "--fast", "true", "--inner.size", "7", "--start", "z"
    )
    assert found == Options(
        source=(Path("x"), Path("y")), rate=2.0, kind="b", fast=True, start=Path("z"), inner=Inner(size=7)
    )
    assert parse("--source", "x") == Options(source=(Path("x"),))
    changed = cli.override(found, ["--inner.size", "8", "--start", "none"], prog="tool", description=None)
    assert changed.inner.size == 8 and changed.start is None and changed.rate == 2.0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--source", "x", "--inner.sise", "3"], "did you mean --inner.size"),
        (["--source", "x", "--inner.size", "three"], "invalid int value: 'three'"),
        (["--source", "x", "--fast", "yes"], "'yes' is not true or false"),
        (["--source", "x", "--kind", "c"], "invalid choice: 'c'"),
        ([], "required: --source"),
        (["--source", "x", "stray"], "stray"),
    ],
)
def test_mistakes_are_usage_errors(argv: list[str], message: str) -> None:
    argv = argv if argv[-1:] != ["stray"] else ["--rate", "1", "--source", "x", "--fast", "true", "stray"]
    with pytest.raises(UsageError, match=message):
        parse(*argv)


def test_help_shows_each_field_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "how fast, 10% a step (default 0.5)" in text and "what to read (required)" in text
    assert "where from (default none)" in text and "--inner.size" in text


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        ("errors.IntegrityError('x: cut;\\nfetch it')", 4, "error: x: cut; fetch it"),
        ("FileNotFoundError(2, 'No such file', '/x')", 3, "error: /x: No such file"),
        ("OSError(28, 'No space left on device', '/x')", 5, "error: /x: No space left on device"),
        ("MemoryError()", 5, "error: MemoryError"),
    ],
)
def test_failures_end_in_one_line_and_their_code(raised: str, code: int, line: str) -> None:
    program = f"from bert import cli, errors\ndef f(argv): raise {raised}\ncli.main(f)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, line + "\n")
    launched = subprocess.run([sys.executable, "-c", program], stderr=-1, text=True, env={"BERT_LAUNCH": "@x"})
    assert launched.stderr == f"{line}\n@x ended {code}\n"  # the launcher takes it out


def test_a_programming_error_keeps_its_traceback() -> None:
    program = "from bert import cli\ndef f(argv): return {}['x']\ncli.main(f)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and "KeyError" in done.stderr


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_json(path, {"b": 1, "a": "\u00e9"})
    before = path.read_bytes()
    with pytest.raises(RuntimeError), files.atomic_write(path) as stream:
        stream.write("half")
        raise RuntimeError
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".bz2", ".gz", ".xz", ""])
def test_text_is_read_from_compressed_files_and_damage_is_named(suffix: str, tmp_path: Path) -> None:
    path, text = tmp_path / f"text{suffix}", "caf\u00e9\n" * 5000
    with files.OPENERS.get(suffix, open)(path, "wt", encoding="utf-8") as stream:
        stream.write(text)
    with files.open_text(path) as stream:
        assert stream.read() == text
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2 + 1], b"\xff\xfe not this" + whole[3:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=str(path)), files.open_text(path) as stream:
            stream.read()
            if not suffix:  # a cut plain file is only a shorter one
                raise InputError(str(path))


def build(folder: Path, source: Path, calls: list[int], **parameters: int) -> manifest.Manifest:
    def make(partial: Path) -> manifest.StageResult:
        calls.append(1)
        (partial / "out.txt").write_text(source.read_text().upper())
        return manifest.StageResult(counts={"lines": 1}, records={"out.txt": 1})

    return manifest.build(folder, stage="upper", parameters=parameters, inputs=[source], make=make)


def test_a_stage_is_made_once_and_again_when_anything_changed(tmp_path: Path) -> None:
    source, folder, calls = tmp_path / "in.txt", tmp_path / "out", list[int]()
    source.write_text("one")
    first = build(folder, source, calls, size=3)
    content = (folder / "manifest.json").read_bytes()
    assert build(folder, source, calls, size=3) == first and len(calls) == 1
    build(folder, source, calls, size=4)
    source.write_text("two")
    build(folder, source, calls, size=4)
    assert len(calls) == 3 and (folder / "out.txt").read_text() == "TWO"
    source.write_text("one")
    build(folder, source, calls, size=3)
    assert (folder / "manifest.json").read_bytes() == content  # no time, no path
    assert str(tmp_path) not in content.decode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out"]


def test_a_failed_stage_leaves_what_was_there(tmp_path: Path) -> None:
    source, folder = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("one")
    build(folder, source, [])
    before = (folder / "manifest.json").read_bytes()
    source.unlink()
    with pytest.raises(InputError, match=r"in.txt: no such file"):
        build(folder, source, [])
    source.write_bytes(bz2.compress(b"\xff"))
    with pytest.raises(UnicodeDecodeError):
        build(folder, source, [])
    assert (folder / "manifest.json").read_bytes() == before and len(list(tmp_path.iterdir())) == 2


def test_a_folder_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    source, folder = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("one")
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty and not made by this program"):
        build(folder, source, [])
    (folder / "thesis.txt").unlink()
    (folder / "manifest.json").write_text(json.dumps({"stage": "other"}))
    with pytest.raises(UsageError, match="holds the output of stage 'other'"):
        build(folder, source, [])


def test_a_missing_or_damaged_manifest_is_an_error_of_its_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        manifest.load(tmp_path / "nowhere", "shards")
    with pytest.raises(InputError, match=r"no manifest.json.* run python -m data.shards"):
        manifest.load(tmp_path, "shards")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(IntegrityError, match="not a manifest of ours"):
        manifest.load(tmp_path)
