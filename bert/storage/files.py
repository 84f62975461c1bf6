"""Files: atomic writes, locks, hashes, full disks, and text from compressed files."""

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
PATIENCE = 10.0  # seconds to wait for a lock: the ranks of a killed launcher may live on for some seconds
OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Yield a file object; its content appears under `path` only if the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes private files
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
    """Make `folder` if it does not exist, and hold an exclusive lock on it while the block runs.

    The lock is the kernel's lock on the open file `.lock`, not the existence of that file. It ends with its process,
    so a killed process blocks nobody. It holds under every name of the folder, and between machines that share the
    folder over NFS 4 (before NFS 4: where the lock daemon runs).

    Raise UsageError if another process holds the lock for more than `PATIENCE` seconds, or if the folder cannot be
    written or locked.
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
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise UsageError(f"{folder}: another process uses it; wait, or choose another folder") from error
            time.sleep(0.1)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be locked ({error.strerror}); choose one on another disk") from error


def write_json(path: Path, value: Any) -> None:
    """Write `value` atomically, with sorted keys, so that equal values give equal bytes."""
    with atomic_write(path) as stream:
        stream.write(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text in UTF-8. Raise ValueError if it is none, or nested deeper than Python parses."""
    try:
        return json.loads(text.decode("utf-8") if isinstance(text, bytes) else text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json(path: Path) -> Any:
    """Return the value of a JSON file. Raises as `parse_json` does, and OSError."""
    return parse_json(path.read_bytes())


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file, in constant memory."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk where `folder` is or will be."""
    folder = folder.absolute()
    return shutil.disk_usage(next(parent for parent in (folder, *folder.parents) if parent.exists())).free


def is_full(error: OSError) -> bool:
    """Return whether a write failed because the disk, a quota or a limit on file sizes is exhausted."""
    return error.errno in FULL


@contextlib.contextmanager
def room(folder: Path) -> Iterator[None]:
    """Raise ResourceError, naming `folder`, if a write in the block fails because the disk is full."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        reason = "the limit on file sizes is reached" if error.errno == errno.EFBIG else "the disk is full"
        free = free_bytes(folder)
        raise ResourceError(f"{folder}: {reason} ({free:,} bytes are free); make room, then repeat") from error


def flush(path: Path) -> None:
    """Write a file's content to the disk, so that a later rename cannot reach the disk before it."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


@contextlib.contextmanager
def open_text(path: Path, errors: str = "strict") -> Iterator[IO[str]]:
    """Yield a UTF-8 text stream of a file; `.gz`, `.bz2` and `.xz` are decompressed.

    Raise InputError, naming the file, if it is missing, truncated, not of its format, or not UTF-8.
    """
    try:
        with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8", errors=errors) as stream:
            yield stream
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: the compressed file is truncated or damaged ({error}); fetch it again") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start} of the block read); convert it to UTF-8") from error
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:  # of bz2: "Invalid data stream"
        if path.suffix in OPENERS and error.errno is None:
            raise InputError(f"{path}: the compressed file is damaged ({error}); fetch it again") from error
        raise
