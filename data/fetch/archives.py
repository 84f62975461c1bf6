"""Unpack an untrusted .zip archive: all members are checked before anything is written.

An archive is refused if a member has a path outside the target, is a link, a device or encrypted, has an invalid or a
repeated name, or is a file where a folder should be. It is refused if it has too many members, too many bytes, or a
compression ratio that only a zip bomb has.
"""

import dataclasses
import functools
import lzma
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from bert.errors import IntegrityError
from data.fetch.transfer import check_space

CHUNK = 1 << 20
END = b"PK\5\6"  # the signature of the end record; the directory's size is stored 12 bytes after it
END_BYTES = 22
LONGEST_NAME = 255  # bytes of one path component
ENTRY_BYTES = 1024  # of the directory, per member; an entry has 46 bytes and the name
DAMAGED = (
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    UnicodeDecodeError,
    NotImplementedError,
    struct.error,
)


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
            files = _checked_files(archive, _members(archive, raw, limits), limits)
            check_space(target, sum(member.size for member in files))
            names = _write(archive, files, target)
    except DAMAGED as error:
        shutil.rmtree(target, ignore_errors=True)
        raise IntegrityError(f"{archive}: the archive is damaged ({error}); download it again") from error
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, OSError) and error.errno is None:  # this is how bz2 reports damage
            raise IntegrityError(f"{archive}: the archive is damaged ({error}); download it again") from error
        raise
    return names


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
        with member.open() as stream, open(path, "xb") as output:
            while chunk := stream.read(CHUNK):
                written += len(chunk)
                output.write(chunk)
        if written != member.size:
            raise IntegrityError(f"{archive}: member {member.name!r} is cut at {written:,} bytes; download it again")
    return [member.name[strip:] for member in files]


def _members(archive: Path, raw: IO[bytes], limits: Limits) -> Iterator[Member]:
    _check_directory(archive, raw, limits)
    content = zipfile.ZipFile(raw)
    for info in content.infolist():
        mode = info.external_attr >> 16
        kind = "folder" if info.is_dir() else "encrypted" if info.flag_bits & 1 else _kind(mode)
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
    (directory,) = struct.unpack_from("<I", tail, at + 12)
    if directory > limits.members * ENTRY_BYTES:  # zip64 archives have 0xFFFFFFFF here
        raise IntegrityError(
            f"{archive}: its directory has {directory:,} bytes, which is not expected; check the source"
        )


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a pipe"}
    return kinds.get(stat.S_IFMT(mode), "file")
