"""Scores of retrieval equal their definitions, and the search in blocks that over all documents at once."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bert.core.errors import InputError
from extensions.embeddings.retrieval import Retrieval, scores
from extensions.search import nearest


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
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\tinf\n", "line 2: the grade inf is no number"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq9\td1\t1\n", "queries.jsonl has none of the ids in .*'q9'"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td9\t1\n", "corpus.jsonl has none of the ids in .*'d9'"),
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


QRELS = {
    "a query of grade 0 alone": ("q1 d1 1, q2 d1 0, q2 d2 0", 50.0, "1 queries without a relevant document", "'q2'"),
    "negative grades": ("q1 d1 1, q1 d2 -1, q2 d2 -2", 50.0, "1 queries without a relevant document", "'q2'"),
    "a document that is not there": ("q1 d1 1, q1 gone 1", 61.3147, "1 relevant documents that corpus.jsonl", "'gone'"),
    "a query with such documents alone": ("q1 d1 1, q2 gone 1", 50.0, "1 relevant documents", "'gone'"),
    "a query that is not there": ("q1 d1 1, q9 d1 1", 100.0, "1 queries that queries.jsonl lacks", "'q9'"),
    "a document judged twice": ("q1 d1 1, q1 d2 1, q1 d2 0", 100.0, "", ""),
}


@pytest.mark.parametrize("name", QRELS)
def test_what_is_not_there_counts_as_in_trec_eval(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ndcg_cut.10 of pytrec_eval-terrier 0.5.11 for the same qrels, as a mean over the queries that it returns.

    Of the query q1 the document d1 is nearer than d2, of q2 as well. BEIR keeps the last grade of a document.
    """
    qrels, expected, note, first = QRELS[name]
    folder = a_folder(tmp_path / "beir")
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(line.split()) for line in qrels.split(","))]
    (folder / "qrels/test.tsv").write_text("\n".join(lines) + "\n")
    data = Retrieval(folder, "test")
    told = capsys.readouterr().err
    assert (note in told and first in told) if note else not told

    def encode(texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
        return np.array([[1.0, 0.2 * ("Figs" in text)] for text in texts])

    found = data.scores(encode).values
    assert found["ndcg@10"] == pytest.approx(expected, abs=1e-3) and np.isfinite([*found.values()]).all()


@pytest.mark.parametrize(("relevant", "rank"), [("d9", 1), ("d2", 2), ("d10", 3), ("d1", 4)])
def test_of_equal_scores_the_greater_id_is_first(relevant: str, rank: int, tmp_path: Path) -> None:
    """trec_eval sorts by score, then by descending id as bytes (form_res_rels.c; pytrec_eval-terrier 0.5.11)."""
    folder = a_folder(tmp_path / "beir")
    rows = [json.dumps({"_id": name, "text": name}) for name in ("d10", "d1", "d9", "d2")]
    (folder / "corpus.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\nq1\t{relevant}\t1\n")
    found = Retrieval(folder, "test").scores(lambda texts, prompt=None: np.ones((len(texts), 3))).values
    assert found["mrr@10"] == pytest.approx(100 / rank)
