"""Embeddings and their scores equal those of sentence-transformers."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert import encode
from bert.convert import __main__ as convert
from tasks import retrieval
from tasks.examples import Skipped
from tasks.similarity import ScoredPairs
from tests.parity.test_transformers import oracle
from tests.tasks.test_embedding import trained

pytestmark = [pytest.mark.parity, pytest.mark.slow]
TEXTS = ["ant bee", "the ant and the kiwi", "fig", "", "kiwi " * 60]


@pytest.mark.parametrize(("pool", "normalize"), [("mean", "true"), ("cls", "false"), ("max", "true")])
def test_a_trained_run_gives_the_same_vectors_there(
    pool: str, normalize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path, monkeypatch, "--data.pool", pool, "--data.normalize", normalize, "--length.epochs", "1")
    convert.main(["export", "huggingface", str(run), str(tmp_path / "folder")])
    (tmp_path / "texts").write_text("\n".join(TEXTS) + "\n")
    ours = tmp_path / "ours.npz"
    encode.main(["--model", str(run), "--input", str(tmp_path / "texts"), "--output", str(ours)])
    (longest,) = oracle(("embedded", tmp_path / "folder", TEXTS, tmp_path / "theirs.npy"))
    found, theirs = np.load(ours)["features"][:, 0], np.load(tmp_path / "theirs.npy")
    np.testing.assert_allclose(found, theirs, atol=1e-5)
    assert longest == 33


def test_scores_of_retrieval_and_of_pairs_are_theirs(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    queries, documents = random.normal(size=(23, 5)), random.normal(size=(331, 5))
    wanted = [sorted({*random.integers(0, 331, random.integers(1, 40)).tolist()}) for _ in queries]
    pairs, scores = random.normal(size=(57, 2, 7)), random.integers(0, 6, 57).astype(float)
    jobs = ("retrieved", queries.tolist(), documents.tolist(), wanted), ("similar", pairs.tolist(), scores.tolist())
    theirs, of_pairs = oracle(*jobs)

    (tmp_path / "qrels").mkdir()
    rows = [{"_id": f"d{n:04d}", "text": f"d{n}"} for n in range(331)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"_id": f"q{n}", "text": f"q{n}"} for n in range(23)]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"q{n}\td{number:04d}\t1\n" for n, numbers in enumerate(wanted) for number in numbers]
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    rows_of = {f"q{n}": row for n, row in enumerate(queries)} | {f"d{n}": row for n, row in enumerate(documents)}
    found = retrieval.Retrieval(tmp_path, "test").scores(lambda texts: np.stack([rows_of[text] for text in texts]))
    assert found.values == pytest.approx({name: 100 * theirs[name] for name in found.values}, abs=1e-4)

    lines = [f"{n}\tsecond {n}\t{score:g}\n" for n, score in enumerate(scores)]
    (tmp_path / "pairs.tsv").write_text("a\tb\tscore\n" + "".join(lines))
    ranked = ScoredPairs([tmp_path / "pairs.tsv"], ("a", "b"), "score", Skipped())
    mine = ranked.scores(lambda texts: pairs.reshape(-1, 7)).values
    assert mine == pytest.approx({name: 100 * value for name, value in of_pairs.items()}, abs=1e-4)
