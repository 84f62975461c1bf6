"""How well embeddings rank: pairs of texts by their likeness, and documents by their use for a query.

`of` gives what a file or a folder is for, with its scores. The cosine of two embeddings is what ranks.

n texts, D width.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from bert.core.errors import InputError
from bert.retrieval import nearest
from tasks import metrics, retrieval, tables
from tasks.examples import Skipped

METRICS = ("spearman", "pearson")
Encode = Callable[[Sequence[str]], np.ndarray]  # texts -> their embeddings [n, D]


class Ranked(Protocol):
    """What embeddings are scored on."""

    names: tuple[str, ...]
    """of the scores, the one by which checkpoints are compared first"""

    def __len__(self) -> int:
        """Return the number of pairs, or of queries."""

    @property
    def texts(self) -> int:
        """Number of texts that are encoded."""

    def scores(self, encode: Encode) -> metrics.Scores:
        """Return the scores of the embeddings that `encode` gives."""


class ScoredPairs:
    """Pairs of texts with a score, as STS-B has them: the correlation of the scores with the cosines."""

    names: tuple[str, ...] = METRICS

    def __init__(self, path: Path, text: Sequence[str], score: str, skipped: Skipped, limit: int = 0) -> None:
        """text: both columns. score: its column. limit: number of pairs, from the first on; 0: all."""
        pairs = tables.groups(path, text, score, skipped=skipped)
        found = list(itertools.islice(pairs, limit or None))
        skipped.report()
        if not found:
            why = f"; the first: {skipped.reasons[0]}" if skipped.count else ""
            raise InputError(f"{path}: no usable pair with a score{why}; check the names of its columns")
        self._texts = [text for pair in found for text in pair.texts]
        self._scores = [pair.score or 0.0 for pair in found]

    def __len__(self) -> int:
        return len(self._scores)

    @property
    def texts(self) -> int:
        """As Ranked has it."""
        return len(self._texts)

    def scores(self, encode: Encode) -> metrics.Scores:
        """As Ranked has it."""
        unit = nearest.unit_length(encode(self._texts)).astype(np.float64)
        return metrics.scores(self.names, self._scores, (unit[0::2] * unit[1::2]).sum(axis=1))


def of(path: Path, split: str, text: Sequence[str], score: str, skipped: Skipped, limit: int = 0) -> Ranked:
    """Return the scored pairs of a file, or the queries and documents of a folder in BEIR's layout.

    split: of the folder. text, score: columns of the file. Raise InputError for anything else.
    """
    if path.is_dir():
        return retrieval.Retrieval(path, split, limit)
    return ScoredPairs(path, text, score, skipped, limit)
