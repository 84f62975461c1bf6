"""Read at any place of many files, which stay open as long as the process may have them open."""

import os
import resource
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import ClassVar

from bert.core.errors import IntegrityError


class RandomAccess:
    """Open files. If the process may open no more files, close the least recently used one."""

    _descriptors: ClassVar[set[int]] = set()  # of all objects

    def __init__(self) -> None:
        self._open: OrderedDict[Path, int] = OrderedDict()
        weakref.finalize(self, RandomAccess._close, self._open).atexit = False

    def read(self, path: Path, size: int, offset: int) -> bytes:
        """Return `size` bytes of a file from byte `offset`. Raise IntegrityError if it is missing or too short."""
        if path not in self._open:
            if self._open and not has_room(len(self._descriptors)):
                self._close(self._open, 1)
            try:
                self._open[path] = os.open(path, os.O_RDONLY)
            except FileNotFoundError as error:
                raise missing(path) from error
            self._descriptors.add(self._open[path])
        self._open.move_to_end(path)
        content = os.pread(self._open[path], size, offset)
        if len(content) != size:
            raise IntegrityError(f"{path}: truncated at byte {offset + len(content)}; build it again")
        return content

    @classmethod
    def _close(cls, files: OrderedDict[Path, int], count: int | None = None) -> None:
        """Close the `count` least recently used files, or all."""
        for _ in range(len(files) if count is None else count):
            descriptor = files.popitem(last=False)[1]
            cls._descriptors.discard(descriptor)
            os.close(descriptor)


def has_room(count: int) -> bool:
    """Return whether a process with `count` open files may open another one; half of its limit is for other files.

    When the soft limit is reached, raise it, up to the hard limit. Opening a file for each read would load the metadata
    server of a shared file system.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or count < soft // 2:
        return True
    higher = 2 * soft if hard == resource.RLIM_INFINITY else min(2 * soft, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (higher, hard))
    except (OSError, ValueError):  # the kernel has another limit
        return False
    return count < higher // 2


def missing(path: Path) -> IntegrityError:
    """Return the error for a file that is missing. Of several hosts, only one has checked that all files exist."""
    return IntegrityError(f"{path}: the file is missing; build the folder again, or copy it to every host")
