"""Files of tokens: written by data.tokens, read by the trainer. Needs no TensorFlow.

A file `<split>-*.tokens` holds token ids as little-endian uint16, or uint32 if the vocabulary has more than 65,536
tokens. Each document is followed by the id of `<|endoftext|>`. Beside each file is `<name>.crc32c`, with the CRC-32C of
every `BLOCK` bytes. They are verified when they are read, so a damaged block is an error that names it, and nobody has
to hash gigabytes before a run.
"""

import dataclasses
import functools
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Self

import google_crc32c
import numpy as np

from bert.core import manifest
from bert.core.errors import IntegrityError
from bert.core.random_access import RandomAccess
from bert.text.vocabulary import LARGEST

BLOCK = 4096  # bytes with one CRC; two samples of 1,024 tokens
BUFFER = 1 << 20  # bytes that are written at once, a multiple of BLOCK
SUFFIX, CHECKS = ".tokens", ".crc32c"
LARGEST_UINT16 = 1 << 16  # tokens of a vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stream:
    """What the manifest of a folder says about its tokens."""

    kind: Literal["tokens"]
    dtype: Literal["uint16", "uint32"]
    vocab_size: int
    end_id: int
    tokenizer_sha256: str

    def __post_init__(self) -> None:
        if not 0 < self.vocab_size <= LARGEST or not 0 <= self.end_id < self.vocab_size:
            raise ValueError(f"vocab_size {self.vocab_size} and end_id {self.end_id} are not those of a vocabulary")
        if self.dtype != dtype_for(self.vocab_size):
            raise ValueError(f"dtype {self.dtype} is not that of {self.vocab_size} tokens")


def dtype_for(vocab_size: int) -> Literal["uint16", "uint32"]:
    """Return the type in which the ids of a vocabulary are stored."""
    return "uint16" if vocab_size <= LARGEST_UINT16 else "uint32"


def checks_path(path: Path) -> Path:
    """Return the path of the CRCs of a file of tokens."""
    return path.with_name(path.name + CHECKS)


def checked(folder: Path) -> manifest.Manifest:
    """Return the manifest of a folder after a look at all its files, and after verifying the CRCs of its tokens.

    With several ranks, one rank does this for all. Raise as `manifest.load` does, and IntegrityError if CRCs have
    changed.
    """
    described = manifest.load(folder)
    for name, listed in described.files.items():
        if name.endswith(CHECKS):
            manifest.verify_file(folder / name, listed.sha256)
    return described


class TokenWriter:
    """Context manager that writes one file of tokens and the CRCs of its blocks."""

    def __init__(self, path: Path, vocab_size: int) -> None:
        self.path, self.count = path, 0  # number of tokens written so far
        self._dtype = np.dtype(dtype_for(vocab_size)).newbyteorder("<")
        self._buffer, self._checks = bytearray(), list[int]()

    def __enter__(self) -> Self:
        self._stream: BinaryIO = open(self.path, "wb", buffering=0)
        return self

    def write(self, ids: list[int]) -> None:
        """Append token ids."""
        self._buffer += np.array(ids, np.int64).astype(self._dtype).tobytes()
        self.count += len(ids)
        if len(self._buffer) >= BUFFER:
            self._flush(len(self._buffer) // BLOCK * BLOCK)

    def _flush(self, size: int) -> None:
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._checks += [google_crc32c.value(content[at : at + BLOCK]) for at in range(0, size, BLOCK)]
        with memoryview(content) as left:
            written = 0
            while written < size:
                written += self._stream.write(left[written:])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._stream:
            if kind is None:
                self._flush(len(self._buffer))
                np.array(self._checks, "<u4").tofile(checks_path(self.path))


class TokenFile:
    """One file of tokens, whose CRCs are verified when they are first needed, and whose blocks when they are read."""

    def __init__(self, content: manifest.Manifest, name: str, disk: RandomAccess) -> None:
        stored = content.extra_as(Stream)
        self.path, self._vocab_size, self._disk = content.path / name, stored.vocab_size, disk
        self._dtype = np.dtype(stored.dtype).newbyteorder("<")
        self._bytes, tokens = content.files[name].bytes, content.files[name].records
        if tokens is None or tokens * self._dtype.itemsize != self._bytes:
            raise IntegrityError(f"{self.path}: {self._bytes} bytes are not {tokens} tokens; build the folder again")
        self.tokens = tokens
        checks = checks_path(self.path)
        listed = content.files.get(checks.name)
        if listed is None or listed.bytes != -(-self._bytes // BLOCK) * 4:
            raise IntegrityError(f"{checks}: is missing, or not that of its file; build the folder again")
        self._checks_sha256 = listed.sha256

    @functools.cached_property
    def _checks(self) -> np.ndarray:
        checks = checks_path(self.path)
        manifest.verify_file(checks, self._checks_sha256)
        return np.fromfile(checks, "<u4")

    def read(self, begin: int, end: int) -> np.ndarray:
        """Return the tokens begin .. end - 1 [end - begin].

        Raise IntegrityError for a damaged block, or for an id that is outside the vocabulary.
        """
        first, last = begin * self._dtype.itemsize, end * self._dtype.itemsize
        offset = first // BLOCK * BLOCK
        content = self._disk.read(self.path, min(-(-last // BLOCK) * BLOCK, self._bytes) - offset, offset)
        for at in range(0, len(content), BLOCK):
            if google_crc32c.value(content[at : at + BLOCK]) != self._checks[(offset + at) // BLOCK]:
                raise IntegrityError(
                    f"{self.path}: the {BLOCK} bytes from byte {offset + at} are damaged (checksum differs); "
                    "build the folder again"
                )
        ids = np.frombuffer(content, self._dtype, end - begin, first - offset)
        if len(ids) and ids.max() >= self._vocab_size:
            at = begin + int(ids.argmax())
            raise IntegrityError(f"{self.path}: token {at} is no id of the vocabulary; build the folder again")
        return ids
