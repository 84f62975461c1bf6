"""Samples of a causal model: consecutive tokens of one long stream of documents.

A folder of `python -m data.tokens` holds, for each split, files `<split>-*.tokens`: token ids as little-endian uint16,
or uint32 for a vocabulary of more than 65,536 tokens. Each document is followed by the id of `<|endoftext|>`. The
files of a split, in the order of their names, are one stream; samples go over the borders of documents and of files.

Beside each file is `<name>.crc32c`, with the CRC-32C of every `BLOCK` bytes. They are verified when they are read, so a
damaged block is an error that names it, and nobody has to hash gigabytes before a run.
"""

import dataclasses
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Self

import google_crc32c
import numpy as np
import tensorflow as tf

from bert.errors import InputError, IntegrityError
from bert.inputs import byte_bpe
from bert.inputs.records import LARGEST_VOCABULARY, Description, Feature, FeatureSpec
from bert.storage import manifest
from bert.storage.random_access import RandomAccess

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
        if not 0 < self.vocab_size <= LARGEST_VOCABULARY or not 0 <= self.end_id < self.vocab_size:
            raise ValueError(f"vocab_size {self.vocab_size} and end_id {self.end_id} are not those of a vocabulary")
        if self.dtype != dtype_for(self.vocab_size):
            raise ValueError(f"dtype {self.dtype} is not that of {self.vocab_size} tokens")


def dtype_for(vocab_size: int) -> Literal["uint16", "uint32"]:
    """Return the type in which the ids of a vocabulary are stored."""
    return "uint16" if vocab_size <= LARGEST_UINT16 else "uint32"


def checks_path(path: Path) -> Path:
    """Return the path of the CRCs of a file of tokens."""
    return path.with_name(path.name + CHECKS)


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


class TokenStream:
    """Samples of one split, for the training loop.

    Sample n is the tokens n * length to n * length + length of the stream, both included: `length` inputs and the
    targets, which are the inputs moved by one. The last token of a sample is the first one of the next. What is left
    at the end is no sample.

    end: id of `<|endoftext|>`. tokenizer: path of the `tokenizer.json`. tokens, text_bytes: tokens of the split, and
    the bytes of its text in UTF-8, for a loss in bits per byte; <|endoftext|> has no bytes.

    Raise InputError if the folder has no such split or too little text, IntegrityError if a file is missing or not as
    the manifest says, and when a damaged block is read.
    """

    def __init__(self, folder: Path, split: str, length: int) -> None:
        assert length > 0
        self.manifest = manifest.load(folder)
        names = sorted(name for name in self.manifest.files if name.startswith(f"{split}-") and name.endswith(SUFFIX))
        if not names:
            raise InputError(f"{folder}: no tokens of split {split!r}; make them with python -m data.tokens")
        stored = self.manifest.extra_as(Stream)
        self.length, self.end, self.vocab_size = length, stored.end_id, stored.vocab_size
        self.tokenizer = folder / byte_bpe.NAME
        self._check_tokenizer(stored)
        self._dtype = np.dtype(stored.dtype).newbyteorder("<")
        disk = RandomAccess()
        self._files = [_File(self.manifest, name, self._dtype.itemsize, disk) for name in names]
        self._starts = np.cumsum([0, *(file.tokens for file in self._files)])
        self.tokens = int(self._starts[-1])
        self.text_bytes = self._text_bytes(split)
        if self.tokens <= length:
            raise InputError(
                f"{folder}: {self.tokens} tokens in split {split!r}, and a sample needs {length + 1}; give more text"
            )
        feature = Feature(shape=[length + 1], dtype="int64")
        self.description = Description(
            features={"input_ids": feature},
            vocab_size=stored.vocab_size,
            vocab_sha256=stored.tokenizer_sha256,
            kind="tokens",
        )
        self.spec: FeatureSpec = {"input_ids": vars(feature)}

    def _check_tokenizer(self, stored: Stream) -> None:
        listed = self.manifest.files.get(byte_bpe.NAME)
        if listed is None or listed.sha256 != stored.tokenizer_sha256:
            raise IntegrityError(f"{self.tokenizer}: not the tokenizer of these tokens; build the folder again")
        manifest.verify_file(self.tokenizer, listed.sha256)

    def _text_bytes(self, split: str) -> int:
        counts = self.manifest.counts.get(split)
        if not isinstance(counts, dict) or counts.get("tokens") != self.tokens or "bytes" not in counts:
            where = self.manifest.path / manifest.NAME
            raise IntegrityError(f"{where}: counts.{split} does not fit its files; build the folder again")
        return counts["bytes"]

    def __len__(self) -> int:
        return (self.tokens - 1) // self.length

    def read(self, indices: np.ndarray, positions: np.ndarray | None = None) -> dict[str, tf.Tensor]:
        """Return samples `indices` [n] as {"input_ids": [n, length + 1] int32}.

        `positions`, their positions in the run, do not matter here: the parameter is for other kinds of sources.
        """
        ids = np.empty((len(indices), self.length + 1), np.int32)
        for row, index in enumerate(indices.tolist()):
            ids[row] = self._range(index * self.length, index * self.length + self.length + 1)
        return {"input_ids": tf.constant(ids)}

    def _range(self, begin: int, end: int) -> np.ndarray:
        """Return the tokens begin .. end - 1 of the stream [end - begin]."""
        pieces = []
        first = int(np.searchsorted(self._starts, begin, side="right")) - 1
        for file, start in zip(self._files[first:], self._starts[first:].tolist(), strict=False):
            if start >= end:
                break
            content = file.read(max(begin - start, 0), min(end - start, file.tokens))
            ids = np.frombuffer(content, self._dtype)
            if len(ids) and ids.max() >= self.vocab_size:
                at = max(begin - start, 0) + int(ids.argmax())
                raise IntegrityError(f"{file.path}: token {at} is no id of the vocabulary; build the folder again")
            pieces.append(ids)
        return np.concatenate(pieces)


class _File:
    """One file of tokens."""

    def __init__(self, content: manifest.Manifest, name: str, token_bytes: int, disk: RandomAccess) -> None:
        self.path, self._token_bytes, self._disk = content.path / name, token_bytes, disk
        self._bytes, tokens = content.files[name].bytes, content.files[name].records
        if tokens is None or tokens * token_bytes != self._bytes:
            raise IntegrityError(f"{self.path}: {self._bytes} bytes are not {tokens} tokens; build the folder again")
        self.tokens = tokens
        checks = checks_path(self.path)
        listed = content.files.get(checks.name)
        if listed is None or listed.bytes != -(-self._bytes // BLOCK) * 4:
            raise IntegrityError(f"{checks}: is missing, or not that of its file; build the folder again")
        manifest.verify_file(checks, listed.sha256)
        self._checks = np.fromfile(checks, "<u4")

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes of the tokens begin .. end - 1. Raise IntegrityError for a damaged block."""
        first, last = begin * self._token_bytes, end * self._token_bytes
        offset = first // BLOCK * BLOCK
        content = self._disk.read(self.path, min(-(-last // BLOCK) * BLOCK, self._bytes) - offset, offset)
        for at in range(0, len(content), BLOCK):
            if google_crc32c.value(content[at : at + BLOCK]) != self._checks[(offset + at) // BLOCK]:
                raise IntegrityError(
                    f"{self.path}: the {BLOCK} bytes from byte {offset + at} are damaged (checksum differs); "
                    "build the folder again"
                )
        return content[first - offset : last - offset]
