"""Exact search is what sorting all scalar products gives."""

import tracemalloc

import numpy as np
import pytest

from bert.embedding import Similarity
from extensions.search import nearest


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("vectors", "queries", "count"), [(1, 1, 3), (7, 5, 7), (211, 9, 1), (211, 3, 40), (97, 5, 200)]
)
def test_the_nearest_are_those_of_a_full_sort(
    dtype: type, vectors: int, queries: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "ROWS", 13)
    monkeypatch.setattr(nearest, "QUERIES", 4)
    random = np.random.default_rng(vectors)
    data: np.ndarray = random.integers(-3, 4, (vectors, 11)).astype(
        dtype
    )  # small whole numbers: exact products, many equal ones
    asked = random.integers(-3, 4, (queries, 11)).astype(np.float32)
    products = asked.astype(np.float64) @ data.astype(np.float64).T
    order = np.argsort(-products, axis=1, kind="stable")[:, :count]
    scores, rows = nearest.top(data, asked, count)
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_array_equal(scores, np.take_along_axis(products, order, axis=1))


@pytest.mark.parametrize(("score", "power"), [("euclidean", 2), ("manhattan", 1)])
def test_the_smallest_distances_are_those_of_a_full_sort(
    score: Similarity, power: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "ROWS", 29)
    monkeypatch.setattr(nearest, "AT_ONCE", 13)
    random = np.random.default_rng(power)
    data, asked = random.normal(size=(97, 11)).astype(np.float32), random.normal(size=(5, 11)).astype(np.float32)
    data[3], data[80] = asked[1], asked[1] + 1e-4  # nearer than what rounding leaves of a difference of squares
    differences = np.abs(asked.astype(np.float64)[:, None] - data)
    distances = (differences**power).sum(axis=2) ** (1 / power)
    order = np.argsort(distances, axis=1)[:, :7]
    scores, rows = nearest.top(data, asked, 7, score)
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_allclose(scores, -np.take_along_axis(distances, order, axis=1), rtol=1e-5)


def test_no_query_has_no_result() -> None:
    scores, rows = nearest.top(np.ones((5, 3), np.float32), np.zeros((0, 3), np.float32), 2)
    assert scores.shape == rows.shape == (0, 2)


def test_memory_is_that_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "ROWS", 100)
    data = np.ones((20_000, 32), np.float16)  # 1.3 MB; 2.6 MB as float32
    tracemalloc.start()
    nearest.top(data, np.ones((3, 32), np.float32), 5)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
