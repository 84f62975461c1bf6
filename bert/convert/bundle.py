"""Read TensorFlow's tensor bundles from strangers: `PREFIX.index` and `PREFIX.data-00000-of-00001`.

TensorFlow's own reader ends the process if the fields of an index contradict each other. Here every length is compared
with the file's before it is used, and every checksum is checked.

The index is a table in LevelDB's format (github.com/google/leveldb, doc/table_format.md), uncompressed: blocks of
sorted keys and values, then a block with the place of each of these blocks, then a footer with the place of that one.
The value of the key "" describes the bundle, those of the other keys their tensors
(tensorflow/core/protobuf/tensor_bundle.proto). A variable that was made with a partitioner has an entry with its
slices, and its parts have keys that begin with a zero byte, the name, and the first row and the number of rows of each
axis, so that they stand in the order of the slices (tensorflow/core/util/saved_tensor_slice_util.cc).
"""

import itertools
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import tensor_bundle_pb2

from bert.core import files
from bert.text.frames import masked_crc

FOOTER, MAGIC = 48, struct.pack("<Q", 0xDB4775248B80FB57)
TRAILER = struct.Struct("<BI")  # behind a block: its compression, and the masked CRC of the block and that byte
MAX_VARINT_BYTES = 10
PART, ESCAPED, ENDED = b"\0", b"\0\xff", b"\0\1"  # before the name in the key of a part; zero in it; behind it
LONGEST_NAME = 4096  # bytes; each byte of a block can make a name that is longer by one


class Damaged(ValueError):
    """The file is not a tensor bundle, or contradicts itself; says where."""


