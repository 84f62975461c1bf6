"""Scores of retrieval equal their definitions, and the search in blocks that over all documents at once."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bert.core.errors import InputError
from bert.retrieval import nearest
from tasks.retrieval import Retrieval, scores


def test_scores_are_by_their_definitions() -> None:
    ranked = [["a", "b", "c", "d"], ["x", "y", "z"], ["p", "q"]]
    grades = [{"b": 2.0, "d": 1.0, "e": 1.0}, {"x": 1.0}, {"r": 3.0}]
    found = scores(ranked, grades)
    best = 2 + 1 / math.log2(3) + 1 / 2
    assert found["ndcg@10"] == pytest.approx(((2 / math.log2(3) + 1 / math.log2(5)) / best + 1 + 0) / 3)
    assert found["mrr@10"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert found["map@100"] == pytest.approx(((1 / 2 + 2 / 4) / 3 + 1 + 0) / 3)
    assert [found[f"accuracy@{k}"] for k in (1, 3, 5)] == pytest.approx([1 / 3, 2 / 3, 2 / 3])


def test_only_the_first_documents_count() -> None:
    ranked = [[f"d{number}" for number in range(120)]]
    found = scores(ranked, [{"d10": 1.0, "d110": 1.0}])
    assert (found["mrr@10"], found["ndcg@10"], found["accuracy@10"]) == (0, 0, 0)
    assert found["map@100"] == pytest.approx(1 / 11 / 2)


@pytest.mark.parametrize("sizes", [[23], [1, 5, 0, 17], [7, 7, 9]])
def test_blocks_find_what_a_sort_finds(sizes: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "QUERIES", 4)
    random = np.random.default_rng(2)
    documents = random.integers(-2, 3, (23, 3)).astype(np.float32)  # many equal products
    queries = random.integers(-2, 3, (9, 3)).astype(np.float32)
    expected = np.array([sorted(range(23), key=lambda d: (-float(query @ documents[d]), d))[:6] for query in queries])
    blocks = iter(np.split(documents, np.cumsum(sizes)[:-1]))
    np.testing.assert_array_equal(nearest.in_blocks(blocks, queries, 6)[1], expected)


def a_folder(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": "d1", "title": "Ants", "text": "are small."}, {"_id": "d2", "text": "Figs"}]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"_id": "q1", "text": "small?"}, {"_id": "q2", "text": "fruit?"}, {"_id": "q3", "text": "unjudged"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq2\td2\t1\nq2\td1\t0\n")
    return folder


def test_a_folder_of_beir_is_read(tmp_path: Path) -> None:
    asked: list[tuple[str | None, str]] = []

    def encode(texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
        asked.extend((prompt, text) for text in texts)
        return np.array([[1.0, "mall" in text or "fruit" in text] for text in texts])

    data = Retrieval(a_folder(tmp_path / "beir"), "test")
    found = data.scores(encode).values
    queries = [("query", "small?"), ("query", "fruit?")]
    assert asked == [*queries, ("document", "Ants are small."), ("document", "Figs")]
    assert (len(data), data.texts) == (2, 4)
    assert found["accuracy@1"] == 50  # a query is like d1, and so is the other, whose answer is d2


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("qrels/test.tsv", None, r"no such file \(splits there: none\)"),
        (
            "qrels/test.tsv",
            "query-id\tcorpus-id\tscore\nq1\td1\tmuch\n",
            "line 2: not query-id, corpus-id and",
        ),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t0\n", "no document is relevant"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq9\td1\t1\n", "the query 'q9', which queries.jsonl has not"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td9\t1\n", "the document 'd9', which corpus.jsonl has not"),
        ("corpus.jsonl", '{"_id": "d1"}\n', "line 1: text is None, not a text"),
        ("corpus.jsonl", '{"_id": "d1", "text": 3}\n', "line 1: text is 3, not a text"),
        ("corpus.jsonl", '{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}\n', "the id 'd1' is that of line 1"),
        ("queries.jsonl", None, "no such file"),
    ],
)
def test_a_damaged_folder_is_refused_by_name(file: str, content: str | None, message: str, tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "beir")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(InputError, match=message):
        Retrieval(folder, "test")
