"""Exact search: the vectors with the largest scalar products or the smallest distances, found block by block.

n vectors, q queries, D width, k results.
"""

from collections.abc import Iterable

import numpy as np

from bert.embedding import Similarity, unit_length

ROWS = 1 << 16  # vectors of a block: their scores, and if they are float16 a copy in float32, are held in memory
QUERIES = 64  # whose scores are computed together
AT_ONCE = 1 << 12  # vectors whose differences from a query are held in memory


def pairwise(first: np.ndarray, second: np.ndarray, score: Similarity) -> np.ndarray:
    """Return the likeness of each two vectors [..., D]; of a distance its negative."""
    if score == "cosine":
        first, second = unit_length(first), unit_length(second)
    if score in ("cosine", "dot"):
        return np.asarray((first * second).sum(axis=-1))
    difference = first - second
    return -np.linalg.norm(difference, axis=-1) if score == "euclidean" else -np.abs(difference).sum(axis=-1)


def top(
    vectors: np.ndarray, queries: np.ndarray, count: int, score: Similarity = "dot"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and rows of the `count` best vectors for each query, as `in_blocks` does.

    vectors: [n, D] float32 or float16, which may be a memory map.
    """
    return in_blocks((vectors[begin : begin + ROWS] for begin in range(0, len(vectors), ROWS)), queries, count, score)


def in_blocks(
    blocks: Iterable[np.ndarray],
    queries: np.ndarray,
    count: int,
    score: Similarity = "dot",
    order: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and rows of the `count` best vectors for each query, best first, both [q, k].

    blocks: the vectors, some rows at a time, float32 or float16. queries: [q, D] float32. score: what is compared; for
    the cosine all have length 1. k is the smaller one of `count` and n. Of vectors with equal scores the first ones are
    taken, or those with the smallest `order` [n].
    """
    best = [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
    first = 0
    for block in blocks:
        vectors = block.astype(np.float32, copy=False)
        for begin in range(0, len(queries), QUERIES):
            likeness = _all(queries[begin : begin + QUERIES], vectors, score)  # [q, block]
            for number, row in enumerate(likeness, start=begin):
                here = _candidates(row, count)
                scores, rows = np.append(best[number][0], row[here]), np.append(best[number][1], here + first)
                chosen = np.lexsort((rows if order is None else order[rows], -scores))[:count]
                best[number] = scores[chosen], rows[chosen]
        first += len(block)
    if not best:
        return np.zeros((0, min(count, first)), np.float32), np.zeros((0, min(count, first)), np.int64)
    return np.stack([scores for scores, _ in best]), np.stack([rows for _, rows in best])


def _all(queries: np.ndarray, vectors: np.ndarray, score: Similarity) -> np.ndarray:
    """Return the scores [q, n] of all vectors for all queries; distances from their differences, which are exact."""
    if score in ("cosine", "dot"):
        return np.asarray(queries @ vectors.T)
    scores = np.empty((len(queries), len(vectors)), np.float32)
    for begin in range(0, len(vectors), AT_ONCE):
        part = vectors[begin : begin + AT_ONCE]
        for number, query in enumerate(queries):
            scores[number, begin : begin + AT_ONCE] = pairwise(part, query, score)
    return scores


def _candidates(scores: np.ndarray, size: int) -> np.ndarray:
    """Return the places of the `size` largest scores, and of those equal to the smallest of them."""
    if len(scores) <= size:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - size)[len(scores) - size]
    return np.flatnonzero(scores >= least)
