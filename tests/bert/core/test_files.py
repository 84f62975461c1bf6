"""Files are written whole or not at all; text is read from compressed files, and damage is reported."""

import bz2
import errno
import gzip
import io
import itertools
import lzma
import multiprocessing
import os
import resource
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from bert.core import compressed, files
from bert.core.errors import DamagedFile, InputError, UsageError


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_json(path, {"b": 1, "a": "\u00e9"})
    before = path.read_bytes()
    with pytest.raises(RuntimeError), files.atomic_write(path) as stream:
        stream.write("half")
        raise RuntimeError
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {".bz2": bz2.compress, ".gz": gzip.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("suffix", [".bz2", ".gz", ".xz", ""])
def test_text_is_read_from_compressed_files_and_damage_is_named(suffix: str, tmp_path: Path) -> None:
    path, text = tmp_path / f"text{suffix}", "caf\u00e9\n" * 5000
    path.write_bytes(COMPRESSED[suffix](text.encode()) if suffix else text.encode())
    with files.open_text(path) as stream:
        assert stream.read() == text
    assert files.read_text(path, len(text), "remedy") == text
    with pytest.raises(InputError, match="more than 24,999 characters of text; remedy"):
        files.read_text(path, len(text) - 1, "remedy")
    whole = path.read_bytes()
    path.write_bytes(b"\xff\xfe not this" + whole[3:])
    with pytest.raises(InputError, match=str(path)), files.open_text(path) as stream:
        stream.read()
    path.write_bytes(whole[: len(whole) // 2 + 1])
    if suffix:
        with pytest.raises(InputError, match=str(path)), files.open_text(path) as stream:
            stream.read()
    else:  # a cut plain file is only a shorter one
        with files.open_text(path) as stream:
            assert stream.read() == "caf\u00e9\n" * 2500 + "c"


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("compressed_at_once", [1, 3, 1 << 16])
def test_compressed_streams_follow_each_other_and_none_is_left_out_in_silence(
    suffix: str, compressed_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readers of bz2 and lzma end at what is no stream, and a bit at the beginning of one hides all behind it."""
    monkeypatch.setattr(compressed, "CHUNK", compressed_at_once)
    texts = [b"", b"one\n" * 999, b"2\n", b"", b"three\n" * 99]
    streams, path = [COMPRESSED[suffix](text) for text in texts], tmp_path / f"text{suffix}"

    def read(content: bytes) -> bytes:
        path.write_bytes(content)
        with files.open_bytes(path) as stream:
            return b"".join(iter(lambda: stream.read(57), b""))

    assert read(b"".join(streams)) == read(b"".join(streams) + bytes(8)) == b"".join(texts)
    assert read(bytes(4).join(streams)) == b"".join(texts)
    for number, place in itertools.product(range(len(streams)), (0, 1)):
        damaged = [bytearray(stream) for stream in streams]
        damaged[number][place] ^= 4
        with pytest.raises(DamagedFile, match=f"{path}: the compressed file is .*fetch it again"):
            read(b"".join(damaged))
    for after in (b"x", b"garbage", streams[1][:-1], streams[1][:2], b"plain text\n" * 9):
        with pytest.raises(DamagedFile, match=f"{path}: the compressed file is .*fetch it again"):
            read(b"".join(streams) + after)
    if suffix != ".gz":  # `gzip` takes an empty file for an empty text
        with pytest.raises(DamagedFile):
            read(b"")


def test_a_line_that_is_too_long_to_hold_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 5)
    stream = io.StringIO("1234\n\n12345\n")
    lines = files.read_lines(stream, tmp_path)
    assert (next(lines), next(lines)) == ("1234\n", "\n")
    with pytest.raises(InputError, match="line 3 has more than 5 characters"):
        next(lines)


def test_a_folder_that_may_not_be_read_is_an_error_and_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if path.name in ("theirs", "lost+found"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    for name in ("ours", "lost+found"):
        (tmp_path / name).mkdir()
    (tmp_path / "ours" / "a").touch()
    monkeypatch.setattr(os, "scandir", refuse)
    assert list(files.below(tmp_path)) == [tmp_path / "ours" / "a"]
    (tmp_path / "ours" / "theirs").mkdir()
    with pytest.raises(PermissionError, match="theirs"):
        list(files.below(tmp_path))


def test_a_write_replaces_a_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "link").symlink_to("victim")
    files.write_json(tmp_path / "link", 1)
    assert (tmp_path / "victim").read_text() == "mine" and (tmp_path / "link").read_text() == "1\n"
    (tmp_path / ".other.partial").symlink_to("victim")
    with pytest.raises(OSError, match="symbolic links"):
        files.write_json(tmp_path / "other", 1)
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize("name", ["", ".", "/", "folder"])
def test_a_folder_is_not_written_as_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        files.write_json(Path(name), 1)


def test_what_a_killed_write_left_is_gone_after_the_next(tmp_path: Path) -> None:
    (tmp_path / ".file.partial").write_text("longer than what is written now")
    files.write_json(tmp_path / "file", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_text() == "1\n"


def _write_often(path: Path, letter: str) -> None:
    for _ in range(40):
        with files.atomic_write(path) as stream:
            stream.write(letter * 70_000)


def test_writers_at_the_same_time_leave_the_whole_file_of_one(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_write_often, args=(tmp_path / "file", letter)) for letter in "abcd"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    text = (tmp_path / "file").read_text()
    assert text == text[0] * 70_000 and len(list(tmp_path.iterdir())) == 1


def test_a_file_system_that_cannot_flush_folders_is_tolerated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    for code in (errno.EINVAL, errno.ENOTSUP):
        files.write_json(tmp_path / "file", code)
        assert (tmp_path / "file").read_text() == f"{code}\n"
    code = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        files.write_json(tmp_path / "file", 1)


def test_the_lock_of_a_folder_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to("victim")
    with pytest.raises(UsageError, match="cannot be written"), files.exclusive(tmp_path):
        pass
    assert not (tmp_path / "victim").exists()


def test_a_description_of_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"{}")
    os.truncate(path, 8 << 30)  # a sparse file
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"config\.json: more than 268,435,456 bytes"):
        files.read_json(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 800_000  # kilobytes
