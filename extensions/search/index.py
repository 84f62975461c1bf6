"""An index: the vectors of passages in a folder, and the passages.

vectors.npy     [n, D] float32 or float16
passages.jsonl  a line for each passage: id and title of its text, first and last character in it, and its own text
offsets.npy     [n + 1] bytes at which these lines begin
keys.npy        [n, 16] hashes of what was encoded (contents.py), so that what is there is not encoded again
manifest.json   the model's hashes, how vectors are made and compared, and the hashes of these files; written last
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np

from bert.api import Hit, Model, Searched
from bert.core import checked_json, manifest
from bert.core.errors import InputError, IntegrityError
from bert.core.manifest import Manifest
from bert.embedding import QUERY, Pool, Similarity, unit_length
from bert.runs import Run
from extensions.search import nearest
from extensions.search.passages import Passage

Score = Similarity
Numbers = Literal["float32", "float16"]
Products = Literal["float32", "bfloat16", "float16", "8 bits and float32", "8 bits and bfloat16"]

STAGE = "bert.search"
VECTORS, PASSAGES, OFFSETS, KEYS = "vectors.npy", "passages.jsonl", "offsets.npy", "keys.npy"


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """How the vectors of an index are made and compared. Vectors made in another way cannot be in the same index."""

    model: dict[str, str]
    """hashes of the weights and of the files that describe them"""
    pool: Pool
    score: Score
    dtype: Numbers
    compute: Products = "float32"
    """types of the matrix products that made them"""

    def made(self, features: np.ndarray) -> np.ndarray:
        """Return features [..., D] as they are compared: for the cosine, scaled to length 1."""
        return unit_length(features) if self.score == "cosine" else features

    def difference(self, other: "Vectors") -> str:
        """Return the names of what differs."""
        return " and ".join(name for name, value in vars(self).items() if value != getattr(other, name))


@dataclass(frozen=True, kw_only=True)
class _Extra:
    run: str
    """path of the model, from the folder of the index"""


class Index:
    """An index that is searched. Its vectors and passages stay on the disk, and are read where they are needed."""

    def __init__(self, described: Manifest, vectors: Vectors) -> None:
        """Take a folder whose files have been checked. Raise IntegrityError if their sizes do not fit."""
        self.path, self.made = described.path, vectors
        self.run = Path(os.path.normpath(self.path.resolve() / described.extra_as(_Extra).run))
        count = described.count("passages")
        self.vectors = np.load(self.path / VECTORS, mmap_mode="r")
        self.offsets, self.keys = (np.load(self.path / name, mmap_mode="r") for name in (OFFSETS, KEYS))
        self._lines = np.memmap(self.path / PASSAGES, np.uint8, "r")
        sizes = (len(self.vectors), len(self.offsets) - 1, len(self.keys))
        if sizes != (count, count, count) or self.offsets[-1] != len(self._lines):
            raise IntegrityError(f"{self.path}: its files do not have {count} passages each; make the index again")

    @classmethod
    def open(cls, path: Path | str) -> "Index":
        """Check all files of an index.

        Raise InputError if it is none, IntegrityError, naming the file, if one is missing or damaged.
        """
        described = load(Path(path))
        manifest.verify(described)
        return cls(described, vectors_of(described))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self.vectors.shape[1])

    def check(self, run: Run) -> None:
        """Raise InputError unless the index was made by this model; its weights are loaded."""
        if run.identity != self.made.model:
            raise InputError(f"{self.path}: made by another model than {run.path}; give that one, or index again")

    def model(self) -> Path:
        """Return the run directory of its model. Raise InputError if it is not where it was."""
        if not self.run.is_dir():
            raise InputError(f"{self.path}: its model is no longer at {self.run}; give the run directory (--model)")
        return self.run

    def passage(self, row: int) -> Passage:
        """Return a passage."""
        begin, end = self.offsets[row : row + 2]
        return Passage(**json.loads(self._lines[begin:end].tobytes()))

    def search(self, features: np.ndarray, top: int) -> list[list[Hit]]:
        """Return the best passages for the features of each query [q, D], best first."""
        scores, rows = nearest.top(self.vectors, self.made.made(features), top, self.made.score)
        return [
            [hit(self.passage(row), score) for row, score in zip(*pair, strict=True)]
            for pair in zip(rows.tolist(), scores.tolist(), strict=True)
        ]


def search(model: Model, index: Searched | Path | str, queries: list[str], top: int) -> list[list[Hit]]:
    """Do what `Model.search` does, for many queries."""
    opened = index if isinstance(index, Index) else Index.open(cast(Path | str, index))
    opened.check(model.run)
    return opened.search(model.embed(queries, pool=opened.made.pool, prompt=QUERY), top)


def hit(passage: Passage, score: float) -> Hit:
    """Return a passage with its score."""
    return Hit(score=score, **passage._asdict())


def load(path: Path) -> Manifest:
    """Return the manifest of an index. Raise InputError if it is none, IntegrityError if a file is missing."""
    try:
        described = manifest.read(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no index; make one: python -m bert.search index TEXTS {path}") from error
    if described.stage != STAGE:
        raise InputError(f"{path}: made by {described.stage}, not by python -m bert.search index; check the path")
    return manifest.load(path)


def vectors_of(described: Manifest) -> Vectors:
    """Return how the vectors of an index are made. Raise IntegrityError if its manifest does not say it."""
    try:
        made: Vectors = checked_json.take(Vectors, described.parameters)
        return made
    except ValueError as error:
        raise IntegrityError(f"{described.path / manifest.NAME}: {error}; make the index again") from error
