"""A manifest that is missing, damaged, crafted or of another stage is refused with the right error."""

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from bert.core import checked_json, manifest, outputs
from bert.core.errors import InputError, IntegrityError


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A folder with two files, one of them in a folder."""

    def make(partial: Path) -> outputs.StageResult:
        (partial / "in").mkdir()
        (partial / "in" / "a.txt").write_text("one\n")
        (partial / "b.txt").write_text("two\nthree\n")
        return outputs.StageResult(counts={"lines": 3}, records={"b.txt": 2}, extra={"kind": "words"})

    outputs.build(tmp_path / "out", stage="lines", parameters={"size": 3}, inputs=[], make=make)
    return tmp_path / "out"


def content(folder: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return {name: value for name, value in fields.items() if name != checked_json.KEY}


def test_a_missing_or_damaged_manifest_is_an_error_of_its_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        manifest.load(tmp_path / "nowhere", "shards")
    with pytest.raises(InputError, match=r"no manifest.json.* run python -m data.shards"):
        manifest.load(tmp_path, "shards")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(IntegrityError, match="not a manifest of ours"):
        manifest.load(tmp_path)


def test_the_checksum_is_that_of_the_bytes_after_its_line(finished: Path) -> None:
    first, second, rest = (finished / "manifest.json").read_bytes().split(b"\n", 2)
    assert (first, second) == (b"{", b' "checksum": "' + hashlib.sha256(rest).hexdigest().encode() + b'",')


def test_a_manifest_without_a_checksum_is_read(finished: Path) -> None:
    described = manifest.load(finished)
    (finished / "manifest.json").write_text(json.dumps(content(finished)))  # as version 0.1.0 wrote it
    assert manifest.load(finished, "lines") == described
    assert described.count("lines") == 3 and described.files["b.txt"].records == 2


def test_a_flipped_bit_and_a_cut_are_noticed(finished: Path) -> None:
    path = finished / "manifest.json"
    whole = path.read_bytes()
    for bit in [*range(1200), *range(1200, 8 * len(whole), 11)]:  # every bit around the checksum
        harmed = bytearray(whole)
        harmed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(harmed)
        with pytest.raises(IntegrityError):
            manifest.read(finished)
    for size in [*range(120), *range(120, len(whole), 7)]:
        path.write_bytes(whole[:size])
        assert manifest.is_finished(finished)
        with pytest.raises(IntegrityError):
            manifest.load(finished)


NAMES = ["../a.txt", "/etc/hostname", "", ".", "..", "in/../../b", "in//a.txt", "in\\a.txt", "a\0b", "in/", "\ud800"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_may_lead_out_of_the_folder_is_refused(name: str, finished: Path) -> None:
    fields = content(finished)
    fields["files"][name] = fields["files"].pop("b.txt")
    (finished / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(IntegrityError, match=r"manifest.json: not a manifest of ours"):
        manifest.load(finished)


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_not(finished: Path, tmp_path: Path) -> None:
    (finished / "b.txt").rename(finished / "in" / "c.txt")
    (finished / "b.txt").symlink_to("in/c.txt")
    manifest.load(finished)
    (tmp_path / "link").symlink_to(finished)
    manifest.load(tmp_path / "link")  # the folder itself may be a link
    (finished / "in" / "c.txt").rename(tmp_path / "c.txt")
    (finished / "b.txt").unlink()
    (finished / "b.txt").symlink_to("../c.txt")
    with pytest.raises(IntegrityError, match=r"b.txt: a symbolic link leads out of the folder"):
        manifest.load(finished)
    (finished / "b.txt").unlink()
    (tmp_path / "c.txt").rename(finished / "b.txt")
    (finished / "in").rename(tmp_path / "in")
    (finished / "in").symlink_to("../in")
    with pytest.raises(IntegrityError, match=r"in/a.txt: a symbolic link leads out of the folder"):
        manifest.load(finished)


def test_a_changed_file_is_noticed_alone_in_its_folder_and_below_another(finished: Path, tmp_path: Path) -> None:
    inside = manifest.content_hash(finished / "in"), manifest.content_hash(finished / "in" / "a.txt")
    (finished / "in" / "a.txt").write_text("0ne\n")
    for path in (finished / "in", finished / "in" / "a.txt"):
        with pytest.raises(IntegrityError, match=r"in/a.txt: the content has changed"):
            manifest.content_hash(path)
    (finished / "manifest.json").write_text('{"name": "of another program"}')
    assert manifest.content_hash(finished / "in" / "a.txt") != inside[1]
    assert manifest.content_hash(finished) != manifest.content_hash(finished / "in")


@pytest.mark.parametrize(("code", "error"), [(errno.ENOENT, IntegrityError), (errno.EIO, OSError)])
def test_a_file_that_cannot_be_looked_at_is_not_said_to_be_missing(
    code: int, error: type[Exception], finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Path.stat

    def fail(path: Path, **how: Any) -> os.stat_result:
        if path.name == "b.txt":
            raise OSError(code, "of the disk", str(path))
        return look(path, **how)

    monkeypatch.setattr(Path, "stat", fail)
    with pytest.raises(error, match="of the disk" if code == errno.EIO else "the file is missing"):
        manifest.load(finished)
