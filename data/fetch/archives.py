"""Unpacking a .zip or a .tar that a stranger made: every member is judged before anything is written.

Refused, by name: paths that leave the target, links, devices, encrypted members, two of one name, a file where a folder
should be, names that no file should have; and, by number, too many members, too many bytes, bytes out of nothing.
"""

import bz2
import dataclasses
import functools
import gzip
import io
import lzma
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from bert.errors import IntegrityError
from data.fetch.transfer import check_space

CHUNK = 1 << 20
BLOCK = 64 << 20  # more is not read at once: only the headers of a hostile tar ask for that
END = b"PK\5\6"  # of a zip's directory: its size is 12 bytes behind
END_BYTES = 22
LONGEST_NAME = 255  # bytes, of one folder or file
ENTRY_BYTES = 1024  # of a zip's directory; ours have 46 and a short name
MAGIC: dict[bytes, Callable[[IO[bytes]], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    UnicodeDecodeError,
    NotImplementedError,
    struct.error,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What an archive may be."""

    members: int = 1000
    bytes: int = 8 << 30  # unpacked, together
    ratio: int = 200  # times its packed size, a member of more than a megabyte; for .tar.gz, the archive


@dataclasses.dataclass(frozen=True)
class Member:
    """One entry of an archive: `kind` is "file", "folder", or what it is instead."""

    name: str
    kind: str
    size: int
    packed: int | None  # bytes in the archive; None where members are not packed one by one
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, target: Path, limits: Limits | None = None) -> list[str]:
    """Writes an archive's files below `target`, an empty folder or none yet, and returns their names.

    A single folder that holds everything is left out of the names. Raises IntegrityError, naming the member, before
    anything is written; or, where the damage is found on the way, with nothing left behind. ResourceError: no room.
    """
    limits = limits or Limits()
    assert not target.exists() or not any(target.iterdir()), f"{target} is not empty"
    try:
        with open(archive, "rb") as raw:
            members = _zip(archive, raw, limits) if raw.read(2) == b"PK" else _tar(raw)
            files = _judged(archive, members, limits)
            check_space(target, sum(member.size for member in files))
            names = _write(archive, files, target)
    except DAMAGED as error:
        shutil.rmtree(target, ignore_errors=True)
        raise IntegrityError(f"{archive}: the archive is damaged ({error}); fetch it again") from error
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, OSError) and error.errno is None:  # bz2 speaks of damage this way
            raise IntegrityError(f"{archive}: the archive is damaged ({error}); fetch it again") from error
        raise
    return names


def _judged(archive: Path, members: Iterator[Member], limits: Limits) -> list[Member]:
    """The files among `members`, once all have passed."""
    kinds: dict[str, str] = {}
    files: list[Member] = []
    total, packed = 0, archive.stat().st_size
    for number, member in enumerate(members, start=1):
        if number > limits.members:
            raise IntegrityError(f"{archive}: more than {limits.members:,} members; it is not what it should be")
        problem = _problem(member, kinds, limits)
        total += member.size
        if not problem and total > limits.bytes:
            problem = f"takes the unpacked size past {limits.bytes:,} bytes"
        if not problem and member.packed is None and total > max(CHUNK, packed * limits.ratio):
            problem = f"takes the unpacked size past {limits.ratio} times the archive's"
        if problem:
            raise IntegrityError(f"{archive}: member {member.name[:200]!r} {problem}; nothing was unpacked")
        kinds[member.name.rstrip("/")] = member.kind
        files += [member] if member.kind == "file" else []
    for member in files:
        if above := next((str(p) for p in Path(member.name).parents if kinds.get(str(p)) == "file"), None):
            raise IntegrityError(f"{archive}: member {member.name!r} is below {above!r}, a file; nothing was unpacked")
    if not files:
        raise IntegrityError(f"{archive}: no files in it; fetch it again")
    return files


def _problem(member: Member, kinds: dict[str, str], limits: Limits) -> str:
    name = member.name.rstrip("/")
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or ":" in parts[0]:
        return "is an absolute path or another system's"
    if ".." in parts:
        return "leads out of the target"
    if not name.isprintable() or {"", "."} & set(parts) or max(map(len, map(os.fsencode, parts))) > LONGEST_NAME:
        return "has a name that no file should have"
    if member.kind not in ("file", "folder"):
        return f"is {member.kind}"
    if name in kinds:
        return "is there twice"
    if member.packed is not None and member.size > max(CHUNK, member.packed * limits.ratio):
        return f"claims {member.size:,} bytes from {member.packed:,}"
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
            raise IntegrityError(f"{archive}: member {member.name!r} is cut at {written:,} bytes; fetch it again")
    return [member.name[strip:] for member in files]


def _zip(archive: Path, raw: IO[bytes], limits: Limits) -> Iterator[Member]:
    _check_directory(archive, raw, limits)
    content = zipfile.ZipFile(raw)
    for info in content.infolist():
        mode = info.external_attr >> 16
        kind = "folder" if info.is_dir() else "encrypted" if info.flag_bits & 1 else _kind(mode)
        read = functools.partial(content.open, info)
        yield Member(info.orig_filename, kind, info.file_size, info.compress_size, read)  # zipfile cuts names at a NUL


def _check_directory(archive: Path, raw: IO[bytes], limits: Limits) -> None:
    """Refuses a directory so large that only reading it would exhaust the memory."""
    size = raw.seek(0, os.SEEK_END)
    raw.seek(max(0, size - END_BYTES - 0xFFFF))
    tail = raw.read()
    at = tail.rfind(END)
    if at < 0 or len(tail) < at + END_BYTES:
        raise IntegrityError(f"{archive}: no zip, or one that was cut; fetch it again")
    (directory,) = struct.unpack_from("<I", tail, at + 12)
    if directory > limits.members * ENTRY_BYTES:  # also the 0xFFFFFFFF of an enormous one, where it stands elsewhere
        raise IntegrityError(f"{archive}: its directory has {directory:,} bytes; it is not what it should be")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a pipe"}
    return kinds.get(stat.S_IFMT(mode), "file")


def _tar(raw: IO[bytes]) -> Iterator[Member]:
    raw.seek(0)
    head = raw.read(max(map(len, MAGIC)))
    raw.seek(0)
    opener = next((opener for magic, opener in MAGIC.items() if head.startswith(magic)), None)
    content = tarfile.TarFile(fileobj=_Guarded(opener(raw) if opener else raw))
    for info in content:
        name, size = info.name.removeprefix("./"), info.size if info.isreg() else 0
        if name != ".":  # `tar -C folder .` makes it
            yield Member(name, _tar_kind(info), size, None if opener else size, functools.partial(_read, content, info))


def _read(content: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    stream = content.extractfile(info)
    assert stream is not None, "a file has content"
    return stream


def _tar_kind(info: tarfile.TarInfo) -> str:
    if info.isdir():
        return "folder"
    if info.issym() or info.islnk():
        return "a link"
    if info.issparse():
        return "a sparse file"
    return "file" if info.isreg() else "a device or a pipe"


class _Guarded(io.RawIOBase):
    """A stream that does not read into memory what only a hostile header can ask for."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= BLOCK:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return bytes(self._stream.read(size))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())
