"""Scores equal those of scikit-learn and SciPy on random cases; what cannot be scored is refused, or noted."""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import config_context
from sklearn import metrics as sklearn_metrics

from bert.errors import InputError, IntegrityError, UsageError
from tasks import metrics

CASES = 10_000  # of each family
ALL = ("accuracy", "f1", "micro_f1", "macro_f1", "matthews", "pearson", "spearman")
Array = np.ndarray[Any, Any]
Score = Callable[[Array, Array], float]

ORACLES: dict[str, tuple[Score, Score]] = {  # ours, scikit-learn's
    "accuracy": (metrics.accuracy, sklearn_metrics.accuracy_score),
    "f1": (
        lambda gold, predicted: metrics.f1(gold, predicted, positive=2),
        lambda gold, predicted: sklearn_metrics.f1_score(gold == 2, predicted == 2, zero_division=0),
    ),
    "micro_f1": (
        lambda gold, predicted: metrics.micro_f1(gold, predicted, [1, 3, 4]),
        lambda gold, predicted: sklearn_metrics.f1_score(
            gold, predicted, labels=[1, 3, 4], average="micro", zero_division=0
        ),
    ),
    "macro_f1": (
        metrics.macro_f1,
        lambda gold, predicted: sklearn_metrics.f1_score(gold, predicted, average="macro", zero_division=0),
    ),
    "macro_f1 of five classes": (
        lambda gold, predicted: metrics.macro_f1(gold, predicted, range(5)),
        lambda gold, predicted: sklearn_metrics.f1_score(
            gold, predicted, labels=range(5), average="macro", zero_division=0
        ),
    ),
    "matthews": (metrics.matthews, sklearn_metrics.matthews_corrcoef),
}


def random_classes(count: int) -> Iterator[tuple[Array, Array]]:
    """Classes of one to five kinds, for 1 to 59 examples, often right; one kind is often rare or absent."""
    random = np.random.default_rng(17)
    for _ in range(count):
        kinds, length = random.integers(1, 6), random.integers(1, 60)
        shares = random.dirichlet(np.full(kinds, 0.7))
        gold, guess = random.choice(kinds, (2, length), p=shares)
        yield gold, np.where(random.random(length) < random.random(), gold, guess)


