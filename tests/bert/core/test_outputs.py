"""A stage's folder is built once, rebuilt when its inputs change, and never half built."""

import bz2
from pathlib import Path

import pytest

from bert.core import manifest, outputs
from bert.core.errors import InputError, UsageError


def build(folder: Path, source: Path, calls: list[int], **parameters: int) -> manifest.Manifest:
    def make(partial: Path) -> outputs.StageResult:
        calls.append(1)
        (partial / "out.txt").write_text(source.read_text().upper())
        return outputs.StageResult(counts={"lines": 1}, records={"out.txt": 1})

    return outputs.build(folder, stage="upper", parameters=parameters, inputs=[source], make=make)


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
    (folder / "thesis.txt").rename(folder / "manifest.json")
    (folder / "manifest.json").write_text('{"name": "an extension of a browser"}')
    with pytest.raises(UsageError, match="not empty and not made by this program"):
        build(folder, source, [])
    (folder / "manifest.json").unlink()
    outputs.build(folder, stage="other", parameters={}, inputs=[], make=lambda partial: outputs.StageResult(counts={}))
    with pytest.raises(UsageError, match="holds the output of stage 'other'"):
        build(folder, source, [])
