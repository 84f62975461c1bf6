"""Make an index of the texts in a file, or bring one up to date: what it has already is not encoded again.

The index becomes that of the file: passages that are new in it are encoded, those that are gone are left out. The new
folder takes the place of the old one when it is complete. What a stopped or killed command has encoded is kept beside
the folder (`bert.resumable`).
"""

import json
import os
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from bert import resumable
from bert.core import files, manifest, outputs
from bert.core.errors import InputError, IntegrityError
from bert.core.manifest import Manifest
from bert.hidden_states import Reader
from bert.retrieval import passages
from bert.retrieval.index import KEY, KEYS, OFFSETS, PASSAGES, STAGE, VECTORS, Index, Vectors, keys
from bert.retrieval.passages import Cutter, Document, Passage

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
        self.cutter = Cutter(reader.tokenizer, sizes.length, sizes.stride)
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
        known = _rows_of(self.earlier.keys) if self.earlier else {}
        named = [key.tobytes() for key in found]
        first = _rows_of(found)  # the first passage of each content
        encoded = [row for row, key in enumerate(named) if key not in known and first[key] == row]
        kept = [row for row, key in enumerate(named) if key in known]
        width = self.reader.run.config.hidden_size
        made = np.lib.format.open_memmap(folder / VECTORS, "w+", self.vectors.dtype, (len(found), width))
        if self.earlier is not None:
            sources = np.array([known[named[row]] for row in kept], np.int64)
            for begin in range(0, len(kept), BLOCK):
                made[kept[begin : begin + BLOCK]] = self.earlier.vectors[sources[begin : begin + BLOCK]]
        self._encode(folder, offsets, encoded, made)
        for row, key in enumerate(named):
            if key not in known and first[key] != row:
                made[row] = made[first[key]]
        made.flush()
        self.counts = self.counts._replace(passages=len(found), encoded=len(encoded), kept=len(kept))
        count = {"texts": self.counts.texts, "texts_without_words": self.counts.empty, "passages": len(found)}
        run = os.path.relpath(self.reader.run.path.resolve(), self.output.resolve())
        return outputs.StageResult(counts=count, records={PASSAGES: len(found)}, extra={"run": run})

    def _write_passages(self, folder: Path) -> np.ndarray:
        """Write the passages and where they are; return their keys [n, KEY]."""
        texts = self._counted(passages.read(self.texts, self.sizes.document))
        offsets, found, ids = [0], list[np.ndarray](), set[str]()
        with open(folder / PASSAGES, "wb") as stream:
            for passage in self.cutter.cut(texts):
                offsets.append(offsets[-1] + _write(stream, passage))
                ids.add(passage.id)
                found.append(keys([self.cutter.embedded(passage)], self.sizes.length))
        self.counts = self.counts._replace(empty=self.counts.texts - len(ids))
        every = np.concatenate([np.zeros((0, KEY), np.uint8), *found])
        np.save(folder / OFFSETS, np.array(offsets, np.int64))
        np.save(folder / KEYS, every)
        return every

    def _counted(self, texts: Iterator[passages.Text]) -> Iterator[passages.Text]:
        for text in texts:
            self.counts = self.counts._replace(texts=self.counts.texts + 1)
            yield text

    def _encode(self, folder: Path, offsets: np.ndarray, rows: list[int], made: np.ndarray) -> None:
        """Encode passages, and put their vectors into these rows of `made`."""
        self.reader.progress.total = len(rows)
        with open(folder / PASSAGES, "rb") as stream:

            def texts() -> Iterator[str]:
                for row in rows:
                    stream.seek(offsets[row])
                    line = stream.read(int(offsets[row + 1] - offsets[row]))
                    yield self.cutter.embedded(Passage(**json.loads(line)))

            for row, encoded in zip(rows, self.reader.encode_all(texts()), strict=True):
                made[row] = self.vectors.made(encoded.features[0])
                if not np.isfinite(made[row]).all():
                    raise IntegrityError("a feature is beyond float16; give --dtype float32, or --score cosine")


def _rows_of(found: np.ndarray) -> Mapping[bytes, int]:
    """Return the first row of each key."""
    return {key.tobytes(): row for row, key in reversed(list(enumerate(found)))}


def _write(stream: IO[bytes], passage: Passage) -> int:
    """Write a line; return its bytes."""
    return stream.write(json.dumps(passage._asdict(), ensure_ascii=False).encode() + b"\n")
