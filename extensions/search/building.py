"""Make an index of the texts in a file, or bring one up to date: what it has already is not encoded again.

The index becomes that of the file: passages that are new in it are encoded, those that are gone are left out. The new
folder takes the place of the old one when it is complete. What a stopped or killed command has encoded is kept beside
the folder (`bert.resumable`).
"""

import json
import os
import types
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from bert import resumable
from bert.core import files, manifest, outputs
from bert.core.errors import InputError, IntegrityError
from bert.core.manifest import Manifest
from bert.embedding import DOCUMENT
from bert.hidden_states import Reader
from bert.text.contents import as_array, first_rows, hashed
from extensions.search import passages
from extensions.search.index import KEYS, OFFSETS, PASSAGES, STAGE, VECTORS, Index, Vectors
from extensions.search.passages import Cutter, Document, Passage

BLOCK = 1 << 14  # vectors that are copied at once


class Counts(NamedTuple):
    """What became of the texts."""

    texts: int
    empty: int
    """texts without a word, which have no passage"""
    passages: int
    encoded: int
    kept: int
    """vectors of the earlier index that are in this one"""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How texts become passages."""

    document: Document
    length: int
    stride: int | None


class Builder:
    """Makes the index `output` of the file `texts`."""

    def __init__(self, texts: Path, output: Path, reader: Reader, vectors: Vectors, sizes: Sizes) -> None:
        """reader: encodes passages of `sizes.length` tokens.

        Raise InputError if `output` is something else, or an index with other vectors; IntegrityError if it is damaged.
        """
        self.texts, self.output, self.reader, self.vectors, self.sizes = texts, output, reader, vectors, sizes
        before = reader.says.prompt(DOCUMENT)
        self.cutter = Cutter(reader.tokenizer, sizes.length, sizes.stride, before)
        self.earlier = self._earlier()
        self.counts = Counts(0, 0, 0, 0, 0)

    def _earlier(self) -> Index | None:
        if not manifest.is_finished(self.output):
            return None
        earlier = Index.open(self.output)
        if earlier.made != self.vectors:
            what = earlier.made.difference(self.vectors)
            raise InputError(f"{self.output}: an index with another {what}; remove it, or choose another folder")
        return earlier

    def build(self, options: Any) -> Manifest:
        """Make the folder. options: the dataclass of the command's flags, to which what is kept after a stop belongs.

        Raise InputError if the texts cannot be read or have no word.
        """
        parameters = asdict(self.vectors) | asdict(self.sizes)
        before = files.sha256(self.output / manifest.NAME) if self.earlier else None
        flags = types.SimpleNamespace(**vars(options), earlier=before)  # the passages to encode depend on it
        with (
            resumable.keep([self.output], self.texts, flags, self.reader.run) as self.reader.compute,
            self.reader.progress,
        ):
            return outputs.build(self.output, stage=STAGE, parameters=parameters, inputs=[self.texts], make=self._make)

    def _make(self, folder: Path) -> outputs.StageResult:
        found = self._write_passages(folder)
        offsets = np.load(folder / OFFSETS)
        if not len(found):
            raise InputError(f"{self.texts}: no text with a word; give at least one")
        before = self.earlier.keys if self.earlier else found[:0]
        first = first_rows(np.concatenate([before, found]))[len(before) :]  # among the passages of both indexes
        is_kept = first < len(before)
        is_new = first == np.arange(len(before), len(before) + len(found))  # the first passage of its content
        shape = (len(found), self.reader.width)
        made = np.lib.format.open_memmap(folder / VECTORS, "w+", self.vectors.dtype, shape)
        if self.earlier is not None:
            _copy(self.earlier.vectors, first[is_kept], made, np.flatnonzero(is_kept))
        encoded = np.flatnonzero(is_new)
        self._encode(folder, offsets, encoded, made)
        again = ~(is_kept | is_new)
        _copy(made, first[again] - len(before), made, np.flatnonzero(again))
        made.flush()
        self.counts = self.counts._replace(passages=len(found), encoded=len(encoded), kept=int(is_kept.sum()))
        count = {"texts": self.counts.texts, "texts_without_words": self.counts.empty, "passages": len(found)}
        run = os.path.relpath(self.reader.run.path.resolve(), self.output.resolve())
        return outputs.StageResult(counts=count, records={PASSAGES: len(found)}, extra={"run": run})

    def _write_passages(self, folder: Path) -> np.ndarray:
        """Write the passages and where they are; return their keys [n, 16]."""
        texts = self._counted(passages.read(self.texts, self.sizes.document))
        offsets, hashes, with_words, last = array("q", [0]), bytearray(), 0, None
        with open(folder / PASSAGES, "wb") as stream:
            for passage in self.cutter.cut(texts):
                offsets.append(offsets[-1] + _write(stream, passage))
                with_words += passage.id != last  # the passages of a text follow each other
                last = passage.id
                hashes += hashed(f"{self.sizes.length}\n{self.cutter.embedded(passage)}")
        self.counts = self.counts._replace(empty=self.counts.texts - with_words)
        every = as_array(hashes)
        np.save(folder / OFFSETS, np.frombuffer(offsets, np.int64))
        np.save(folder / KEYS, every)
        return every

    def _counted(self, texts: Iterator[passages.Text]) -> Iterator[passages.Text]:
        for text in texts:
            self.counts = self.counts._replace(texts=self.counts.texts + 1)
            yield text

    def _encode(self, folder: Path, offsets: np.ndarray, rows: np.ndarray, made: np.ndarray) -> None:
        """Encode passages, and put their vectors into these rows of `made`."""
        self.reader.progress.total = len(rows)
        with open(folder / PASSAGES, "rb") as stream:

            def texts() -> Iterator[str]:
                for row in rows:
                    stream.seek(offsets[row])
                    line = stream.read(int(offsets[row + 1] - offsets[row]))
                    yield self.cutter.embedded(Passage(**json.loads(line)))

            for row, encoded in zip(rows, self.reader.encode_all(texts(), DOCUMENT), strict=True):
                made[row] = self.vectors.made(encoded.features[0])
                if not np.isfinite(made[row]).all():
                    raise IntegrityError("a feature is beyond float16; give --dtype float32, or --score cosine")


def _copy(source: np.ndarray, rows: np.ndarray, target: np.ndarray, places: np.ndarray) -> None:
    """Copy rows of vectors to these places, some at a time."""
    for begin in range(0, len(rows), BLOCK):
        target[places[begin : begin + BLOCK]] = source[rows[begin : begin + BLOCK]]


def _write(stream: IO[bytes], passage: Passage) -> int:
    """Write a line; return its bytes."""
    return stream.write(json.dumps(passage._asdict(), ensure_ascii=False).encode() + b"\n")