class Bundle:
    """The tensors of a bundle by name. Raises Damaged or OSError."""

    def __init__(self, prefix: Path) -> None:
        self._prefix, self._entries, self._parts = prefix, dict[str, Any](), dict[bytes, list[Any]]()
        header = None
        for key, value in _entries(files.read_description(prefix.with_name(f"{prefix.name}.index"))):
            if key.startswith(PART):
                whole, _, _ = key.removeprefix(PART).partition(ENDED)
                part = _parse(tensor_bundle_pb2.BundleEntryProto(), value)
                self._parts.setdefault(whole.replace(ESCAPED, b"\0"), []).append(part)
            elif key:
                entry = _parse(tensor_bundle_pb2.BundleEntryProto(), value)
                self._entries[key.decode("utf-8", "replace")] = entry
            else:
                header = _parse(tensor_bundle_pb2.BundleHeaderProto(), value)
        if header is None or header.endianness != tensor_bundle_pb2.BundleHeaderProto.LITTLE:
            raise Damaged("no header, or numbers in the byte order of other machines")
        self._shards = header.num_shards
        for name, entry in self._entries.items():
            if entry.shape.unknown_rank or any(axis.size < 0 for axis in entry.shape.dim):
                raise Damaged(f"{name!r} has no shape")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor."""
        return {name: self._shape(name) for name in self._entries}

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(axis.size for axis in self._entries[name].shape.dim)

    def dtype(self, name: str) -> tf.DType:
        """Return the type of a tensor."""
        try:
            return tf.as_dtype(self._entries[name].dtype)
        except TypeError as error:
            raise Damaged(f"{name!r} is of an unknown type") from error

    def get(self, name: str) -> np.ndarray:
        """Return the values of a tensor of numbers."""
        entry, dtype, shape = self._entries[name], self.dtype(name), self._shape(name)
        if not entry.slices:
            return self._read(name, entry, dtype, shape)
        value, is_there = np.zeros(shape, dtype.as_numpy_dtype), np.zeros(shape, bool)
        extents = [
            [(axis.start, axis.length if axis.HasField("length") else -1) for axis in one.extent]
            for one in entry.slices
        ]  # a length of -1 is the whole axis
        for extent, part in itertools.zip_longest(sorted(extents), self._parts.get(name.encode(), [])):
            if extent is None or part is None or len(extent) != len(shape) or part.dtype != entry.dtype:
                raise Damaged(f"the parts of {name!r} are not those that it names")
            axes = zip(extent, shape, strict=True)
            at = tuple(slice(begin, size if count < 0 else begin + count) for (begin, count), size in axes)
            if any(not 0 <= axis.start <= axis.stop <= size for axis, size in zip(at, shape, strict=True)):
                raise Damaged(f"a part of {name!r} is outside of it")
            if is_there[at].any():
                raise Damaged(f"parts of {name!r} overlap")
            value[at], is_there[at] = self._read(name, part, dtype, value[at].shape), True
        if not is_there.all():
            raise Damaged(f"{name!r} lacks a part")
        return value

    def _read(self, name: str, entry: Any, dtype: tf.DType, shape: tuple[int, ...]) -> np.ndarray:
        """Return the values of an entry without slices. name: for messages."""
        path = self._prefix.with_name(f"{self._prefix.name}.data-{entry.shard_id:05d}-of-{self._shards:05d}")
        if entry.slices or entry.size != dtype.size * math.prod(shape):
            raise Damaged(f"the size of {name!r} is not that of its shape")
        if entry.offset < 0 or entry.offset + entry.size > path.stat().st_size:
            raise Damaged(f"{name!r} is outside of {path.name}")
        with open(path, "rb") as stream:
            stream.seek(entry.offset)
            content = stream.read(entry.size)
        if masked_crc(content) != entry.crc32c:
            raise Damaged(f"the checksum of {name!r} differs")
        return np.frombuffer(content, dtype.as_numpy_dtype).reshape(shape)


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table."""
    footer = table[-FOOTER:]
    if len(footer) < FOOTER or not footer.endswith(MAGIC):
        raise Damaged("the index has no footer")
    _, behind_unused = _handle(footer, 0)  # of a block for filters
    places, _ = _handle(footer, behind_unused)
    last = None
    for _, content in _block(table, *places):
        for key, value in _block(table, *_handle(content, 0)[0]):
            if last is not None and key <= last:  # else a few bytes could name a block again and again
                raise Damaged("the names of the index are not in their order")
            last = key
            yield key, value


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block. A key is stored without what it shares with the key before it."""
    block, trailer = table[offset : offset + size], table[offset + size : offset + size + TRAILER.size]
    if len(trailer) < TRAILER.size:
        raise Damaged("a block is outside of the index")
    compression, crc = TRAILER.unpack(trailer)
    if compression or masked_crc(block + trailer[:1]) != crc:
        raise Damaged("the checksum of a block of the index differs, or the block is compressed")
    end = size - 4
    end -= 4 * int.from_bytes(block[-4:], "little")  # places of whole keys, and their number: not needed here
    key, place = b"", 0
    while place < end:
        shared, place = _varint(block, place)
        own, place = _varint(block, place)
        length, place = _varint(block, place)
        if shared > len(key) or place + own + length > end:
            raise Damaged("an entry of the index is longer than its block")
        if shared + own > LONGEST_NAME:
            raise Damaged(f"a name of the index has more than {LONGEST_NAME:,} bytes")
        key, value = key[:shared] + block[place : place + own], block[place + own : place + own + length]
        place += own + length
        yield key, value
    if place != end:
        raise Damaged("a block of the index is not as long as its entries")


def _handle(content: bytes, place: int) -> tuple[tuple[int, int], int]:
    """Return the offset and the size of a block, and the place behind them."""
    offset, place = _varint(content, place)
    size, place = _varint(content, place)
    return (offset, size), place


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Return the number that begins at `place`, seven bits a byte, the lowest first, and the place behind it."""
    number = 0
    for count, byte in enumerate(content[place : place + MAX_VARINT_BYTES]):
        number |= (byte & 127) << 7 * count
        if byte < 128:
            return number, place + count + 1
    raise Damaged("a number of the index does not end")


def _parse(message: Any, content: bytes) -> Any:
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        raise Damaged("an entry of the index cannot be parsed") from error
    return message
