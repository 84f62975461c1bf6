"""Which of many texts are equal, by hashes of 16 bytes in an array: ten million of them take 160 MB."""

import hashlib
from array import array

import numpy as np

BYTES = 16


def hashed(text: str) -> bytes:
    """Return the hash of a text."""
    return hashlib.sha256(text.encode()).digest()[:BYTES]


def as_array(hashes: bytes | bytearray) -> np.ndarray:
    """Return hashes that follow each other as rows [n, 16]."""
    return np.frombuffer(hashes, np.uint8).reshape(-1, BYTES)


def first_rows(hashes: np.ndarray) -> np.ndarray:
    """Return for each row [n, 16] the first row that is equal to it [n]."""
    low, high = np.ascontiguousarray(hashes).view(np.uint64).T
    order = np.lexsort((low, high))  # stable: of equal rows the first one is the first
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
    found = np.empty(len(order), np.int64)
    found[order] = order[is_first][np.cumsum(is_first) - 1]
    return found


class Distinct:
    """Notes the lines of texts that must differ."""

    def __init__(self) -> None:
        self._hashes, self._lines = bytearray(), array("q")

    def note(self, text: str, line: int) -> None:
        """Note a text and where it is."""
        self._hashes += hashed(text)
        self._lines.append(line)

    def repeated(self) -> tuple[int, int] | None:
        """Return the line of the first repeated text, and the line where it was first noted; None: all differ."""
        first = first_rows(as_array(self._hashes))
        again = np.flatnonzero(first != np.arange(len(first)))
        return (self._lines[again[0]], self._lines[first[again[0]]]) if len(again) else None
