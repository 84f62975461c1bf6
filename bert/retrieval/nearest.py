"""Exact search: the vectors with the largest scalar products, found block by block.

n vectors, q queries, D width, k results.
"""

import numpy as np

ROWS = 1 << 16  # vectors of a block: their scores, and if they are float16 a copy in float32, are held in memory
QUERIES = 64  # whose scores are computed together


def top(vectors: np.ndarray, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and rows of the `count` best vectors for each query, best first, both [q, k].

    vectors: [n, D] float32 or float16, which may be a memory map. queries: [q, D] float32. k is the smaller one of
    `count` and n. Of vectors with equal scores the first ones are taken.
    """
    size = min(count, len(vectors))
    scores = np.zeros((len(queries), size), np.float32)
    rows = np.zeros((len(queries), size), np.int64)
    for begin in range(0, len(queries), QUERIES):
        chunk = slice(begin, begin + QUERIES)
        scores[chunk], rows[chunk] = _top(vectors, queries[chunk], size)
    return scores, rows


def _top(vectors: np.ndarray, queries: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    best = [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
    for begin in range(0, len(vectors), ROWS):
        products = queries @ vectors[begin : begin + ROWS].astype(np.float32, copy=False).T  # [q, block]
        for number, (scores, rows) in enumerate(best):
            here = _candidates(products[number], size)
            scores, rows = np.append(scores, products[number, here]), np.append(rows, here + begin)
            order = np.lexsort((rows, -scores))[:size]
            best[number] = scores[order], rows[order]
    return np.stack([scores for scores, _ in best]), np.stack([rows for _, rows in best])


def _candidates(scores: np.ndarray, size: int) -> np.ndarray:
    """Return the places of the `size` largest scores, and of those equal to the smallest of them."""
    if len(scores) <= size:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - size)[len(scores) - size]
    return np.flatnonzero(scores >= least)
