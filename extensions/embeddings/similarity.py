"""How well embeddings rank: pairs of texts by their likeness, and documents by their use for a query.

`of` gives what a file or a folder is for, with its scores. The cosine of two embeddings is what ranks, or what the
model says instead.

n texts, D width.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from bert.core.errors import InputError
from bert.embedding import Similarity
from extensions.embeddings import groups, retrieval, sts
from extensions.embeddings.retrieval import Encode
from extensions.search import nearest
from tasks import metrics
from tasks.examples import Skipped

METRICS = ("spearman", "pearson")
PAIR, SCORE, MEAN = ("sentence1", "sentence2"), "score", "mean"  # of STS sets


class Ranked(Protocol):
    """What embeddings are scored on."""

    names: tuple[str, ...]
    """of the scores, the one by which checkpoints are compared first"""

    def __len__(self) -> int:
        """Return the number of pairs, or of queries."""

    @property
    def texts(self) -> int:
        """Number of texts that are encoded."""

    def scores(self, encode: Encode, score: Similarity = "cosine") -> metrics.Scores:
        """Return the scores of the embeddings that `encode` gives, compared by `score`."""


class ScoredPairs:
    """Pairs of texts with a score, as STS-B has them: the correlation of the scores with the cosines."""

    names: tuple[str, ...] = METRICS

    def __init__(
        self, paths: Sequence[Path], text: Sequence[str], score: str, skipped: Skipped, limit: int = 0
    ) -> None:
        """paths: of the files of one set. text: both columns. score: its column. limit: of pairs, the first; 0: all."""
        pairs = (pair for path in paths for pair in groups.read(path, text, score, skipped=skipped))
        found = list(itertools.islice(pairs, limit or None))
        skipped.report()
        if not found:
            why = f"; the first: {skipped.reasons[0]}" if skipped.count else ""
            raise InputError(f"{paths[0]}: no usable pair with a score{why}; check the names of its columns")
        self._texts = [text for pair in found for text in pair.texts]
        self._scores = [pair.score or 0.0 for pair in found]

    def __len__(self) -> int:
        return len(self._scores)

    @property
    def texts(self) -> int:
        """Number of texts that are encoded: two for each pair."""
        return len(self._texts)

    def scores(self, encode: Encode, score: Similarity = "cosine") -> metrics.Scores:
        """Return the correlations of the given scores with the similarities of the pairs' embeddings."""
        made = encode(self._texts).astype(np.float64)
        return metrics.scores(self.names, self._scores, nearest.pairwise(made[0::2], made[1::2], score))


class Sets:
    """The test sets of `sts` in a folder: the Spearman correlation of each over all its pairs, and their mean.

    The pairs of a year are one set, as in SimCSE (Gao et al. 2021; "all" of SentEval).
    """

    def __init__(self, folder: Path, paths: Mapping[str, Sequence[Path]], strict: bool, limit: int = 0) -> None:
        """paths: of the files of each set. strict: of Skipped. limit: number of pairs of each set; 0: all."""
        self.names: tuple[str, ...] = (MEAN, *paths)
        self._sets = {name: ScoredPairs(of_set, PAIR, SCORE, Skipped(strict), limit) for name, of_set in paths.items()}
        if missing := [name for name in sts.NAMES if name not in paths]:
            print(
                f"note: {folder}: the mean is that of {len(paths)} sets, without {', '.join(missing)}; papers have all "
                f"{len(sts.NAMES)}",
                file=sys.stderr,
            )

    def __len__(self) -> int:
        return sum(len(pairs) for pairs in self._sets.values())

    @property
    def texts(self) -> int:
        """Number of texts that are encoded, in all sets."""
        return sum(pairs.texts for pairs in self._sets.values())

    def scores(self, encode: Encode, score: Similarity = "cosine") -> metrics.Scores:
        """Return the Spearman correlation of each set, and their mean."""
        found = {name: pairs.scores(encode, score) for name, pairs in self._sets.items()}
        values = {name: scores.values["spearman"] for name, scores in found.items()}
        undefined = {name: scores.undefined["spearman"] for name, scores in found.items() if scores.undefined}
        return metrics.Scores(values=values | {MEAN: float(np.mean([*values.values()]))}, undefined=undefined)


def of(path: Path, split: str, text: Sequence[str], score: str, skipped: Skipped, limit: int = 0) -> Ranked:
    """Return the scored pairs of a file; or of a folder queries and documents in BEIR's layout, or STS test sets.

    split: of BEIR's folder. text, score: columns of the file. Raise InputError for anything else.
    """
    if not path.is_dir():
        return ScoredPairs([path], text, score, skipped, limit)
    if not (path / retrieval.CORPUS).exists() and (found := sts.sets(path)):
        return Sets(path, found, skipped.strict, limit)
    return retrieval.Retrieval(path, split, limit)
