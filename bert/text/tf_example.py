"""Serialise rows of arrays as `tf.train.Example` messages, a batch at a time.

This is much faster than building messages with protobuf. An Example consists of nested fields, each with number, length
and content (protobuf.dev/programming-guides/encoding). The bytes of all rows are laid out in one array, with gaps where
a row has fewer bytes than others; then the gaps are removed.

    N rows, W bytes in the longest row
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

MAX_ELEMENTS = 1 << 20  # elements of a padded feature that are serialised at once


def encode(features: dict[str, np.ndarray]) -> bytes:
    """Serialise integer and floating-point arrays as one `tf.train.Example`."""
    return next(encode_batch({name: value[None] for name, value in features.items()}))


class Ragged(NamedTuple):
    """Rows of different lengths: row n is `values[splits[n]:splits[n + 1]]`."""

    values: np.ndarray  # [n]
    splits: np.ndarray  # [N + 1]


class _Piece(NamedTuple):
    """A part of each row: the bytes of `content` [N, W] where `present` [N, W] is true; their number `lengths` [N]."""

    content: np.ndarray
    present: np.ndarray
    lengths: np.ndarray


def encode_batch(features: Mapping[str, np.ndarray | Ragged]) -> Iterator[bytes]:
    """Yield row n of every array [N, size] as the n-th `tf.train.Example`; equal features give equal bytes."""
    count, longest = max(map(_size, features.values()))
    if count == 0:
        return
    if count > 1 and count * longest > MAX_ELEMENTS:
        for part in (slice(count // 2), slice(count // 2, count)):
            yield from encode_batch({name: _rows(rows, part) for name, rows in features.items()})
        return
    entries = [piece for name in sorted(features) for piece in _entry(name, features[name])]
    lengths = np.sum([piece.lengths for piece in entries], axis=0)
    pieces = [_by_length(lengths, lambda length: _head(1, length)), *entries]  # Example.features
    content = np.concatenate([piece.content for piece in pieces], axis=1)
    present = np.concatenate([piece.present for piece in pieces], axis=1)
    encoded = np.compress(present.ravel(), content.ravel()).tobytes()  # much faster than content[present]
    ends = np.cumsum(pieces[0].lengths + lengths).tolist()
    for begin, end in zip([0, *ends], ends, strict=False):
        yield encoded[begin:end]


def _entry(name: str, rows: np.ndarray | Ragged) -> list[_Piece]:
    """Return the entries of the map `Features.feature`: {key 1: name, value 2: Feature}."""
    values, inside = (rows, np.ones(rows.shape, bool)) if isinstance(rows, np.ndarray) else _padded(rows)
    field, serialize = (2, _floats) if np.issubdtype(values.dtype, np.floating) else (3, _varints)
    piece = serialize(values, inside)

    def head(length: int) -> bytes:  # all bytes before the numbers depend only on their length
        packed = _head(1, length) if length else b""  # FloatList.value or Int64List.value
        feature = _head(field, len(packed) + length) + packed
        entry = _field(1, name.encode()) + _head(2, len(feature) + length) + feature
        return _head(1, len(entry) + length) + entry

    return [_by_length(piece.lengths, head), piece]


def _size(rows: np.ndarray | Ragged) -> tuple[int, int]:
    """Return the number of rows, and of elements in the longest."""
    if isinstance(rows, np.ndarray):
        return rows.shape[0], rows.shape[1]
    return len(rows.splits) - 1, int(np.diff(rows.splits).max(initial=0))


def _rows(rows: np.ndarray | Ragged, part: slice) -> np.ndarray | Ragged:
    if isinstance(rows, np.ndarray):
        return rows[part]
    return Ragged(rows.values, rows.splits[part.start or 0 : part.stop + 1])


def _padded(rows: Ragged) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows as one padded array [N, longest], and which of its elements are used."""
    lengths = np.diff(rows.splits)
    inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
    values = np.zeros(inside.shape, rows.values.dtype)
    values.ravel()[np.flatnonzero(inside)] = rows.values[rows.splits[0] : rows.splits[-1]]
    return values, inside


def _floats(values: np.ndarray, inside: np.ndarray) -> _Piece:
    content = np.ascontiguousarray(values, "<f4").view(np.uint8)
    return _Piece(content, np.repeat(inside, 4, axis=1), 4 * np.count_nonzero(inside, axis=1))


def _varints(values: np.ndarray, inside: np.ndarray) -> _Piece:
    """Encode values in base 128, low digit first; the high bit is set if more digits follow."""
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
    """Return `make(length)` for each of `lengths` [N]; it is called once per different length."""
    least = lengths.min()
    occurs = np.bincount(lengths - least) > 0
    values = [make(length) for length in (least + np.flatnonzero(occurs)).tolist()]
    sizes = np.array([len(value) for value in values])
    content = np.frombuffer(b"".join(value.ljust(sizes.max(), b"\0") for value in values), np.uint8)
    present = np.arange(sizes.max()) < sizes[:, None]
    index = (np.cumsum(occurs) - 1)[lengths - least]
    return _Piece(content.reshape(present.shape)[index], present[index], sizes[index])


def _field(number: int, content: bytes) -> bytes:
    return _head(number, len(content)) + content


def _head(number: int, length: int) -> bytes:
    """Return the tag and the length of a length-delimited field."""
    head = bytearray([number << 3 | 2])
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes(head)
