"""Scores equal those of scikit-learn and SciPy on random cases; what cannot be scored is refused, or noted."""

import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core.errors import InputError, IntegrityError, UsageError
from tasks import metrics
from tasks.classification import Classification
from tasks.config import TaskData
from tasks.examples import TextExample
from tasks.labels import Labels

CASES = 10_000  # of classes, and of numbers
ALL = ("accuracy", "f1", "micro_f1", "macro_f1", "matthews", "pearson", "spearman")
PYTHON = Path(__file__).resolve().parents[2] / ".venv-oracles" / "bin" / "python"
Array = np.ndarray[Any, Any]
Pairs = list[tuple[Array, Array]]

compared = pytest.mark.skipif(
    not PYTHON.exists(), reason="needs scripts/extra_venv.sh oracles true, which installs scikit-learn and SciPy"
)


def oracle(job: str, folder: Path, **cases: Any) -> dict[str, Array]:
    """The scores of scores_oracle.py, a process of another environment, in percent; NaN where they are undefined."""
    np.savez(folder / "cases.npz", **cases)
    program = Path(__file__).with_name("scores_oracle.py")
    subprocess.run([PYTHON, program, job, folder / "cases.npz", folder / "scores.npz"], check=True, timeout=300)
    with np.load(folder / "scores.npz") as scores:
        return {name: 100 * values for name, values in scores.items()}


def random_classes() -> Pairs:
    """Classes of one to five kinds, for 1 to 59 examples, often right; one kind is often rare or absent."""
    random = np.random.default_rng(17)
    cases = []
    for _ in range(CASES):
        kinds, length = random.integers(1, 6), random.integers(1, 60)
        gold, guess = random.choice(kinds, (2, length), p=random.dirichlet(np.full(kinds, 0.7)))
        cases.append((gold, np.where(random.random(length) < random.random(), gold, guess)))
    return cases


@pytest.mark.slow
@compared
@pytest.mark.parametrize("every", [50, pytest.param(1, marks=pytest.mark.thorough)])
def test_ten_thousand_cases_of_classes_score_as_by_scikit_learn(every: int, tmp_path: Path) -> None:
    cases = random_classes()
    gold, predicted = (np.concatenate([case[side] for case in cases]) for side in (0, 1))
    lengths = np.array([len(one) for one, _ in cases])
    theirs = oracle("classes", tmp_path, gold=gold, predicted=predicted, lengths=lengths, every=every)
    scored = [metrics.scores(ALL[:5], *case, positive=2, classes=[1, 3, 4]) for case in cases]
    ours = {name: np.array([scores.values[name] for scores in scored]) for name in ("f1", "micro_f1")}
    for name in ours:
        assert [name in scores.undefined for scores in scored] == np.isnan(theirs[name]).tolist()
        theirs[name] = np.nan_to_num(theirs[name])
    ours["macro_f1"] = np.array([100 * metrics.macro_f1(*case) for case in cases])
    ours["macro_f1_of_five"] = np.array([100 * metrics.macro_f1(*case, range(5)) for case in cases])
    ours |= {name: np.array([scores.values[name] for scores in scored]) for name in ("accuracy", "matthews")}
    ours |= {"direct_macro": ours["macro_f1"], "direct_micro": ours["micro_f1"]}
    steps = {"accuracy": every, "matthews": every, "direct_macro": 5 * every, "direct_micro": 5 * every}
    for name, values in ours.items():
        step = steps.get(name, 1)
        np.testing.assert_allclose(values[::step], theirs[name][::step], atol=1e-10, err_msg=name)


