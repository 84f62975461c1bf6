"""Files: atomic writes, locks, hashes, full disks, and text from compressed files.

All text that a user gives is read by one rule, in `open_text`, `read_text`, `read_lines` and `read_csv`:

- It is UTF-8. A byte order mark at the beginning of the file is no part of it.
- A line ends with a line feed, or with a carriage return and a line feed. No other character ends one: a lone carriage
  return, U+0085, U+2028, a form feed and the like are part of the line, as for google-research/bert and `wc -l`.
- The last line needs no end. A file in which carriage returns alone stand for line ends is refused by what reads lines.
- CSV is quoted as RFC 4180 says; TSV of `tasks` is never quoted, as that of GLUE.
"""

import contextlib
import csv
import errno
import fcntl
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import stat
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from bert.core import compressed
from bert.core.errors import DamagedFile, InputError, ResourceError, UsageError
from bert.core.progress import SCREEN

SURROGATE = re.compile("[\ud800-\udfff]")
CHUNK = 1 << 20
HASHED_AT_ONCE = 4 << 20  # bytes; between two blocks a thread that hashes waits for the one that reads
MAX_LINE = 128 << 20  # characters; a line is held in memory, and a compressed file of some kilobytes can hold gigabytes
MAX_DESCRIPTION = 256 << 20  # bytes; the largest known is a tokenizer.json of 17 MB
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_FOLDER_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EACCES, errno.EPERM, errno.EISDIR)
PATIENCE = 10.0  # seconds to wait for a lock: the ranks of a killed launcher may live on for some seconds
STARTED_WITH = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # names of what the shell opened for this process
OPENERS: dict[str, Any] = {
    ".gz": gzip.open,  # it refuses what follows its streams
    ".bz2": compressed.of_bzip2,
    ".xz": compressed.of_xz,
    ".zst": lambda stream: _zstd(stream),
}


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Yield a file object; its content appears under `path` only if the block ends without an error.

    The content is first written to the hidden file `.NAME.partial`. If the process is killed, that file stays until
    `path` is written again. A symbolic link at `path` is replaced; its target is not changed. Raise UsageError if
    `path` is a folder.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; give the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with open(_claim(partial, required=False), mode, encoding=None if "b" in mode else "utf-8") as stream:
        try:
            os.ftruncate(stream.fileno(), 0)  # left by a process that was killed
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    flush_folder(path.parent)


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; wait until no other process holds it. Remove it at the end.

    Raise FileNotFoundError if the folder of the file does not exist, or if it is removed during the wait.
    """
    descriptor = _claim(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock ends: the next process must see that its file is another one
        os.close(descriptor)


def _claim(path: Path, required: bool = True) -> int:
    """Open a file, or make it, and wait for the exclusive lock on it. Return its descriptor.

    The content is not changed. A symbolic link is an error. If the file system has no locks, raise UsageError or, if
    the lock is not `required`, return without it.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            _wait_for_lock(descriptor, path, required)
            if _is_at(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the process that held the lock has removed or renamed this file


def _wait_for_lock(descriptor: int, path: Path, required: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if required:
            raise UsageError(f"{path}: cannot be locked ({error.strerror}); choose another disk") from error


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Make `folder` if it does not exist, and hold an exclusive lock on it while the block runs.

    The lock is the kernel's lock on the open file `.lock`; that the file exists means nothing. The lock ends with its
    process, so a killed process blocks nobody. It holds under every name of the folder, and between machines that share
    the folder over NFS 4 (before NFS 4: if the lock daemon runs).

    Raise UsageError if another process holds the lock for more than `PATIENCE` seconds, or if the folder cannot be
    written or locked.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            stack.callback(os.close, descriptor)
        except OSError as error:
            if is_full(error):
                raise
            raise UsageError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from error
        _lock(descriptor, folder)
        yield


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise UsageError(f"{folder}: another process uses it; wait, or choose another folder") from error
            time.sleep(0.1)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be locked ({error.strerror}); choose one on another disk") from error


def below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder at any depth, including those behind symbolic links, in no order.

    `Path.rglob` skips linked folders, and folders that may not be read. Here the latter raise PermissionError, except a
    disk's `lost+found`, which is skipped. A link to a folder that contains the link is skipped too.
    """
    pending: list[tuple[Path, frozenset[tuple[int, int]]]] = [(folder, frozenset())]
    while pending:
        here, around = pending.pop()
        status = here.stat()
        if (identity := (status.st_dev, status.st_ino)) in around:
            continue
        for entry in _entries(here):
            path = here / entry.name
            if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and path.is_dir()):
                pending.append((path, around | {identity}))
            elif path.is_file():
                yield path


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        if folder.name != "lost+found":
            raise
        return []


def write_json(path: Path, value: Any) -> None:
    """Write `value` atomically, with sorted keys, so that equal values give equal bytes."""
    with atomic_write(path) as stream:
        stream.write(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def open_regular(path: Path, pipes: bool = False) -> io.BufferedReader:
    """Open a file that a user names. Raise InputError for a FIFO, a socket or a device: reading it may never end.

    pipes: accept a pipe or terminal that this process was started with, such as `<(zcat questions.gz)` or /dev/stdin.
    """
    if "\0" in str(path):
        raise InputError(f"{str(path)!r}: no file has such a name; check the path")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would wait for a writer
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENODEV):  # a socket, or a device without a driver
            raise
        raise InputError(f"{path}: not a regular file; give the path of one") from error
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind) or (pipes and str(path).startswith(STARTED_WITH) and not stat.S_ISDIR(kind)):
        os.set_blocking(descriptor, True)
        return open(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise InputError(f"{path}: not a regular file; write its content to a file, and give the path of that")


def check_regular(path: Path) -> None:
    """Raise as `open_regular` does, for a file that a library will open."""
    open_regular(path).close()


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text in UTF-8. Raise ValueError if it is not JSON, or nested too deeply for Python."""
    try:
        return json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_description(path: Path) -> bytes:
    """Return the content of a file that describes others, such as a manifest or a model's configuration.

    Raise InputError as `open_regular` does, or if it has more than `MAX_DESCRIPTION` bytes: a sparse file of gigabytes
    takes no space on the disk.
    """
    with open_regular(path) as stream:
        content = stream.read(MAX_DESCRIPTION + 1)
    if len(content) > MAX_DESCRIPTION:
        raise InputError(f"{path}: more than {MAX_DESCRIPTION:,} bytes, which no such file has; restore it")
    return content


def read_json(path: Path) -> Any:
    """Return the value of a JSON file that describes others. Raise as `read_description` and `parse_json` do."""
    return parse_json(read_description(path))


def read_model_json(path: Path) -> Any:
    """Return the value of a JSON file in a model's folder. Raise InputError, naming the file, if there is none."""
    try:
        return read_json(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; the folder of a model must have one") from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); download it again") from error


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file in a model's folder. Raise InputError, naming the file, if there is none."""
    fields = read_model_json(path)
    if not isinstance(fields, dict):
        raise InputError(f"{path}: not a JSON object; download it again")
    return fields


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a regular file, in constant memory. Raise InputError if it is not regular."""
    digest, buffer = hashlib.sha256(), bytearray(HASHED_AT_ONCE)
    with open_regular(path) as stream, memoryview(buffer) as view:
        while size := stream.readinto(view):
            digest.update(view[:size])
    return digest.hexdigest()


def free_bytes(folder: Path) -> int:
    """Return the free bytes on the disk that has or will have `folder`."""
    folder = folder.absolute()
    return shutil.disk_usage(next(parent for parent in (folder, *folder.parents) if parent.exists())).free


def is_full(error: OSError) -> bool:
    """Return whether a write failed because the disk is full, or a quota or a limit on file sizes is reached."""
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
    """Write a file's content to the disk now. Otherwise a later rename could reach the disk first."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Write a folder's names to the disk, so that a crash of the machine cannot undo a rename in it.

    Do nothing if the file system or the permissions do not allow it.
    """
    try:
        flush(folder)
    except OSError as error:
        if error.errno not in NO_FOLDER_FLUSH:
            raise


class _Read:
    """Counts the bytes that are read from a compressed file, for a stage's progress."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        SCREEN.read(len(content))
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Yield a stream of a file's bytes; `.gz`, `.bz2`, `.xz` and `.zst` are decompressed.

    A pipe that the process was started with is accepted, as in `open_regular`. Raise InputError, naming the file, if it
    is missing, truncated or of another format, or if it is a FIFO, a socket or a device; UsageError for `.zst` without
    pyarrow.
    """
    try:
        with contextlib.ExitStack() as stack:
            stream: Any = stack.enter_context(open_regular(path, pipes=True))
            if decompressing := OPENERS.get(path.suffix.lower()):
                stream = stack.enter_context(decompressing(_Read(stream)))
            yield stream
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedFile(f"{path}: the compressed file is truncated or damaged ({error}); fetch it again") from error
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:  # of bz2: "Invalid data stream"
        if path.suffix.lower() in OPENERS and error.errno is None:
            raise DamagedFile(f"{path}: the compressed file is damaged ({error}); fetch it again") from error
        raise


@contextlib.contextmanager
def open_text(path: Path, errors: str = "strict") -> Iterator[IO[str]]:
    """Yield a text stream of a file. Raise as `open_bytes` does, and InputError if it is not UTF-8.

    The path "-" is standard input.
    """
    is_input = str(path) == "-"
    with (
        contextlib.nullcontext(sys.stdin.buffer) if is_input else open_bytes(path) as stream,
        decoded(stream, "standard input" if is_input else path, errors) as text,
    ):
        yield text


@contextlib.contextmanager
def decoded(stream: IO[bytes], path: Path | str, errors: str = "strict") -> Iterator[IO[str]]:
    """Yield the UTF-8 text of a stream of bytes; close the stream at the end.

    A byte order mark at the beginning is skipped. Line ends are not changed: `read_lines` and `read_text` handle them.
    Raise InputError, naming `path`, if it is not UTF-8.
    """
    try:
        with io.TextIOWrapper(stream, encoding="utf-8-sig", errors=errors, newline="\n") as text:
            yield text
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start} of the block read); convert it to UTF-8") from error


def pyarrow(what: str) -> Any:
    """Return the package pyarrow. Raise UsageError if it is missing. what: what needs it, for the message."""
    try:
        import pyarrow as package  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise UsageError(f"{what} needs pyarrow; pip install pyarrow") from error
    return package


def _zstd(stream: IO[bytes]) -> Any:
    package = pyarrow("reading .zst")
    return io.BufferedReader(package.CompressedInputStream(package.PythonFile(stream, mode="r"), "zstd"))


def read_text(path: Path, limit: int, remedy: str) -> str:
    """Return the whole text of a file, decompressed. Raise as `open_text` does; InputError above `limit` characters.

    A few kilobytes can decompress to gigabytes, so no file is read whole without a limit.
    """
    pieces, size = [], 0
    with open_text(path) as stream:
        while piece := stream.read(CHUNK):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise InputError(f"{path}: more than {limit:,} characters of text; {remedy}")
    return "".join(pieces).replace("\r\n", "\n")


def read_lines(stream: IO[str], path: Path | str) -> Iterator[str]:
    """Yield the lines of a stream of `open_text` by the rule of this module, each with "\\n" at its end.

    The last line of a file may lack it. Raise InputError for a line of more than `MAX_LINE` characters, or if all line
    ends of the file are carriage returns.
    """
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise InputError(f"{path}: line {number} has more than {MAX_LINE:,} characters; divide it into lines")
        yield _with_line_feed(line, number, path) if "\r" in line else line


def _with_line_feed(line: str, number: int, path: Path | str) -> str:
    """Return a line that has a carriage return in the form in which `read_lines` yields it."""
    if line.endswith("\r\n"):
        return line[:-2] + "\n"
    if line[-1] == "\n":
        return line
    line = line.removesuffix("\r")  # of a line end that is cut
    if number == 1 and "\r" in line:
        raise InputError(f"{path}: its only line ends are carriage returns; convert them to line feeds")
    return line


def read_csv(lines: Iterable[str], path: Path | str, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV table (RFC 4180), each with the number of its first line, from 1.

    Empty lines are skipped. Line ends within quotes are part of the value. Raise InputError if it is not CSV.
    """
    csv.field_size_limit(MAX_LINE)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:  # a quote that does not end would join all rows up to the next one
            reason = "a carriage return in a value without quotes" if "new-line" in str(error) else error
            raise InputError(
                f"{path}: line {line}: not CSV ({reason}); quote values that have quotes or line ends in them"
            ) from error
        if row is None:
            return
        if row:
            yield line, row
