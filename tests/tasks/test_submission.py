"""Submissions are as the GLUE server takes them, and GLUE's score is the mean over its nine tasks."""

from pathlib import Path

import pytest

from bert.errors import InputError, UsageError
from tasks import glue, submission


def test_a_submission_has_the_ids_in_order(tmp_path: Path) -> None:
    with submission.writer("rte", tmp_path / "RTE.tsv") as add:
        add("0", "entailment")
        add("1", "not_entailment")
    assert (tmp_path / "RTE.tsv").read_text() == "index\tprediction\n0\tentailment\n1\tnot_entailment\n"


def test_similarity_is_clipped(tmp_path: Path) -> None:
    with submission.writer("stsb", tmp_path / "STS-B.tsv") as add:
        for identity, value in enumerate((-0.3, 2.25, 5.5)):
            add(str(identity), value)
    assert (tmp_path / "STS-B.tsv").read_text().split("\n")[1:4] == ["0\t0.0000", "1\t2.2500", "2\t5.0000"]


@pytest.mark.parametrize("identity", ["0", "2", "x"])
def test_a_missing_or_doubled_id_leaves_no_file(tmp_path: Path, identity: str) -> None:
    with pytest.raises(InputError, match="stands where 1 is expected"), submission.writer("rte", tmp_path / "f") as add:
        add("0", "entailment")
        add(identity, "entailment")
    assert not (tmp_path / "f").exists()
    with pytest.raises(UsageError, match="not for race"), submission.writer("race", tmp_path / "f"):
        pass


def test_the_score_is_a_mean_of_means() -> None:
    scores = {name: {"accuracy": 50.0} for name in glue.TASKS if name != "ax"}
    scores["mrpc"] = {"f1": 90.0, "accuracy": 80.0}
    assert submission.score(scores) == pytest.approx((8 * 50 + 85) / 9)
    with pytest.raises(InputError, match="no scores of wnli"):
        submission.score({name: row for name, row in scores.items() if name != "wnli"})
