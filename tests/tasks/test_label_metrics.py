"""Scores of sets of labels equal scikit-learn's; thresholds are the best of all; what is not known is not counted."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core.errors import InputError, IntegrityError
from tasks import label_metrics
from tasks.known.of_tables import LABELS
from tests.tasks.test_metrics import compared, oracle

CASES = 300
PAIRS = st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])), min_size=1, max_size=19)


def case(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of 1 to 39 texts, often none; probabilities, many of them equal; and which labels are given."""
    shape = (int(random.integers(1, 40)), int(random.integers(2, 8)))
    gold = random.random(shape) < random.random(shape[1]) * random.choice([0.3, 1.1])
    probabilities = np.where(random.random(shape) < 0.5, gold, random.random(shape)).round(int(random.integers(1, 9)))
    return gold.astype(np.float32), probabilities, probabilities >= random.random(shape[1])


def scored(gold: np.ndarray, probabilities: np.ndarray, chosen: np.ndarray) -> label_metrics.Scores:
    return label_metrics.scores(LABELS, gold, probabilities, chosen, [f"l{n}" for n in range(gold.shape[1])])


@pytest.mark.slow
@compared
def test_sets_of_labels_score_as_by_scikit_learn(tmp_path: Path) -> None:
    random = np.random.default_rng(23)
    cases = [case(random) for _ in range(CASES)]
    named = {f"{name}{n}": x for n, one in enumerate(cases) for name, x in zip(NAMES, one, strict=True)}
    theirs = oracle("labels", tmp_path, **named)
    ours = [scored(*one).values for one in cases]
    for name in LABELS:
        np.testing.assert_allclose([values[name] for values in ours], theirs[name], atol=1e-10, err_msg=name)


NAMES = ("gold", "probabilities", "given")


def test_what_is_not_known_is_not_counted() -> None:
    random = np.random.default_rng(29)
    for _ in range(99):
        gold, probabilities, chosen = case(random)
        unknown = random.random(gold.shape) < 0.3
        gold[unknown] = -1
        other = np.where(unknown, random.random(gold.shape), probabilities), np.where(unknown, ~chosen, chosen)
        assert scored(gold, *other) == scored(gold, probabilities, chosen)
        known = gold[:, 0] >= 0
        if known.any():  # of one label alone, it is as if the other texts were not there
            alone = scored(gold[:, :1], probabilities[:, :1], chosen[:, :1])
            fewer = scored(*(x[known, :1] for x in (gold, probabilities, chosen)))
            assert alone.values["average_precision"] == fewer.values["average_precision"]
            assert alone.values["micro_f1"] == fewer.values["micro_f1"]


@given(PAIRS)
def test_no_threshold_is_better_than_the_best(pairs: list[tuple[bool, float]]) -> None:
    gold, probabilities = (np.array(column, float) for column in zip(*pairs, strict=True))

    def f1(threshold: float) -> float:
        chosen = probabilities >= threshold
        return float(2 * (gold * chosen).sum() / max(1, gold.sum() + chosen.sum()))

    threshold, best = label_metrics.best_threshold(gold, probabilities)
    if not gold.any():
        assert (threshold, best) == (0.5, 0)
        return
    assert 0 <= threshold <= 1 and f1(threshold) == pytest.approx(best)
    assert best == pytest.approx(max(f1(one) for one in {*probabilities, 0.0}))


def test_what_has_no_score_is_told_or_refused() -> None:
    gold = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0]])
    found = scored(gold, np.full((3, 3), 0.4), np.zeros((3, 3), bool))
    assert found.values["accuracy"] == pytest.approx(100 / 3) and found.values["roc_auc"] == 50
    assert found.undefined == {
        "average_precision": "no text has l1",
        "roc_auc": "left out of the mean, as all or no texts have l1",
        "macro_f1": "no text has or is given l1",
        "samples_f1": "1 texts have no label and are given none; each counts as 0",
    }
    with pytest.raises(InputError, match="nothing to score"):
        scored(gold[:0], gold[:0], gold[:0] > 0)
    with pytest.raises(IntegrityError, match="not finite"):
        scored(gold, np.full((3, 3), np.nan), gold > 0)