def random_numbers() -> Pairs:
    """Hundreds of pairs at once [cases, n]: few or many equal numbers, large and small, also far from their mean."""
    random = np.random.default_rng(19)
    blocks = []
    for block in range(50):
        length, kinds = int(random.integers(2, 48)) if block % 5 else 2 + block // 10, int(random.integers(2, 7))
        shape = (CASES // 50, length)
        gold = random.integers(0, kinds, shape) if block % 2 else random.standard_normal(shape)
        predicted = np.where(random.random(shape) < 0.5, gold, random.standard_normal(shape).round(int(block % 3)))
        blocks.append((10.0 ** random.integers(-9, 9) * gold, predicted + random.integers(0, 99)))
    return blocks


@pytest.mark.slow
@compared
def test_ten_thousand_correlations_are_those_of_scipy(tmp_path: Path) -> None:
    blocks = random_numbers()
    arrays = {f"gold{at}": gold for at, (gold, _) in enumerate(blocks)}
    arrays |= {f"predicted{at}": predicted for at, (_, predicted) in enumerate(blocks)}
    theirs = oracle("numbers", tmp_path, **arrays)
    pairs = [pair for block in blocks for pair in zip(*block, strict=True)]
    ours = [metrics.scores(["pearson", "spearman"], *pair) for pair in pairs]
    undefined = np.isnan(theirs["pearson"])
    assert 9 < undefined.sum() < CASES / 2
    for name in ("pearson", "spearman"):
        values = np.array([scores.values[name] for scores in ours])
        assert [name in scores.undefined for scores in ours] == undefined.tolist()
        np.testing.assert_allclose(values, np.nan_to_num(theirs[name]), atol=1e-10)
    np.testing.assert_allclose(
        [scores.values["spearman"] for scores in ours[:: CASES // 50]],
        np.nan_to_num(theirs["direct_spearman"][:: CASES // 50]),
        atol=1e-10,
    )


@given(st.lists(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 2), min_size=1, max_size=23))
def test_any_finite_numbers_have_a_correlation_between_minus_one_and_one(pairs: list[tuple[float, float]]) -> None:
    gold, predicted = np.array(pairs).T
    for correlation in (metrics.pearson, metrics.spearman):
        value = correlation(gold, predicted)
        assert -1 <= value <= 1
        assert correlation(predicted, gold) == pytest.approx(value, abs=1e-12)
        assert correlation(-gold, predicted) == pytest.approx(-value, abs=1e-12)


def test_a_small_case_scores_as_counted_by_hand() -> None:
    gold, predicted = [0, 0, 0, 1, 2, 1], [0, 0, 1, 1, 2, 2]
    assert metrics.accuracy(gold, predicted) == pytest.approx(4 / 6)
    assert [metrics.f1(gold, predicted, kind) for kind in range(3)] == pytest.approx([4 / 5, 2 / 4, 2 / 3])
    assert metrics.macro_f1(gold, predicted) == pytest.approx((4 / 5 + 2 / 4 + 2 / 3) / 3)
    assert metrics.micro_f1(gold, predicted, [1, 2]) == pytest.approx(2 * 2 / (3 + 4))
    # Ranks 1, 2.5, 2.5, 4 and 3, 1.5, 1.5, 4: their products sum to 1.5, their squares to 4.5 each.
    assert metrics.spearman([1, 2, 2, 5], [3, 1, 1, 9]) == pytest.approx(1 / 3)


def test_many_examples_do_not_overflow() -> None:
    gold = np.arange(300_007) % 2
    predicted = np.where(np.arange(300_007) % 4 == 0, 1 - gold, gold)
    assert metrics.matthews(gold, predicted) == pytest.approx(metrics.pearson(gold, predicted))
    assert 0.5 < metrics.matthews(gold, predicted) < 0.6  # a quarter is wrong, of one class: 1 / sqrt(3)


def test_micro_f1_counts_the_chosen_classes_alone() -> None:
    gold, predicted = [1, 1, 2, 0, 0, 2, 0], [1, 2, 2, 1, 0, 0, 0]
    # of 1 and 2: true positives 2, predicted 4, true 4
    assert metrics.micro_f1(gold, predicted, [1, 2]) == pytest.approx(0.5)
    assert metrics.micro_f1(gold, predicted, [0, 1, 2]) == metrics.accuracy(gold, predicted)


@pytest.mark.parametrize(
    ("gold", "predicted", "undefined"),
    [
        ([0, 1, 1, 0], [1, 1, 1, 1], {"matthews", "pearson", "spearman"}),
        ([0, 0, 0, 0], [0, 1, 0, 0], {"matthews", "pearson", "spearman"}),
        ([0, 2, 0, 2], [0, 2, 2, 2], {"f1"}),
        ([0, 3, 0, 3], [0, 3, 3, 3], {"f1", "micro_f1"}),
        ([0, 1, 0, 1], [0, 1, 1, 1], set()),
        ([4], [4], set(ALL) - {"accuracy", "macro_f1"}),
    ],
)
def test_an_undefined_score_is_zero_and_said(gold: list[int], predicted: list[int], undefined: set[str]) -> None:
    scores = metrics.scores(ALL, gold, predicted, positive=1, classes=[1, 2])
    assert set(scores.undefined) == undefined
    assert all(scores.values[name] == 0 for name in undefined)
    assert scores.note().count("undefined") == len(undefined) and "\n" not in scores.note()


@pytest.mark.parametrize("names", [("0", "1"), ("1", "0")])
def test_f1_of_glue_is_that_of_paraphrases_whatever_the_order_of_the_logits(names: tuple[str, ...]) -> None:
    """Three of four pairs are paraphrases; all but the last are called so: 2 of 3 both ways."""
    kind = Classification(TaskData(task="mrpc"), Labels(names=names), ("f1", "accuracy"))
    gold, predicted = ([names.index(one) for one in row] for row in ("1101", "1110"))
    logits = np.eye(2)[predicted]
    assert kind.scores(logits, {"label": np.array(gold)[:, None]}).values == {
        "f1": pytest.approx(200 / 3),
        "accuracy": 50,
    }
    examples = [TextExample(id=str(n), first="a", second="b", label=one) for n, one in enumerate("1101")]
    lines = [{"id": str(n), "label": one} for n, one in enumerate("1110")]
    assert kind.compare(examples, lines).values == {"f1": pytest.approx(200 / 3), "accuracy": 50}


def test_the_note_names_the_class_that_all_predictions_are() -> None:
    scores = metrics.scores(["accuracy", "matthews"], [0, 1, 1], [1, 1, 1])
    assert scores.values == {"accuracy": pytest.approx(200 / 3), "matthews": 0}
    assert scores.note() == "matthews is undefined and counted as 0: all 3 predictions are 1"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused_with_their_place(name: str, bad: float) -> None:
    good, damaged = [0.5, 1.5, 2.5], [0.5, 1.0, bad]
    for gold, predicted, side in ((good, damaged, "predicted"), (damaged, good, "gold")):
        with pytest.raises(IntegrityError, match=f"{side}: value 2 of 3.*{bad}"):
            metrics.scores([name], gold, predicted, classes=[1])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([1, 0, 1], [1, 0], "3 gold values and 2 predictions"),
        ([1, 0], [1, 0, 1], "2 gold values and 3 predictions"),
        ([], [], "nothing to score"),
        ([[1, 0]], [[1, 0]], r"shape \(1, 2\)"),
        (["a", "b"], ["a", "b"], "numbers are needed"),
    ],
)
def test_what_cannot_be_scored_is_refused(name: str, gold: Any, predicted: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metrics.scores([name], gold, predicted, classes=[1])


@pytest.mark.parametrize("name", ["accuracy", "f1", "micro_f1", "macro_f1", "matthews"])
def test_numbers_are_no_classes(name: str) -> None:
    with pytest.raises(InputError, match="classes are integers"):
        metrics.scores([name], [1, 0, 1], [0.9, 0.2, 0.7], classes=[1])


def test_an_unknown_metric_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="auc: no such metric; there are accuracy, f1,"):
        metrics.scores(["accuracy", "auc"], [1], [1])
    with pytest.raises(UsageError, match="micro_f1: no classes"):
        metrics.scores(["micro_f1"], [1], [1])


@given(st.dictionaries(st.text(), st.integers(), max_size=13), st.randoms(use_true_random=False))
def test_predictions_are_paired_by_id_in_any_order(values: dict[str, int], random: Any) -> None:
    shuffled = list(values.items())
    random.shuffle(shuffled)
    doubled = [(key, 2 * value) for key, value in shuffled]
    expected = list(values.values()), [2 * value for value in values.values()]
    assert metrics.by_id(values.items(), doubled) == expected
    assert metrics.by_id(iter(values.items()), dict(doubled)) == expected


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ("abcde", "e", r"4 ids have no prediction: 'a', 'b', 'c' \.\.\.; "),
        ("ab", "abxy", "2 ids are predicted but not among the examples: 'x', 'y'; "),
        ("ab", "aba", "1 ids are more than once among the predictions: 'a'"),
        ("abab", "ab", "2 ids are more than once among the examples: 'a', 'b'"),
        ("", "a", "1 ids are predicted but not among"),
    ],
)
def test_missing_unknown_and_doubled_ids_are_refused_with_the_first_few(
    gold: str, predicted: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        metrics.by_id([(key, 1) for key in gold], [(key, 2) for key in predicted])


@given(st.lists(st.lists(st.floats(-9, 9), min_size=3, max_size=3), min_size=1, max_size=7))
def test_the_predicted_class_has_the_highest_logit(rows: list[list[float]]) -> None:
    assert metrics.predicted_classes(rows).tolist() == [row.index(max(row)) for row in rows]
    assert metrics.predicted_classes([rows, rows]).tolist() == [[row.index(max(row)) for row in rows]] * 2
    assert metrics.predicted_classes(np.zeros((0, 5))).tolist() == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_is_no_class(bad: float) -> None:
    logits = np.zeros((5, 3, 2), np.float16)
    logits[3, 1, 0] = logits[4, 0, 0] = bad
    with pytest.raises(IntegrityError, match="2 of 5 examples are NaN or infinite, first those of example 3"):
        metrics.predicted_classes(logits)
