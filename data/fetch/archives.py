"""Unpack an untrusted .zip archive: all members are checked before anything is written.

An archive is refused if a member has a path outside the target, is a link, a device or encrypted, has an invalid or a
repeated name, or is a file where a folder should be. It is refused if it has too many members, too many bytes, or a
compression ratio that only a zip bomb has. Members are stored or deflated: Python unpacks the other methods, bzip2 and
LZMA, without a bound on memory.
"""

import contextlib
import dataclasses
import functools
import os
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from bert.errors import IntegrityError, UserError
from data.fetch.transfer import check_space

CHUNK = 1 << 20
END = b"PK\5\6"  # the signature of the end record; the directory's size is stored 12 bytes after it
END_BYTES = 22
ZIP64 = b"PK\6\7"  # the signature of 20 bytes before the end record, with which the sizes stand elsewhere
ZIP64_BYTES = 20
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
LONGEST_NAME = 255  # bytes of one path component
LONGEST_PATH, DEEPEST = 1024, 32  # bytes and components of a path
ENTRY_BYTES = 1024  # of the directory, per member; an entry has 46 bytes and the name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What an archive may hold."""

    members: int = 1000
    bytes: int = 8 << 30  # unpacked, all members together
    ratio: int = 200  # of the unpacked to the packed size, for members of more than a megabyte


@dataclasses.dataclass(frozen=True)
class Member:
    """One entry of an archive. `kind` is "file", "folder", or words for anything else."""

    name: str
    kind: str
    size: int
    packed: int  # bytes in the archive
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, target: Path, limits: Limits | None = None) -> list[str]:
    """Write the files of a zip archive below `target`, an empty or a missing folder, and return their names.

    A single top folder that holds everything is left out of the names. Raise IntegrityError, naming the member, before
    anything is written; if damage is found later, what was written is removed. Raise ResourceError if there is no room.
    """
    limits = limits or Limits()
    assert not target.exists() or not any(target.iterdir()), f"{target} is not empty"
    try:
        with open(archive, "rb") as raw:
            with _reading(archive):
                files = _checked_files(archive, _members(archive, raw, limits), limits)
            check_space(target, sum(member.size for member in files))
            names = _write(archive, files, target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return names


@contextlib.contextmanager
def _reading(archive: Path) -> Iterator[None]:
    """Raise IntegrityError for whatever `zipfile` raises in the block.

    A damaged archive makes it raise not only BadZipFile: also zlib.error, EOFError, struct.error, UnicodeDecodeError,
    NotImplementedError, IndexError, and OSError for a place before the file's beginning.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        raise IntegrityError(f"{archive}: the archive is damaged ({str(error)[:200]}); download it again") from error


def _checked_files(archive: Path, members: Iterator[Member], limits: Limits) -> list[Member]:
    """Check all members and return the files among them."""
    kinds: dict[str, str] = {}
    files: list[Member] = []
    total = 0
    for number, member in enumerate(members, start=1):
        if number > limits.members:
            raise IntegrityError(
                f"{archive}: more than {limits.members:,} members, which is not expected; check the source"
            )
        problem = _problem(member, kinds, limits)
        total += member.size
        if not problem and total > limits.bytes:
            problem = f"brings the unpacked size above {limits.bytes:,} bytes"
        if problem:
            raise IntegrityError(f"{archive}: member {member.name[:200]!r} {problem}; nothing was unpacked")
        kinds[member.name.rstrip("/")] = member.kind
        files += [member] if member.kind == "file" else []
    for member in files:
        if above := next((str(p) for p in Path(member.name).parents if kinds.get(str(p)) == "file"), None):
            raise IntegrityError(
                f"{archive}: member {member.name!r} is below {above!r}, which is a file; nothing was unpacked"
            )
    if not files:
        raise IntegrityError(f"{archive}: no files in it; download it again")
    return files


def _problem(member: Member, kinds: dict[str, str], limits: Limits) -> str:
    name = member.name.rstrip("/")
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or ":" in parts[0]:
        return "has an absolute path or a path of another system"
    if ".." in parts:
        return "has a path outside the target folder"
    if not name.isprintable() or {"", "."} & set(parts) or max(map(len, map(os.fsencode, parts))) > LONGEST_NAME:
        return "has an invalid name"
    if len(parts) > DEEPEST or len(os.fsencode(name)) > LONGEST_PATH:
        return "has a path that is too long"
    if member.kind not in ("file", "folder"):
        return f"is {member.kind}"
    if name in kinds:
        return "occurs twice"
    if member.size > max(CHUNK, member.packed * limits.ratio):
        return f"claims to unpack {member.packed:,} bytes to {member.size:,}"
    return ""


def _write(archive: Path, files: list[Member], target: Path) -> list[str]:
    tops = {member.name.split("/")[0] for member in files}
    strip = len(tops.pop()) + 1 if len(tops) == 1 and all("/" in member.name for member in files) else 0
    for member in files:
        path = target / member.name[strip:]
        path.parent.mkdir(parents=True, exist_ok=True)
        written = 0
        with open(path, "xb") as output:
            for chunk in _chunks(archive, member):
                written += len(chunk)
                output.write(chunk)
        if written != member.size:
            raise IntegrityError(f"{archive}: member {member.name!r} is cut at {written:,} bytes; download it again")
    return [member.name[strip:] for member in files]


def _chunks(archive: Path, member: Member) -> Iterator[bytes]:
    with contextlib.ExitStack() as stack:
        with _reading(archive):
            stream = stack.enter_context(member.open())
        while True:
            with _reading(archive):
                chunk = stream.read(CHUNK)
            if not chunk:
                return
            yield chunk


def _members(archive: Path, raw: IO[bytes], limits: Limits) -> Iterator[Member]:
    _check_directory(archive, raw, limits)
    content = zipfile.ZipFile(raw)
    for info in content.infolist():
        kind = "folder" if info.filename.endswith("/") else _kind(info)
        read = functools.partial(content.open, info)
        # zipfile cuts info.filename at a NUL; the original name is checked
        yield Member(info.orig_filename, kind, info.file_size, info.compress_size, read)


def _check_directory(archive: Path, raw: IO[bytes], limits: Limits) -> None:
    """Refuse a directory that is too large to read into memory."""
    size = raw.seek(0, os.SEEK_END)
    raw.seek(max(0, size - END_BYTES - 0xFFFF))
    tail = raw.read()
    at = tail.rfind(END)
    if at < 0 or len(tail) < at + END_BYTES:
        raise IntegrityError(f"{archive}: not a zip archive, or cut; download it again")
    if tail[max(0, at - ZIP64_BYTES) :].startswith(ZIP64):
        raise IntegrityError(f"{archive}: has the zip64 form of archives above 4 GB, which is not expected; refused")
    (directory,) = struct.unpack_from("<I", tail, at + 12)
    if directory > limits.members * ENTRY_BYTES:
        raise IntegrityError(
            f"{archive}: its directory has {directory:,} bytes, which is not expected; check the source"
        )


def _kind(info: zipfile.ZipInfo) -> str:
    if info.flag_bits & 1:
        return "encrypted"
    if info.compress_type not in METHODS:
        return "neither stored nor deflated"
    mode = info.external_attr >> 16
    kinds = {stat.S_IFLNK: "a link", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a pipe"}
    return kinds.get(stat.S_IFMT(mode), "file")