@pytest.mark.parametrize("name", ORACLES)
def test_classes_score_as_by_scikit_learn(name: str) -> None:
    ours, theirs = ORACLES[name]
    with config_context(assume_finite=True, skip_parameter_validation=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one class only
        for gold, predicted in random_classes(2000 if name == "matthews" else 500):
            assert ours(gold, predicted) == pytest.approx(theirs(gold, predicted), abs=1e-12), (gold, predicted)


def test_ten_thousand_cases_have_the_f1_of_scikit_learn() -> None:
    cases = list(random_classes(CASES))
    # Five classes of its own for each case: so one call scores all of them.
    gold, predicted = (np.concatenate([5 * at + case[side] for at, case in enumerate(cases)]) for side in (0, 1))
    every = np.arange(5 * CASES)
    f1 = sklearn_metrics.f1_score(gold, predicted, labels=every, average=None, zero_division=np.nan).reshape(-1, 5)
    table = sklearn_metrics.multilabel_confusion_matrix(gold, predicted, labels=every).reshape(-1, 5, 4)
    _, fp, fn, tp = table[:, [1, 3, 4]].sum(axis=1).T
    micro = 2 * tp / np.maximum(2 * tp + fp + fn, 1)
    expected = np.stack([np.nan_to_num(f1[:, 2]), np.nanmean(f1, axis=1), np.nansum(f1, axis=1) / 5, micro], axis=1)
    names = ("f1", "macro_f1", "macro_f1 of five classes", "micro_f1")
    ours = [[ORACLES[name][0](*case) for name in names] for case in cases]
    np.testing.assert_allclose(ours, expected, atol=1e-12)


def random_numbers() -> Iterator[tuple[Array, Array]]:
    """Hundreds of pairs at once [cases, n]: few or many equal numbers, large and small, also far from their mean."""
    random = np.random.default_rng(19)
    for block in range(50):
        length, kinds = int(random.integers(2, 48)), int(random.integers(2, 7))
        shape = (CASES // 50, length)
        gold = random.integers(0, kinds, shape) if block % 2 else random.standard_normal(shape)
        predicted = np.where(random.random(shape) < 0.5, gold, random.standard_normal(shape).round(int(block % 3)))
        yield 10.0 ** random.integers(-9, 9) * gold, predicted + random.integers(0, 99)


def defined(values: Array) -> Array:
    """SciPy's correlations [cases], where NaN means that they are undefined."""
    return np.where(np.isnan(values), 0, values)


def test_correlations_are_those_of_scipy() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of constant numbers
        for gold, predicted in random_numbers():
            theirs = stats.pearsonr(gold, predicted, axis=1).statistic
            ours = [metrics.pearson(*pair) for pair in zip(gold, predicted, strict=True)]
            np.testing.assert_allclose(ours, defined(theirs), atol=1e-12)


def test_rank_correlations_are_those_of_scipy() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for gold, predicted in random_numbers():
            theirs = stats.pearsonr(*(stats.rankdata(one, axis=1) for one in (gold, predicted)), axis=1).statistic
            ours = [metrics.spearman(*pair) for pair in zip(gold, predicted, strict=True)]
            np.testing.assert_allclose(ours, defined(theirs), atol=1e-12)
            whole = stats.spearmanr(gold[0], predicted[0]).statistic  # all of it by SciPy, for one of them
            assert ours[0] == pytest.approx(float(defined(whole)), abs=1e-12)


@given(st.lists(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 2), min_size=1, max_size=23))
def test_any_finite_numbers_have_a_correlation_between_minus_one_and_one(pairs: list[tuple[float, float]]) -> None:
    gold, predicted = np.array(pairs).T
    for correlation in (metrics.pearson, metrics.spearman):
        value = correlation(gold, predicted)
        assert -1 <= value <= 1
        assert correlation(predicted, gold) == pytest.approx(value, abs=1e-12)
        assert correlation(-gold, predicted) == pytest.approx(-value, abs=1e-12)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=29))
def test_right_predictions_score_one(gold: list[int]) -> None:
    values = metrics.scores(ALL, gold, gold, positive=gold[0], classes=sorted(set(gold))).values
    constant = len(set(gold)) == 1
    for name in ALL:
        alike = name in ("matthews", "pearson", "spearman") and constant
        assert values[name] == pytest.approx(0 if alike else 1), name


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=31))
def test_the_matthews_coefficient_of_two_classes_is_their_correlation(pairs: list[tuple[int, int]]) -> None:
    gold, predicted = np.array(pairs).T
    assert metrics.matthews(gold, predicted) == pytest.approx(metrics.pearson(gold, predicted), abs=1e-12)
    table = np.bincount(2 * gold + predicted, minlength=4).tolist()
    tn, fp, fn, tp = table
    below = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert metrics.matthews(gold, predicted) == pytest.approx((tp * tn - fp * fn) / below if below else 0)


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


def test_what_is_undefined_is_what_the_libraries_warn_of() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for gold, predicted in random_classes(300):
            warned.clear()
            scores = metrics.scores(["f1", "pearson"], gold, predicted, positive=2)
            assert not warned
            sklearn_metrics.f1_score(gold == 2, predicted == 2)
            assert ("f1" in scores.undefined) == bool(warned)
            if len(gold) > 1:
                assert ("pearson" in scores.undefined) == math.isnan(stats.pearsonr(gold, predicted).statistic)


def test_the_note_names_the_class_that_all_predictions_are() -> None:
    scores = metrics.scores(["accuracy", "matthews"], [0, 1, 1], [1, 1, 1])
    assert scores.values == {"accuracy": 2 / 3, "matthews": 0}
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
