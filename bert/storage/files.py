"""Files that are either whole or absent: atomic writes, hashes, and text from compressed sources."""

import bz2
import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import lzma
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bert.errors import InputError, ResourceError, UsageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PATIENCE = 10.0  # seconds: what a killed launcher started may outlive it by some
OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file object whose content appears under `path` only when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes private files; these are to be shared as any other
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Makes `folder`, if need be, and keeps every other caller of this out of it while the block runs.

    The kernel's lock on the open file `.lock` is what counts, not that the file is there: it ends with its process,
    however that ends, so a killed one blocks nobody. It holds under every name of the folder, and between the machines
    that share it over NFS (since version 4; before, where its lock daemon runs). Raises UsageError if `PATIENCE`
    seconds pass in vain, or the folder cannot be written or locked.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stream = stack.enter_context(open(folder / ".lock", "a"))
        except OSError as error:
            if is_full(error):
                raise
            raise UsageError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from error
        _lock(stream, folder)
        yield


def _lock(stream: IO[str], folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise UsageError(f"{folder}: another process works in it; wait, or choose another folder") from error
            time.sleep(0.1)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be locked ({error.strerror}); choose one on another disk") from error


def write_json(path: Path, value: Any) -> None:
    """Writes `value` atomically, with sorted keys, so that equal values give equal bytes."""
    with atomic_write(path) as stream:
        stream.write(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes, in constant memory."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def free_bytes(folder: Path) -> int:
    """What is free on the disk where `folder` is or will be."""
    folder = folder.absolute()
    return shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free


def is_full(error: OSError) -> bool:
    """Whether writing failed because the disk, a quota or a limit is exhausted."""
    return error.errno in FULL


@contextlib.contextmanager
def room(folder: Path) -> Iterator[None]:
    """What is written in the block goes to `folder`: raises ResourceError, naming it, if there is no room for that."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        reason = "a limit on the size of files is reached" if error.errno == errno.EFBIG else "the disk is full"
        free = free_bytes(folder)
        raise ResourceError(f"{folder}: {reason} ({free:,} bytes are free); make room, then repeat") from error


def flush(path: Path) -> None:
    """Brings a file's content to the disk: a rename may reach it before the content that it names."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


@contextlib.contextmanager
def open_text(path: Path, errors: str = "strict") -> Iterator[IO[str]]:
    """A UTF-8 text stream; `.gz`, `.bz2` and `.xz` are decompressed on the way.

    Raises InputError, naming the file, if it is missing, cut, not of its format, or not UTF-8.
    """
    try:
        with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8", errors=errors) as stream:
            yield stream
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: the compressed file is cut or damaged ({error}); fetch it again") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start} of the block read); convert it first") from error
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:  # bz2 says "Invalid data stream" this way
        if path.suffix in OPENERS and error.errno is None:
            raise InputError(f"{path}: the compressed file is damaged ({error}); fetch it again") from error
        raise
