"""Read the frames of a TFRecord file one by one, compute every checksum, and describe every damage.

It shares no code with `bert.inputs.records`, whose files it checks. A frame is the payload's length (uint64), the
masked CRC of these 8 bytes (uint32), the payload, and the payload's masked CRC. If a length is damaged, the next frame
can be found only with the index beside the file.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np

HEAD = struct.Struct("<QI")
FOOT = struct.Struct("<I")
BUFFER_BYTES = 1 << 20
LOST = "wrong checksum of the length, and no index entry for the next record: the rest of the file is not read"


class Frame(NamedTuple):
    """One record: its number from 0, its first byte in the file, its payload, and its damage ("" if none)."""

    number: int
    offset: int
    payload: bytes
    damage: str


def index_path(path: Path) -> Path:
    """Return the path of the index of a TFRecord file."""
    return path.with_name(path.name + ".index")


def read_index(path: Path) -> np.ndarray:
    """Return the offsets in the index of the TFRecord file `path`: uint64 [records + 1], or empty if there is none."""
    index = index_path(path)
    return np.fromfile(index, "<u8") if index.is_file() else np.zeros(0, np.uint64)


def walk(path: Path, index: np.ndarray) -> Iterator[Frame]:
    """Yield all frames of a file. Continue after a damaged length as long as `index` has the next offset."""
    size = path.stat().st_size
    number = offset = 0
    with open(path, "rb", buffering=BUFFER_BYTES) as stream:
        while offset < size:
            head = stream.read(HEAD.size)
            if len(head) < HEAD.size:
                yield Frame(number, offset, b"", f"cut: only {size - offset} of its bytes are left")
                return
            length, checksum = HEAD.unpack(head)
            end = offset + HEAD.size + length + FOOT.size
            if masked_crc(head[:8]) != checksum:
                end = _next_offset(index, number, offset, size)
                yield Frame(number, offset, b"", "wrong checksum of the length" if end else LOST)
                if not end:
                    return
                stream.seek(end)
            elif end > size:
                yield Frame(number, offset, b"", f"cut: {size - offset} of its {end - offset} bytes are left")
                return
            else:
                payload, foot = stream.read(length), stream.read(FOOT.size)
                same = masked_crc(payload) == FOOT.unpack(foot)[0]
                yield Frame(number, offset, payload, "" if same else "wrong checksum of the content")
            number, offset = number + 1, end


def _next_offset(index: np.ndarray, number: int, offset: int, size: int) -> int:
    """Return the offset of the record after `number`, or 0 if the index does not have it."""
    known = number + 1 < len(index) and index[number] == offset and offset < index[number + 1] <= size
    return int(index[number + 1]) if known else 0


def masked_crc(content: bytes) -> int:
    """Return TFRecord's masked checksum: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
