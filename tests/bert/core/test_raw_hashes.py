"""An unchanged raw file is read once; whatever may have changed is hashed again."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from bert.core import files, manifest, raw_hashes
from bert.core.raw_hashes import RawHashes


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are hashed. Small and new files are remembered, too."""
    names: list[str] = []
    hash_file = files.sha256

    def sha256(path: Path) -> str:
        names.append(path.name)
        return hash_file(path)

    monkeypatch.setattr(files, "sha256", sha256)
    monkeypatch.setattr(raw_hashes, "SMALLEST_FILE", 5)
    monkeypatch.setattr(raw_hashes, "WORTH_KEEPING", 11)
    monkeypatch.setattr(raw_hashes, "SETTLED", 0)
    return names


def hashes_of(folder: Path, output: Path) -> str:
    raw = RawHashes(output)
    found = manifest.content_hash(folder, raw.sha256)
    raw.save()
    return found


def sources(folder: Path) -> Path:
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(f"text of {name}")
    (folder / "c.txt").write_text("tiny")
    return folder


def test_unchanged_files_are_read_once(tmp_path: Path, read: list[str]) -> None:
    folder, output = sources(tmp_path / "raw"), tmp_path / "out"
    first = hashes_of(folder, output)
    assert sorted(read) == ["a.txt", "b.txt", "c.txt"]
    read.clear()
    assert hashes_of(folder, output) == first == manifest.content_hash(folder, files.sha256)
    assert read[:1] == ["c.txt"] and (tmp_path / ".out.inputs").exists()


def test_a_change_in_place_is_seen_behind_an_old_mtime(tmp_path: Path, read: list[str]) -> None:
    folder, output = sources(tmp_path / "raw"), tmp_path / "out"
    first, before = hashes_of(folder, output), os.stat(folder / "a.txt")
    with open(folder / "a.txt", "r+b") as stream:
        stream.write(b"TEXT")
    os.utime(folder / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.stat(folder / "a.txt")
    assert (before.st_size, before.st_mtime_ns, before.st_ino) == (after.st_size, after.st_mtime_ns, after.st_ino)
    read.clear()
    assert hashes_of(folder, output) != first and "a.txt" in read and "b.txt" not in read
    assert RawHashes(output).sha256(folder / "a.txt") == hashlib.sha256(b"TEXT of a.txt").hexdigest()


@pytest.mark.parametrize("damage", ["removed", "cut", "another hash", "not text", "a folder"])
def test_without_a_whole_memory_files_are_hashed_again(tmp_path: Path, read: list[str], damage: str) -> None:
    folder, output, marker = sources(tmp_path / "raw"), tmp_path / "out", tmp_path / ".out.inputs"
    first, content = hashes_of(folder, output), marker.read_bytes()
    sha256 = hashlib.sha256(b"text of a.txt").hexdigest().encode()
    changed = {"cut": content[:-9], "another hash": content.replace(sha256, sha256[::-1]), "not text": b"\xff\x00"}
    marker.unlink()
    if damage == "a folder":
        marker.mkdir()
    elif damage in changed:
        marker.write_bytes(changed[damage])
    read.clear()
    assert hashes_of(folder, output) == first and read[:3] == ["a.txt", "b.txt", "c.txt"]
    assert marker.is_dir() or marker.read_bytes() == content


def test_a_copy_is_hashed_again(tmp_path: Path, read: list[str]) -> None:
    (tmp_path / "here").mkdir()
    folder = sources(tmp_path / "here" / "raw")
    first = hashes_of(folder, tmp_path / "here" / "out")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    read.clear()
    assert hashes_of(tmp_path / "there" / "raw", tmp_path / "there" / "out") == first and "a.txt" in read


def test_what_may_still_change_unseen_is_not_remembered(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sources(tmp_path / "raw")
    with monkeypatch.context() as patched:
        patched.setattr(raw_hashes, "SETTLED", 2_000_000_000)  # the files are younger
        hashes_of(folder, tmp_path / "young")
    with monkeypatch.context() as patched:
        patched.setattr(raw_hashes, "_mounts", lambda: [(str(tmp_path), "fuse.sshfs"), ("/", "ext4")])
        hashes_of(folder, tmp_path / "remote")
    with monkeypatch.context() as patched:
        patched.setattr(raw_hashes, "WORTH_KEEPING", 31)
        hashes_of(folder, tmp_path / "small")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"] and read.count("a.txt") == 3


def test_a_memory_within_a_source_does_not_change_its_hash(tmp_path: Path, read: list[str]) -> None:
    folder = sources(tmp_path / "raw")
    first = hashes_of(folder, folder / "out")
    assert (folder / ".out.inputs").exists() and hashes_of(folder, folder / "out") == first
