"""Read at any place of many files, of which only some are open at a time."""

import os
from collections import OrderedDict
from pathlib import Path

from bert.core.errors import IntegrityError

MAX_OPEN = 256  # open files; a corpus may have more shards than a process may open


class RandomAccess:
    """Open files, closed in the order of their last use."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, int] = OrderedDict()

    def read(self, path: Path, size: int, offset: int) -> bytes:
        """Return `size` bytes of a file from byte `offset`. Raise IntegrityError if it ends before."""
        if path not in self._open:
            if len(self._open) >= MAX_OPEN:
                os.close(self._open.popitem(last=False)[1])
            self._open[path] = os.open(path, os.O_RDONLY)
        self._open.move_to_end(path)
        content = os.pread(self._open[path], size, offset)
        if len(content) != size:
            raise IntegrityError(f"{path}: truncated at byte {offset + len(content)}; build it again")
        return content
