"""What libraries print goes to a log file, and the screen is left to the command.

TensorFlow, XLA, Horovod and absl write to file descriptor 2, some of it whatever their log levels are, and to Python's
`logging`. A command keeps the screen for its own messages: `prepare` gives sys.stderr a descriptor of its own when
TensorFlow is imported, and descriptor 2 becomes a log file. Only commands do this. In a program that imports bert the
descriptor is the program's own: there `withheld` drops the lines of libraries while TensorFlow and the device start.

The file is removed when the command ends well, or by an error that its line explains. Else a line names it. A process
that a library aborts cannot print that line: the traceback of faulthandler has the file's name, as the name of a file
with code (`frame`). BERT_VERBOSE=1 leaves all messages on the screen.

Of several ranks the first one has its file in the work folder. The others, which may be thousands, have theirs on the
disk of their host, and leave the work folder, which may be shared, alone.
"""

import contextlib
import faulthandler
import logging
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from bert.core import paths, progress

VERBOSE = "BERT_VERBOSE"
FILES = 100  # in a folder of logs; the oldest are removed, unless their process runs
LARGEST = 16 << 20  # bytes of a file; then its second half is dropped
LOOK = 60.0  # seconds after which a process looks at its file again
RUNS = 10 * LOOK  # a file that has changed within this time belongs to a running process

# A line of absl's or XLA's log below FATAL, in either form, and what two of TensorFlow's go on with.
OF_A_LIBRARY = re.compile(
    rb"[IWE]\d{4} \d\d:\d\d:|[-\d]{10} [:.\d]+: [IWE] |WARNING: All log messages before absl|To enable the following"
)

_path: Path | None = None  # of this process; None if messages stay on the screen
_is_open = False


def prepare(command: str) -> None:
    """From the import of TensorFlow on, send what libraries print to a new file, which is named after the command."""
    if os.environ.get(VERBOSE, "0") in ("", "0"):
        share(_new(command))


def path() -> Path | None:
    """Return the path of the file, which exists after the import of TensorFlow; None if messages stay on the screen."""
    return _path


def share(path: Path | None) -> None:
    """Send what libraries print to the file of the process that this process works for."""
    global _path
    _path = path


def _new(command: str) -> Path:
    """Return the path of a new file in the work folder or in this host's temporary folder.

    The temporary folder is for ranks other than the first, and is used if there is no work folder.
    """
    work = paths.workdir()
    in_work = progress.is_first_rank() and work.is_dir() and os.access(work, os.W_OK)
    folder = work / "logs" if in_work else paths.temporary("logs")
    return folder / f"{command}-{time.strftime('%Y%m%d-%H%M%S')}-{os.uname().nodename}-{os.getpid()}.log"


def frame() -> CodeType:
    """Return code that calls `function(argv)`. Tracebacks show the log's name as the name of its source file."""
    return compile("function(argv)", f"messages of libraries are in {_path}" if _path else "<command>", "exec")


def begin() -> None:
    """If the command is prepared for it, open the file and send file descriptor 2 and `logging` to it."""
    global _is_open
    if _path is None or _is_open:
        return
    _is_open = True
    log = _open()
    stream, screen = sys.stderr, None
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or not a file
        stream.flush()
        screen = os.dup(2) if stream.fileno() == 2 else None
    os.dup2(log, 2)
    if screen is not None:
        sys.stderr = os.fdopen(screen, "w", buffering=1, encoding=stream.encoding, errors=stream.errors)
        faulthandler.enable(sys.stderr)
    handler = _Handler(os.fdopen(log, "w", buffering=1, encoding="utf-8", errors="backslashreplace"))
    handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    logging.getLogger().addHandler(handler)  # TensorFlow and absl then add no other handler
    threading.Thread(target=_limit, name="log", daemon=True).start()


@contextlib.contextmanager
def withheld() -> Iterator[None]:
    """Drop what libraries write to file descriptor 2 in the block, unless the block fails or BERT_VERBOSE is set.

    Other lines, such as those from the program's threads, are written at the end.
    """
    screen = None
    if not _is_open and os.environ.get(VERBOSE, "0") in ("", "0"):
        with contextlib.suppress(OSError):  # it is closed
            screen = os.dup(2)
    if screen is None:
        yield
        return
    dropped: re.Pattern[bytes] | None = OF_A_LIBRARY
    with tempfile.TemporaryFile() as lines:
        os.dup2(lines.fileno(), 2)
        try:
            yield
        except BaseException:
            dropped = None
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)
            lines.seek(0)
            for line in lines:
                if dropped is None or not dropped.match(line):
                    os.write(2, line)


def _open() -> int:
    """Return a descriptor of the file, or of /dev/null if the file cannot be written."""
    global _path
    assert _path is not None
    try:
        if _path.parent == paths.temporary("logs"):
            paths.make_private(_path.parent)
        else:
            _path.parent.mkdir(parents=True, exist_ok=True)
        _remove_old(_path.parent)
        return os.open(_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:
        _path = None
        return os.open(os.devnull, os.O_WRONLY)


def _remove_old(folder: Path) -> None:
    """Remove the oldest logs of ended processes, so that there are at most `FILES` logs including the next one.

    Another process may do the same at the same time.
    """
    times = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".log"):
                with contextlib.suppress(OSError):
                    times.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    for changed, path in sorted(times)[: max(0, len(times) - FILES + 1)]:
        if time.time() - changed > RUNS:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _limit() -> None:
    while True:
        time.sleep(LOOK)
        with contextlib.suppress(OSError):
            look_after(2)


def look_after(log: int) -> None:
    """Update the file's time, which shows that its process runs. Drop its second half if it is too large.

    The next lines are written after the first half.
    """
    os.utime(log)
    if os.fstat(log).st_size > LARGEST:
        os.ftruncate(log, LARGEST // 2)


class _Handler(logging.StreamHandler):
    """Writes to the file. A full disk is not an error of the command."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def end(keep: bool) -> None:
    """Print the name of the file if it is to be kept and is not empty; otherwise remove the file."""
    global _path
    path, _path = _path, None
    if path is None or not _is_open:
        return
    with contextlib.suppress(OSError):
        if keep and path.stat().st_size:
            print(f"note: messages of TensorFlow and other libraries are in {path}", file=sys.stderr, flush=True)
        else:
            path.unlink()
