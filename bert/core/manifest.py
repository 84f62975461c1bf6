"""Manifests of finished folders: what a folder holds, what made it, and whether it still is as it was written.

A folder with a `manifest.json` is complete; `bert.core.outputs` writes it last. The manifest contains no time and no
absolute path: equal inputs and parameters give equal bytes. It has a checksum (`bert.core.checked_json`).

A manifest can come from a stranger or a bad disk. So every value is checked before it is used, and a name in it never
leads out of its folder.
"""

import dataclasses
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from bert.core import checked_json, files, raw_hashes
from bert.core.errors import InputError, IntegrityError

NAME = "manifest.json"
EXPORT = "export "  # begins the stages that write models for other programs
WORDS = (b'"checksum":', b'"counts":', b'"inputs":', b'"stage":', b'"versions":')  # of them, ours has two or more
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """What a manifest records about a file."""

    bytes: int
    sha256: str
    records: int | None = None
    """number of its lines or records, if it has any"""
    source: str | None = None
    """name of the source of its documents, such as "books", if all are of one"""

    def __post_init__(self) -> None:
        if self.bytes < 0 or (self.records or 0) < 0:
            raise ValueError(f"{min(self.bytes, self.records or 0)} bytes or records")
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError("sha256 is not a SHA-256")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Content:
    """The fields of `manifest.json`."""

    stage: str
    parameters: dict[str, Any]
    inputs: dict[str, str]
    versions: dict[str, str]
    files: dict[str, File]
    counts: dict[str, int | dict[str, int]]
    extra: dict[str, Any]

    def __post_init__(self) -> None:
        for name in self.files:
            check_name(name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(Content):
    """The content of `manifest.json` and the folder it describes."""

    path: Path

    def extra_as(self, kind: type[T]) -> T:
        """Return `extra` as an instance of the dataclass `kind`. Raise IntegrityError if it does not fit."""
        try:
            result: T = checked_json.take(kind, self.extra, "extra")
        except ValueError as error:
            raise IntegrityError(f"{self.path / NAME}: {error}; build the folder again") from error
        return result

    def count(self, name: str) -> int:
        """Return a number of `counts`. Raise IntegrityError if there is none with this name."""
        if not isinstance(number := self.counts.get(name), int):
            raise IntegrityError(f"{self.path / NAME}: no number counts.{name}; build the folder again")
        return number


def check_name(name: str) -> None:
    """Raise ValueError unless `name` is a relative path, with "/" between its parts, that stays in its folder."""
    if not name or "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{name[:80]!a} is not the name of a file in this folder")


