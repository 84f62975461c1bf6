"""The frames of a TFRecord file, walked one after another; every checksum is computed and every damage named.

It shares no code with `bert.inputs.records`, whose files it checks. A frame is the payload's length (uint64), the
masked CRC of these 8 bytes (uint32), the payload, and its masked CRC. Where a length is damaged, only the index
beside the file knows where the next frame begins.
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
LOST = "the checksum of its length differs, and the index cannot tell where the next one begins: the rest is not read"


class Frame(NamedTuple):
    """One record: its number from 0, the byte it begins at, its payload, and its damage ("" if there is none)."""

    number: int
    offset: int
    payload: bytes
    damage: str


def index_path(path: Path) -> Path:
    """The file of offsets that stands beside a TFRecord file."""
    return path.with_name(path.name + ".index")


def read_index(path: Path) -> np.ndarray:
    """The offsets [records + 1] in the index of the TFRecord file `path`; none if it is missing."""
    index = index_path(path)
    return np.fromfile(index, "<u8") if index.is_file() else np.zeros(0, np.uint64)


def walk(path: Path, index: np.ndarray) -> Iterator[Frame]:
    """All frames of a file, in constant memory; it goes on after a damaged one as long as `index` says where."""
    size = path.stat().st_size
    number = offset = 0
    with open(path, "rb", buffering=BUFFER_BYTES) as stream:
        while offset < size:
            head = stream.read(HEAD.size)
            if len(head) < HEAD.size:
                yield Frame(number, offset, b"", f"cut: {size - offset} bytes of it are left")
                return
            length, checksum = HEAD.unpack(head)
            end = offset + HEAD.size + length + FOOT.size
            if masked_crc(head[:8]) != checksum:
                end = _next(index, number, offset, size)
                yield Frame(number, offset, b"", "the checksum of its length differs" if end else LOST)
                if not end:
                    return
                stream.seek(end)
            elif end > size:
                yield Frame(number, offset, b"", f"cut: {size - offset} of its {end - offset} bytes are left")
                return
            else:
                payload, foot = stream.read(length), stream.read(FOOT.size)
                same = masked_crc(payload) == FOOT.unpack(foot)[0]
                yield Frame(number, offset, payload, "" if same else "the checksum of its content differs")
            number, offset = number + 1, end


def _next(index: np.ndarray, number: int, offset: int, size: int) -> int:
    """Where the record after `number` begins, or 0 if the index does not know."""
    known = number + 1 < len(index) and index[number] == offset and offset < index[number + 1] <= size
    return int(index[number + 1]) if known else 0


def masked_crc(content: bytes) -> int:
    """CRC-32C, rotated right by 15 bits, plus a constant: a checksum of data that hold checksums themselves."""
    crc = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
