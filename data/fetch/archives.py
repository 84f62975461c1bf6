"""Unpack an untrusted .zip archive: all members are checked before anything is written.

An archive is refused if a member would be written outside the target, is a link, a device or encrypted, has a name that
some system cannot store, occurs twice, or is a file where a folder should be. It is refused if it has too many members,
too many bytes, or a compression ratio that only a zip bomb has. Members are stored or deflated: Python unpacks the
other methods, bzip2 and LZMA, without a bound on memory.
"""

import dataclasses
import errno
import io
import re
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from bert.core.errors import IntegrityError, UserError
from data.fetch.transfer import check_space

CHUNK = 1 << 20
DIRECTORY = 1 << 20  # bytes of the list of members; an entry has 46 bytes and the name
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
NAME = re.compile(r"[\w.+()@, -]+(/[\w.+()@, -]+)*/?", re.ASCII)  # names that are the same on every system
LONGEST = 255  # characters of a path below the target


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What an archive may hold."""

    members: int = 1000
    bytes: int = 8 << 30  # unpacked, all members together
    ratio: int = 200  # of the unpacked to the packed size, for members of more than a megabyte


class _Archive(io.FileIO):
    """An archive's file. `zipfile` reads the list of members, of any size, by one call, and a member in pieces."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > DIRECTORY:
            raise IntegrityError(f"{self.name}: its directory has {size:,} bytes, which is not expected; refused")
        return super().read(size) or b""


def unpack(archive: Path, target: Path, limits: Limits | None = None) -> list[str]:
    """Write the files of a zip archive below `target`, an empty or a missing folder, and return their names.

    A single top folder that holds everything is left out of the names. Raise IntegrityError, naming the member, before
    anything is written; if damage is found later, what was written is removed. Raise ResourceError if there is no room.
    """
    assert not target.exists() or not any(target.iterdir()), f"{target} is not empty"
    try:
        with _Archive(archive) as raw, zipfile.ZipFile(raw) as content:
            members = _checked(archive, content.infolist(), limits or Limits())
            check_space(target, sum(member.file_size for member in members))
            tops = {member.filename.split("/")[0] for member in members}
            strip = len(tops.pop()) + 1 if len(tops) == 1 and all("/" in member.filename for member in members) else 0
            for member in members:
                path = target / member.filename[strip:]
                path.parent.mkdir(parents=True, exist_ok=True)
                with content.open(member) as packed, open(path, "xb") as output:
                    shutil.copyfileobj(packed, output, CHUNK)
            return [member.filename[strip:] for member in members]
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        # A damaged archive makes `zipfile` raise BadZipFile, zlib.error, EOFError, struct.error, UnicodeDecodeError,
        # NotImplementedError, IndexError, and OSError for a place before the file's beginning.
        if isinstance(error, UserError | MemoryError) or not isinstance(error, Exception):
            raise
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise IntegrityError(f"{archive}: the archive is damaged ({str(error)[:200]}); download it again") from error


def _checked(archive: Path, members: list[zipfile.ZipInfo], limits: Limits) -> list[zipfile.ZipInfo]:
    """Check all members and return the files among them."""
    if len(members) > limits.members:
        raise IntegrityError(
            f"{archive}: more than {limits.members:,} members, which is not expected; check the source"
        )
    seen: set[str] = set()
    total = 0
    files = [member for member in members if not member.is_dir()]
    folders = {str(folder) for member in files for folder in PurePosixPath(member.filename).parents}
    for member in members:
        name, total = member.filename.rstrip("/"), total + member.file_size
        problem = _problem(member, limits)
        if not problem and total > limits.bytes:
            problem = f"brings the unpacked size above {limits.bytes:,} bytes"
        if not problem and (name in seen or (name in folders and not member.is_dir())):
            problem = "occurs twice"
        if problem:
            raise IntegrityError(f"{archive}: member {member.orig_filename[:200]!r} {problem}; nothing was unpacked")
        seen.add(name)
    if not files:
        raise IntegrityError(f"{archive}: no files in it; download it again")
    return files


def _problem(member: zipfile.ZipInfo, limits: Limits) -> str:
    name, mode = member.orig_filename, member.external_attr >> 16  # zipfile cuts `filename` at a NUL
    if name.startswith("/") or ".." in name.split("/"):
        return "has a path outside the target folder"
    if not NAME.fullmatch(name) or "." in name.split("/"):
        return "has an invalid name"
    if len(name) > LONGEST:
        return "has a path that is too long"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link, a device or a pipe"
    if member.flag_bits & 1:
        return "is encrypted"
    if member.compress_type not in METHODS:
        return "is neither stored nor deflated"
    if member.file_size > max(CHUNK, member.compress_size * limits.ratio):
        return f"claims to unpack {member.compress_size:,} bytes to {member.file_size:,}"
    return ""
