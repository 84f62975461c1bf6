"""Find documents that resemble an earlier one, by MinHash with bands.

MinHash: Broder 1997. Bands: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, chapter 3.

A document is the set of its shingles, which are runs of five words in lower case. The Jaccard similarity of two
documents is the number of shingles in both, divided by the number in either. It is estimated by the share of equal
numbers in two signatures of 128 numbers, with a standard error of at most 0.044.

Only documents with a band of equal numbers in common are compared: rows and bands are chosen such that 99 % of the
pairs at the threshold have one. A document is dropped if its similarity with an earlier one that is kept is at least
the threshold. Everything is a function of the texts and their order.

In memory are held 4 bytes per document and band (at a threshold of 0.8: 84 per document), and 36 per group of
documents with a band in common; on the disk, 512 bytes per document.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert.text.hashing import GOLDEN, mix
from data.documents import Search
from data.pipeline import document_files
from data.pipeline.document_files import Part
from data.pipeline.duplicates import normalise, text_key

HASHES = 128  # numbers of a signature
SHINGLE = 5  # words
CAUGHT = 0.99  # share of the pairs at the threshold that have a band in common
MOST_KEPT = 8  # documents of a band that later ones are compared with; unequal documents with an equal band are rare
CHUNK = 512  # shingles hashed at once
MAX_CACHED = 500_000  # words
NO_SHINGLE = np.uint32(2**32 - 1)

# In scripts without spaces each character is a word: Thai and its neighbours, kana, ideographs.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")

_FACTORS = mix(np.arange(HASHES, dtype=np.uint64) * np.uint64(GOLDEN), 1) | np.uint64(1)
_TERMS = mix(np.arange(HASHES, dtype=np.uint64) * np.uint64(GOLDEN), 2)
_POWERS = mix(np.arange(SHINGLE, dtype=np.uint64) * np.uint64(GOLDEN), 3) | np.uint64(1)


class Bands(NamedTuple):
    """How signatures are cut: `number` bands of `rows` numbers."""

    number: int
    rows: int

    @classmethod
    def at(cls, threshold: float) -> "Bands":
        """Return the bands that catch enough pairs and have the most rows, so that the fewest pairs are compared."""
        for rows in range(HASHES, 1, -1):
            number = HASHES // rows
            if 1 - (1 - threshold**rows) ** number >= CAUGHT:
                return cls(number, rows)
        return cls(HASHES, 1)


class _Words(dict[str, int]):
    """The hash of each word. Forgets them all when there are too many."""

    def __missing__(self, word: str) -> int:
        if len(self) >= MAX_CACHED:
            self.clear()
        number = self[word] = int.from_bytes(text_key(word)[:8], "little")
        return number


_words = _Words()


def shingles(text: str) -> np.ndarray:
    """Return the hashes of the shingles of a text, repeated ones included: uint64 [n]; a short text has one."""
    words = WORD.findall(normalise(text).lower())
    hashes = np.fromiter(map(_words.__getitem__, words), np.uint64, len(words))
    length = min(SHINGLE, len(words))
    if not length:
        return hashes
    sums = np.zeros(len(words) - length + 1, np.uint64)
    for place in range(length):
        sums += hashes[place : place + len(sums)] * _POWERS[place]
    return mix(sums, length)


def signature(text: str) -> np.ndarray:
    """Return the least value of each of `HASHES` hash functions over the shingles: uint32 [HASHES]."""
    numbers = shingles(text)
    least = np.full(HASHES, 2**64 - 1, np.uint64)
    for first in range(0, len(numbers), CHUNK):
        values = np.multiply.outer(_FACTORS, numbers[first : first + CHUNK])
        values += _TERMS[:, None]
        np.minimum(least, values.min(1), out=least)
    return (least >> np.uint64(32)).astype(np.uint32)


def signatures(part: Part) -> bytes:
    """Return the signatures of the documents of a part, one after the other."""
    return b"".join(signature(document["text"]).tobytes() for document in document_files.read_records(part, "text"))


def find(stored: Path, threshold: float, considered: np.ndarray) -> np.ndarray:
    """Return which documents resemble an earlier one that is kept: bool [D].

    stored: file with the signatures of all documents. considered: which documents take part [D] bool; the others are
    dropped for another reason. Documents without a word are not compared.
    """
    is_duplicate, considered = np.zeros(len(considered), bool), considered.copy()
    if not considered.any():
        return is_duplicate
    all_signatures = np.memmap(stored, np.uint32, mode="r").reshape(-1, HASHES)
    for rows in _blocks(len(considered)):
        considered[rows] &= (all_signatures[rows] != NO_SHINGLE).any(1)
    groups = _groups(_keys(all_signatures, Bands.at(threshold)), considered)
    members = np.full((int(groups.max(initial=-1)) + 1, MOST_KEPT), -1, np.int32)
    sizes = np.zeros(len(members), np.uint8)
    for document in np.flatnonzero((groups >= 0).any(1)).tolist():
        mine = groups[document]
        mine = mine[mine >= 0]
        others = np.unique(members[mine])
        others = others[others >= 0]
        equal = (all_signatures[others] == all_signatures[document]).mean(1)
        if len(others) and equal.max() >= threshold:
            is_duplicate[document] = True
            continue
        mine = mine[sizes[mine] < MOST_KEPT]
        members[mine, sizes[mine]] = document
        sizes[mine] += 1
    return is_duplicate


def _keys(all_signatures: np.ndarray, bands: Bands) -> np.ndarray:
    """Return a hash of each band of each document: uint32 [D, bands]."""
    keys = np.empty((len(all_signatures), bands.number), np.uint32)
    for rows in _blocks(len(keys)):
        block = all_signatures[rows, : bands.number * bands.rows].reshape(-1, bands.number, bands.rows)
        sums = np.zeros(block.shape[:2], np.uint64)
        for place in range(bands.rows):
            sums = mix(sums ^ block[:, :, place], place)
        keys[rows] = sums >> np.uint64(32)
    return keys


def _blocks(count: int, size: int = 1 << 16) -> Iterator[slice]:
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def _groups(keys: np.ndarray, considered: np.ndarray) -> np.ndarray:
    """Replace the keys [D, bands] by the numbers of groups of documents with an equal key; -1 if no key is equal.

    The array of the keys is used again. Return int32 [D, bands].
    """
    groups, number = keys.view(np.int32), 0
    places = np.flatnonzero(considered)
    for band in range(keys.shape[1]):
        column = keys[places, band]
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        begins = np.ones(len(column), bool)
        begins[1:] = ordered[1:] != ordered[:-1]
        in_group = ~(begins & np.append(begins[1:], True)[: len(column)])
        new = np.full(len(column), -1, np.int32)
        new[order[in_group]] = number + np.cumsum(begins[in_group]) - 1
        number += int(begins[in_group].sum())
        groups[:, band] = -1
        groups[places, band] = new
    return groups


SEARCH = Search(signatures, find)
