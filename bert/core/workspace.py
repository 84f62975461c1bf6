"""The hidden folder beside an output, in which the output is built.

The output `NAME` is built in `.NAME.partial`, in the same parent folder. No two outputs share this name, and an output
cannot have a name of this form. The folder holds

- `lock`, while a process changes the output or the folder itself,
- a work folder for each set of inputs and parameters, named by their digest: `output`, which becomes `NAME`; `private`,
  for what the build needs to remember; and `alive`, which is locked while a process uses the work folder,
- `previous`, between the two renames that replace an earlier output. If a process is killed there, the next one finds
  no output and puts the previous one back.

Everything else in it was left by a process that was killed, and is removed by the next one.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bert.core import files
from bert.core.errors import UsageError
from bert.core.manifest import NAME

FORM = re.compile(r"\..+\.partial", re.DOTALL)
LOCK, PREVIOUS, REMOVED, ALIVE = "lock", "previous", "removed", "alive"


class Work(NamedTuple):
    """A work folder: where to write the output, and where to keep what the build needs."""

    output: Path
    private: Path


class Workspace:
    """The hidden folder of one output. `output` is where to write the output; a symbolic link is followed."""

    def __init__(self, output: Path) -> None:
        """Raise UsageError if an output cannot have this name."""
        self.output = target(output)
        self.hidden = self.output.with_name(f".{self.output.name}.partial")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the output's lock while the block runs; wait until no other process holds it.

        Restore an output whose replacement was interrupted. Raise UsageError if the parent folder cannot be written.
        """
        try:
            with self._lock():
                self._recover()
                yield
        finally:
            with contextlib.suppress(OSError):  # not empty
                self.hidden.rmdir()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with contextlib.ExitStack() as locks:
            try:
                while not self._try_lock(locks):
                    pass
            except OSError as error:
                if files.is_full(error):
                    raise
                reason = f"cannot be written ({error.filename}: {error.strerror})"
                raise UsageError(f"{self.output}: {reason}; choose another output folder") from error
            yield

    def _try_lock(self, locks: contextlib.ExitStack) -> bool:
        """Make the hidden folder and lock it. Return False if the process that held the lock has removed the folder."""
        self.output.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.hidden.mkdir()
        except FileExistsError:
            if self.hidden.is_symlink() or self.hidden.is_file():
                raise
        try:
            locks.enter_context(files.hold(self.hidden / LOCK))
        except FileNotFoundError:
            return False
        return True

    def _recover(self) -> None:
        previous = self.hidden / PREVIOUS
        if previous.exists():
            if self.output.exists():
                self._remove(previous)
            else:
                os.replace(previous, self.output)
                files.flush_folder(self.output.parent)

    @contextlib.contextmanager
    def work(self, digest: str) -> Iterator[Work]:
        """Use the work folder of `digest` while the block runs; remove all others. Hold the lock to enter.

        Raise UsageError if another process uses one of the others, or if the existing output cannot be renamed.
        """
        self.clear(keep=digest)
        self._check_rename()
        folder = self.hidden / digest
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder / ALIVE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            work = Work(folder / "output", folder / "private")
            for path in work:
                path.mkdir(exist_ok=True)
            yield work
        finally:
            os.close(descriptor)

    def _check_rename(self) -> None:
        """Rename the existing output and back. Raise UsageError if that fails, as for a mount point."""
        if self.output.exists():
            try:
                os.replace(self.output, self.hidden / PREVIOUS)
                os.replace(self.hidden / PREVIOUS, self.output)
            except OSError as error:
                reason = f"cannot be replaced ({error.strerror})"
                raise UsageError(f"{self.output}: {reason}; choose another output folder") from error

    def publish(self, made: Path) -> None:
        """Give the folder `made` the name of the output. Its files are flushed already. The caller holds the lock."""
        if self.output.exists():
            os.replace(self.output, self.hidden / PREVIOUS)
        os.replace(made, self.output)
        files.flush_folder(self.output.parent)

    def discard(self) -> None:
        """Remove the output. The caller holds the lock."""
        if self.output.exists():
            self._remove(self.output)

    def clear(self, keep: str | None = None) -> None:
        """Remove everything except the work folder of the digest `keep`. The caller holds the lock.

        Raise UsageError if another process uses a folder that is to be removed.
        """
        self._recover()
        shutil.rmtree(self.hidden / REMOVED, ignore_errors=True)
        for entry in list(self.hidden.iterdir()):
            if entry.name not in (LOCK, REMOVED, keep):
                self._check_unused(entry)
                self._remove(entry)

    def _check_unused(self, entry: Path) -> None:
        if not (entry / ALIVE).exists():
            return
        with open(entry / ALIVE, "rb+") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(
                    f"{self.output}: another process makes it from other inputs or parameters; wait, or choose another "
                    "output folder"
                ) from error

    def _remove(self, entry: Path) -> None:
        """Remove a file or folder. Rename it first, because a folder with this name must be complete."""
        removed = self.hidden / REMOVED
        try:
            os.replace(entry, removed)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # A container's file system (overlay) renames no folder of its image. Without a manifest it is not complete.
            (entry / NAME).unlink(missing_ok=True)
            removed = entry
        if removed.is_dir() and not removed.is_symlink():
            shutil.rmtree(removed, ignore_errors=True)
        else:
            removed.unlink()


def target(output: Path) -> Path:
    """Return the folder to write: `output` or, if it is a symbolic link, its target.

    Raise UsageError if a finished folder cannot get its name: it is the current folder, one above it, a mounted disk,
    or the hidden folder of another output.
    """
    try:
        real, here, is_link = output.resolve(), Path.cwd(), output.is_symlink()
    except (OSError, RuntimeError) as error:  # a loop of links; a name that is too long; the current folder is removed
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{output}: cannot be written ({reason}); choose another output folder") from error
    if real == here or real in here.parents:
        raise UsageError(f"{str(output)!r}: is the current folder or above it; choose another output folder")
    if os.path.ismount(real):
        raise UsageError(f"{output}: a disk is mounted there; choose a folder in it, such as {output / 'NAME'}")
    if FORM.fullmatch(real.name):
        raise UsageError(f"{output}: names of this form are for unfinished outputs; choose another output folder")
    return real if is_link or output.name in ("", "..") else output
