"""Exact search: the vectors with the largest scalar products, found block by block.

n vectors, q queries, D width, k results.
"""

from collections.abc import Iterable

import numpy as np

from bert.embedding import SHORTEST

ROWS = 1 << 16  # vectors of a block: their scores, and if they are float16 a copy in float32, are held in memory
QUERIES = 64  # whose scores are computed together


def unit_length(x: np.ndarray) -> np.ndarray:
    """Return vectors [..., D] divided by their Euclidean length."""
    scaled: np.ndarray = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), SHORTEST)
    return scaled


def top(vectors: np.ndarray, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and rows of the `count` best vectors for each query, as `in_blocks` does.

    vectors: [n, D] float32 or float16, which may be a memory map.
    """
    return in_blocks((vectors[begin : begin + ROWS] for begin in range(0, len(vectors), ROWS)), queries, count)


def in_blocks(
    blocks: Iterable[np.ndarray], queries: np.ndarray, count: int, order: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and rows of the `count` best vectors for each query, best first, both [q, k].

    blocks: the vectors, some rows at a time, float32 or float16. queries: [q, D] float32. k is the smaller one of
    `count` and n. Of vectors with equal scores the first ones are taken, or those with the smallest `order` [n].
    """
    best = [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
    first = 0
    for block in blocks:
        vectors = block.astype(np.float32, copy=False).T
        for begin in range(0, len(queries), QUERIES):
            products = queries[begin : begin + QUERIES] @ vectors  # [q, block]
            for number, row in enumerate(products, start=begin):
                here = _candidates(row, count)
                scores, rows = np.append(best[number][0], row[here]), np.append(best[number][1], here + first)
                chosen = np.lexsort((rows if order is None else order[rows], -scores))[:count]
                best[number] = scores[chosen], rows[chosen]
        first += len(block)
    if not best:
        return np.zeros((0, min(count, first)), np.float32), np.zeros((0, min(count, first)), np.int64)
    return np.stack([scores for scores, _ in best]), np.stack([rows for _, rows in best])


def _candidates(scores: np.ndarray, size: int) -> np.ndarray:
    """Return the places of the `size` largest scores, and of those equal to the smallest of them."""
    if len(scores) <= size:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - size)[len(scores) - size]
    return np.flatnonzero(scores >= least)