def write(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest of `folder`. This need not be atomic: the folder gets its final name later.

    Raise InputError if the folder has a file whose name a manifest cannot hold.
    """
    try:
        checked_json.take(Content, content)
    except ValueError as error:
        raise InputError(f"{folder}: {error}; rename the input file") from error
    (folder / NAME).write_text(checked_json.text(content), encoding="utf-8")
    files.flush(folder / NAME)


def read(folder: Path) -> Manifest:
    """Read a folder's manifest without checking the files.

    Raise FileNotFoundError if there is no manifest, IntegrityError if it is damaged.
    """
    try:
        content = checked_json.read(folder / NAME, Content, what="a manifest of ours", remedy="build the folder again")
    except (NotADirectoryError, IsADirectoryError) as error:
        raise IntegrityError(f"{folder / NAME}: not a manifest of ours ({error.strerror}); check the path") from error
    return Manifest(path=folder, **vars(content))


def load(folder: Path, stage: str | None = None) -> Manifest:
    """Read a folder's manifest; check that every listed file exists and has the listed size.

    Raise InputError if the folder is not the finished output of a stage. Raise IntegrityError if the manifest is
    damaged, or if a file is missing, has another size, or is a link out of the folder.
    """
    try:
        content = read(folder)
    except FileNotFoundError as error:
        reason = f"no {NAME}: the stage that makes it has not finished" if folder.exists() else "no such folder"
        remedy = f"run python -m data.{stage}" if stage else "run the stage that makes it"
        raise InputError(f"{folder}: {reason}; {remedy}") from error
    if stage and content.stage != stage:
        raise InputError(f"{folder}: made by stage {content.stage!r}, but stage {stage!r} is needed; check the path")
    check_inside(folder, content.files)
    for name, listed in content.files.items():
        if (size := _size(folder / name)) != listed.bytes:
            state = "is missing" if size is None else f"has {size} bytes, not {listed.bytes}"
            raise IntegrityError(f"{folder / name}: the file {state}; remove the folder and build it again")
    return content


def _size(path: Path) -> int | None:
    """Return the size of a regular file in bytes, or None if there is no such file."""
    try:
        status = path.stat()
    except OSError as error:
        if error.errno not in ABSENT:
            raise
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def check_inside(folder: Path, names: Iterable[str], *, links: bool = False) -> None:
    """Raise IntegrityError if a name cannot be a file's name in `folder`, or leads through a link out of it.

    links: the files themselves may be links to any place.
    """
    home, parents = os.path.realpath(folder), dict[str, bool]()
    for name in names:
        try:
            check_name(name)
        except ValueError as error:
            raise IntegrityError(f"{folder}: {error}; remove the folder and build it again") from error
        path = os.path.join(folder, name)
        parent = os.path.dirname(path)
        if parent not in parents:
            parents[parent] = _is_below(home, parent)
        if not parents[parent] or (not links and _is_link(path) and not _is_below(home, path)):
            raise IntegrityError(f"{path}: a symbolic link leads out of the folder; copy the file itself here")


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False  # it is missing


def _is_below(home: str, path: str) -> bool:
    return os.path.commonpath([home, os.path.realpath(path)]) == home


def verify(content: Manifest) -> None:
    """Hash every file that the manifest lists; raise IntegrityError, naming the first file that has changed."""
    for name, listed in content.files.items():
        verify_file(content.path / name, listed.sha256)


def verify_file(path: Path, sha256: str) -> None:
    """Raise IntegrityError unless the file has this hash, which its manifest records."""
    try:
        actual = files.sha256(path)
    except FileNotFoundError as error:
        raise IntegrityError(f"{path}: the file is missing; build it again") from error
    if actual != sha256:
        raise IntegrityError(f"{path}: the content has changed since it was written; build it again")


def content_hash(path: Path, hash_raw: Callable[[Path], str] = files.sha256) -> str:
    """Return the hash of a file, of a finished folder's manifest, or of the names and contents of another folder.

    hash_raw: returns the SHA-256 of a file that is not in a finished folder. Raise InputError if there is nothing at
    this path. Raise IntegrityError if the manifest is damaged, or if a file in a finished folder has changed. For a
    finished folder, this does not read the files: the stage that uses the folder verifies it.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; check the path")
    if is_finished(path):
        read(path)
        return files.sha256(path / NAME)
    recorded = recorded_hashes(path)
    if not path.is_dir():
        return _verified_hash(path, recorded.get(path), hash_raw)
    inside = sorted(file for file in files.below(path) if not raw_hashes.MARKER.fullmatch(file.name))
    hashes = [_verified_hash(file, recorded.get(file), hash_raw) for file in inside]
    return _combine([(str(file.relative_to(path)), sha256) for file, sha256 in zip(inside, hashes, strict=True)])


def is_finished(folder: Path) -> bool:
    """Return whether a folder has a manifest of this program, damaged or not.

    Other programs have files of the same name. A file that is not JSON counts as a damaged manifest of ours.
    """
    try:
        content = files.read_description(folder / NAME)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    if sum(word in content for word in WORDS) >= 2:
        return True
    try:
        checked_json.parse(content)
    except (ValueError, RecursionError):
        return True
    return False


def recorded_hashes(path: Path) -> dict[Path, str]:
    """Return the SHA-256 of `path`, or of the files below it, from the manifest of the finished folder around it.

    The result is empty if no finished folder contains `path`, or if that is an export, which a user may change. Raise
    IntegrityError if the manifest is damaged.
    """
    real = path.resolve()
    home = next((folder for folder in (real, *real.parents) if is_finished(folder)), None)
    if home is None or (content := read(home)).stage.startswith(EXPORT):
        return {}
    below = os.path.relpath(real, home)
    listed = {os.path.relpath(name, below): entry.sha256 for name, entry in content.files.items()}
    return {
        path if name == "." else path / name: sha256
        for name, sha256 in listed.items()
        if name != ".." and not name.startswith("../")
    }


def _verified_hash(path: Path, recorded: str | None, hash_raw: Callable[[Path], str]) -> str:
    if recorded is None:
        return hash_raw(path)
    verify_file(path, recorded)
    return recorded


def _combine(pairs: list[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()
