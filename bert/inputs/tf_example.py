"""Rows of arrays to serialised `tf.train.Example` messages, a batch at once.

By hand, for it is many times as fast as building messages: an Example is nested fields, each with its number, its
length and its content (protobuf.dev/programming-guides/encoding). What rows consist of is put side by side in one array
of bytes, with gaps where a row has less than others; then the gaps are left out.

    N rows, W bytes of a row at most
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

CELLS = 1 << 20  # numbers of a feature serialised at once, as many as its longest row has for every row


def encode(features: dict[str, np.ndarray]) -> bytes:
    """Serialises integer and floating arrays as one `tf.train.Example`."""
    return next(encode_batch({name: value[None] for name, value in features.items()}))


class Ragged(NamedTuple):
    """Rows of different lengths: row n is `values[splits[n]:splits[n + 1]]`."""

    values: np.ndarray  # [n]
    splits: np.ndarray  # [N + 1]


class _Piece(NamedTuple):
    """A piece of each row's bytes: those of `content` [N, W] where `present` [N, W], of which it has `lengths` [N]."""

    content: np.ndarray
    present: np.ndarray
    lengths: np.ndarray


def encode_batch(features: Mapping[str, np.ndarray | Ragged]) -> Iterator[bytes]:
    """Serialises row n of every array [N, size] as the n-th `tf.train.Example`; equal features give equal bytes."""
    count, longest = max(map(_size, features.values()))
    if count == 0:
        return
    if count > 1 and count * longest > CELLS:
        for part in (slice(count // 2), slice(count // 2, count)):
            yield from encode_batch({name: _rows(rows, part) for name, rows in features.items()})
        return
    entries = [piece for name in sorted(features) for piece in _entry(name, features[name])]
    lengths = np.sum([piece.lengths for piece in entries], axis=0)
    pieces = [_by_length(lengths, lambda length: _head(1, length)), *entries]  # Example.features
    content = np.concatenate([piece.content for piece in pieces], axis=1)
    present = np.concatenate([piece.present for piece in pieces], axis=1)
    encoded = np.compress(present.ravel(), content.ravel()).tobytes()  # many times as fast as content[present]
    ends = np.cumsum(pieces[0].lengths + lengths).tolist()
    for begin, end in zip([0, *ends], ends, strict=False):
        yield encoded[begin:end]


def _entry(name: str, rows: np.ndarray | Ragged) -> list[_Piece]:
    """The entries of the map `Features.feature`: {key 1: name, value 2: Feature}."""
    values, inside = (rows, np.ones(rows.shape, bool)) if isinstance(rows, np.ndarray) else _padded(rows)
    kind, numbers = (2, _floats) if np.issubdtype(values.dtype, np.floating) else (3, _varints)
    piece = numbers(values, inside)

    def head(length: int) -> bytes:  # all that precedes the numbers depends on their length only
        packed = _head(1, length) if length else b""  # FloatList.value or Int64List.value
        feature = _head(kind, len(packed) + length) + packed
        entry = _field(1, name.encode()) + _head(2, len(feature) + length) + feature
        return _head(1, len(entry) + length) + entry

    return [_by_length(piece.lengths, head), piece]


def _size(rows: np.ndarray | Ragged) -> tuple[int, int]:
    """How many rows, and the numbers in the longest."""
    if isinstance(rows, np.ndarray):
        return rows.shape[0], rows.shape[1]
    return len(rows.splits) - 1, int(np.diff(rows.splits).max(initial=0))


def _rows(rows: np.ndarray | Ragged, part: slice) -> np.ndarray | Ragged:
    if isinstance(rows, np.ndarray):
        return rows[part]
    return Ragged(rows.values, rows.splits[part.start or 0 : part.stop + 1])


def _padded(rows: Ragged) -> tuple[np.ndarray, np.ndarray]:
    """The rows as one array [N, longest], and where they are in it."""
    lengths = np.diff(rows.splits)
    inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
    values = np.zeros(inside.shape, rows.values.dtype)
    values.ravel()[np.flatnonzero(inside)] = rows.values[rows.splits[0] : rows.splits[-1]]
    return values, inside


def _floats(values: np.ndarray, inside: np.ndarray) -> _Piece:
    content = np.ascontiguousarray(values, "<f4").view(np.uint8)
    return _Piece(content, np.repeat(inside, 4, axis=1), 4 * np.count_nonzero(inside, axis=1))


def _varints(values: np.ndarray, inside: np.ndarray) -> _Piece:
    """Values in base 128, low digit first, a set high bit saying that more follow."""
    rest = values.astype(np.int64).view(np.uint64)  # a negative number is written as its two's complement
    digits = max(1, -(-int(rest.max(initial=0)).bit_length() // 7))
    if digits < 5:
        rest = rest.astype(np.uint32)
    content, present = np.empty((*rest.shape, digits), np.uint8), np.empty((*rest.shape, digits), bool)
    for digit in range(digits):
        present[:, :, digit] = inside & (rest > 0) if digit else inside
        content[:, :, digit] = rest & 127 | (rest > 127) * rest.dtype.type(128)
        rest = rest >> rest.dtype.type(7)
    present = present.reshape(len(values), -1)
    return _Piece(content.reshape(present.shape), present, np.count_nonzero(present, axis=1))


def _by_length(lengths: np.ndarray, make: Callable[[int], bytes]) -> _Piece:
    """What is made of each row's length [N]."""
    least = lengths.min()
    found = np.bincount(lengths - least) > 0
    made = [make(length) for length in (least + np.flatnonzero(found)).tolist()]
    sizes = np.array([len(value) for value in made])
    content = np.frombuffer(b"".join(value.ljust(sizes.max(), b"\0") for value in made), np.uint8)
    present = np.arange(sizes.max()) < sizes[:, None]
    which = (np.cumsum(found) - 1)[lengths - least]
    return _Piece(content.reshape(present.shape)[which], present[which], sizes[which])


def _field(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


def _head(number: int, length: int) -> bytes:
    """The tag of a length-delimited field and its length."""
    head = bytearray([number << 3 | 2])
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes(head)
