"""The frames of TFRecord files, and the index beside each file.

A frame is the payload's length (uint64), the masked CRC of these 8 bytes (uint32), the payload, and its masked CRC
(uint32). A frame is whole if it has the bytes that `encode` makes of its payload. `<name>.index` has the byte offsets
of a file's records, and of its end. If a length is damaged, the next frame can be found only with the index.
"""

import functools
import itertools
import struct
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import google_crc32c
import numpy as np

HEADER, FOOTER = 12, 4  # bytes before and after the payload
BUFFER_BYTES = 1 << 20
BATCH = 1024  # records
LARGEST = 1 << 30  # bytes of a record that is read from a stream
LOST = "wrong checksum of the length, and no index entry for the next record: the rest of the file is not read"

Offsets = np.ndarray | Sequence[int]


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes: ...


class Frame(NamedTuple):
    """One record: its number from 0, its first byte in the file, its payload, and its damage ("" if none)."""

    number: int
    offset: int
    payload: bytes
    damage: str


def masked_crc(content: bytes) -> int:
    """Return TensorFlow's masked checksum: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def encode(payload: bytes) -> bytes:
    """Return the frame of a payload."""
    return _head(len(payload)) + payload + struct.pack("<I", masked_crc(payload))


@functools.lru_cache(1 << 16)
def _head(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc(packed))


def index_path(path: Path) -> Path:
    """Return the path of the index of a TFRecord file."""
    return path.with_name(path.name + ".index")


def read_index(path: Path) -> np.ndarray:
    """Return the offsets in the index of the TFRecord file `path`: uint64 [records + 1], or empty if there is none."""
    index = index_path(path)
    return np.fromfile(index, "<u8") if index.is_file() else np.zeros(0, np.uint64)


def write_index(path: Path, offsets: Offsets) -> None:
    """Write the index of the TFRecord file `path`: the offsets of its records and of its end."""
    np.asarray(offsets).astype("<u8").tofile(index_path(path))


class RecordWriter:
    """Context manager that writes one TFRecord file and its index."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets = array("Q", [0])  # a tenth of the memory of a list

    def __enter__(self) -> Self:
        self._stream = open(self.path, "wb", buffering=1 << 20)
        return self

    def write(self, serialized: bytes) -> None:
        """Append one record."""
        frame = encode(serialized)
        self._stream.write(frame)
        self.offsets.append(self.offsets[-1] + len(frame))

    def __exit__(self, *exception: object) -> None:
        self._stream.close()
        write_index(self.path, self.offsets)

    @property
    def count(self) -> int:
        """Number of records written so far."""
        return len(self.offsets) - 1


def begins(content: bytes) -> bool:
    """Return whether a file that begins so can be one of frames."""
    return len(content) >= HEADER and content[:HEADER] == _head(int.from_bytes(content[:8], "little"))


def first(stream: Readable) -> bytes | None:
    """Return the payload of the first frame of a stream; None: it has none. Raise ValueError if it is damaged."""
    head = stream.read(HEADER)
    if not head:
        return None
    if not begins(head):
        raise ValueError("wrong checksum of the length of its first record")
    length = int.from_bytes(head[:8], "little")
    frame = head + stream.read(min(length, LARGEST) + FOOTER)
    payload = frame[HEADER:-FOOTER]
    if len(payload) != length or encode(payload) != frame:
        raise ValueError("its first record is cut, or has a wrong checksum")
    return payload


def batches(path: Path, index: Offsets = ()) -> Iterator[list[Frame]]:
    """Yield all frames of a file, as `walk` does, `BATCH` at a time."""
    frames = walk(path, index)
    while batch := list(itertools.islice(frames, BATCH)):
        yield batch


def walk(path: Path, index: Offsets = ()) -> Iterator[Frame]:
    """Yield all frames of a file. Continue after a damaged length as long as `index` has the next offset."""
    size = path.stat().st_size
    number = offset = 0
    with open(path, "rb", buffering=BUFFER_BYTES) as stream:
        while offset < size:
            head = stream.read(HEADER)
            if len(head) < HEADER:
                yield Frame(number, offset, b"", f"cut: only {size - offset} of its bytes are left")
                return
            length = int.from_bytes(head[:8], "little")
            end = offset + HEADER + length + FOOTER
            if head != _head(length):
                end = _next_offset(index, number, offset, size)
                yield Frame(number, offset, b"", "wrong checksum of the length" if end else LOST)
                if not end:
                    return
                stream.seek(end)
            elif end > size:
                yield Frame(number, offset, b"", f"cut: {size - offset} of its {end - offset} bytes are left")
                return
            else:
                payload, foot = stream.read(length), stream.read(FOOTER)
                is_whole = encode(payload) == head + payload + foot
                yield Frame(number, offset, payload, "" if is_whole else "wrong checksum of the content")
            number, offset = number + 1, end


def _next_offset(index: Offsets, number: int, offset: int, size: int) -> int:
    """Return the offset of the record after `number`, or 0 if the index does not have it."""
    is_indexed = number + 1 < len(index) and index[number] == offset and offset < index[number + 1] <= size
    return int(index[number + 1]) if is_indexed else 0
