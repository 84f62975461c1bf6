"""Thresholds, temperatures and calibration errors equal those found by trying everything."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.errors import InputError, IntegrityError
from tasks import calibration, metrics

METRICS: tuple[calibration.Metric, ...] = ("f1", "accuracy", "matthews")
SCORES = {"f1": metrics.f1, "accuracy": metrics.accuracy, "matthews": metrics.matthews}
Array = np.ndarray[Any, Any]
PROBABILITIES = st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, math.nextafter(0.5, 1), 1.0])
BINARY = st.lists(st.tuples(PROBABILITIES, st.integers(0, 1)), min_size=2, max_size=19).filter(
    lambda pairs: len({label for _, label in pairs}) == 2
)


def sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def best_of_all(probabilities: Array, gold: Array, metric: str) -> float:
    """The best score over every set of examples that a threshold can choose."""
    thresholds = [*probabilities, 2.0]
    return max(SCORES[metric](gold, (probabilities >= threshold).astype(int)) for threshold in thresholds)


@given(BINARY, st.sampled_from(METRICS))
def test_no_threshold_is_better_and_the_score_is_what_it_gives(
    pairs: list[tuple[float, int]], metric: calibration.Metric
) -> None:
    probabilities, gold = np.array([p for p, _ in pairs]), np.array([label for _, label in pairs])
    tuned = calibration.tune_threshold(probabilities, gold, metric)
    assert math.isfinite(tuned.value)
    assert SCORES[metric](gold, (probabilities >= tuned.value).astype(int)) == pytest.approx(tuned.score, abs=1e-12)
    assert tuned.score == pytest.approx(best_of_all(probabilities, gold, metric), abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_ten_thousand_random_dev_sets_are_tuned_to_the_best(metric: calibration.Metric) -> None:
    random = np.random.default_rng(23)
    count, length = 10_000 // 3, 17
    gold = random.integers(0, 2, (count, length))
    gold[:, :2] = 0, 1
    noise = random.standard_normal((count, length)) * random.uniform(0.1, 3, (count, 1))
    probabilities = sigmoid(gold + noise).round(2)
    # All cuts of all dev sets at once: [cases, cuts, examples]
    cuts = np.concatenate([probabilities, np.full((count, 1), 2.0)], axis=1)
    taken = probabilities[:, None, :] >= cuts[:, :, None]
    tp, fp = (taken & (gold == 1)[:, None]).sum(2), (taken & (gold == 0)[:, None]).sum(2)
    positives = gold.sum(1)[:, None]
    fn, tn = positives - tp, length - positives - fp
    below = np.sqrt(1.0 * (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    best = {
        "f1": 2 * tp / (2 * tp + fp + fn),
        "accuracy": (tp + tn) / length,
        "matthews": (tp * tn - fp * fn) / np.where(below > 0, below, 1),
    }[metric].max(1)
    tuned = [calibration.tune_threshold(*pair, metric).score for pair in zip(probabilities, gold, strict=True)]
    np.testing.assert_allclose(tuned, best, atol=1e-12)


def test_the_threshold_is_half_way_and_the_nearest_to_one_half() -> None:
    tuned = calibration.tune_threshold([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])
    assert tuned == calibration.Threshold(value=0.5, score=1.0)
    # Right with the first one alone above it, and with all but the last one: 3 of 4 either way.
    tuned = calibration.tune_threshold([0.9, 0.7, 0.6, 0.2], [1, 0, 1, 0], "accuracy")
    assert (tuned.value, tuned.score) == (pytest.approx(0.4), 0.75)


def test_where_none_should_be_of_the_class_the_threshold_is_above_all() -> None:
    probabilities, gold = [0.9, 1.0, 0.3, 0.2, 0.1], [0, 0, 1, 0, 0]
    tuned = calibration.tune_threshold(probabilities, gold, "accuracy")
    assert tuned.value > 1 and tuned.score == 0.8
    tuned = calibration.tune_threshold([0.0, 0.5], [1, 0], "f1")
    assert tuned.value < 0.25 and tuned.score == pytest.approx(2 / 3)


@pytest.mark.parametrize("count", [400_009])
def test_a_large_dev_set_is_sorted_once(count: int) -> None:
    random = np.random.default_rng(29)
    gold = random.integers(0, 2, count)
    probabilities = sigmoid(gold + random.standard_normal(count)).astype(np.float32)
    tuned = calibration.tune_threshold(probabilities, gold, "matthews")
    assert tuned.score == pytest.approx(metrics.matthews(gold, (probabilities >= tuned.value).astype(int)))


def negative_log_likelihood(temperature: float, logits: Array, gold: Array) -> float:
    scaled = logits / temperature
    return float(np.mean(np.logaddexp.reduce(scaled, axis=1) - scaled[np.arange(len(gold)), gold]))


def by_search(logits: Array, gold: Array) -> float:
    """The log of the best temperature, by ever finer grids."""
    low, high = -4.6, 4.6
    for _ in range(9):
        grid = np.linspace(low, high, 21)
        best = int(np.argmin([negative_log_likelihood(math.exp(power), logits, gold) for power in grid]))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 20)]
    return float(low + high) / 2


def noisy(random: np.random.Generator, classes: int, length: int, scale: float) -> tuple[Array, Array]:
    """Logits [length, classes] that are `scale` times too large for how often they are right."""
    logits = random.standard_normal((length, classes)) * 2
    gold = (logits + random.gumbel(size=logits.shape)).argmax(1)
    return scale * logits + 7, gold


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_the_temperature_is_the_best_one_of_a_search(classes: int, scale: float) -> None:
    logits, gold = noisy(np.random.default_rng(classes), classes, 211, scale)
    fitted = calibration.fit_temperature(logits, gold)
    found = by_search(logits, gold)
    assert not fitted.at_limit
    assert math.log(fitted.value) == pytest.approx(found, abs=1e-6)
    assert fitted.nll_after <= negative_log_likelihood(math.exp(found), logits, gold) + 1e-12
    assert fitted.nll_before == pytest.approx(negative_log_likelihood(1, logits, gold))
    assert fitted.nll_after == pytest.approx(negative_log_likelihood(fitted.value, logits, gold))


def test_logits_of_the_right_scale_keep_it() -> None:
    logits, gold = noisy(np.random.default_rng(31), 5, 60_000, 1.0)
    assert calibration.fit_temperature(logits, gold).value == pytest.approx(1, abs=0.03)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 13), st.floats(1e-3, 1e3))
def test_the_temperature_never_makes_it_worse(seed: int, classes: int, length: int, scale: float) -> None:
    logits, gold = noisy(np.random.default_rng(seed), classes, length, scale)
    fitted = calibration.fit_temperature(logits, gold)
    assert 0.01 <= fitted.value <= 100
    assert fitted.nll_after <= fitted.nll_before + 1e-12
    for factor in (0.999, 1.001):
        near = min(max(fitted.value * factor, 0.01), 100)
        assert fitted.nll_after <= negative_log_likelihood(near, logits, gold) + 1e-9


def test_a_dev_set_without_a_mistake_has_no_temperature_and_says_so() -> None:
    logits = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    right = calibration.fit_temperature(logits, [0, 1])
    assert right.at_limit and right.value == pytest.approx(0.01)
    wrong = calibration.fit_temperature(logits, [2, 0])
    assert wrong.at_limit and wrong.value == pytest.approx(100)


def slow_error(probabilities: Array, gold: Array, bins: int) -> float:
    """The definition, bin by bin."""
    total = 0.0
    for number in range(1, bins + 1):
        inside = [
            (row.max(), row.argmax() == label)
            for row, label in zip(probabilities, gold, strict=True)
            if (number - 1) / bins < row.max() <= number / bins
        ]
        if inside:
            confidence, is_right = np.mean([one for one, _ in inside]), np.mean([one for _, one in inside])
            total += len(inside) / len(gold) * abs(is_right - confidence)
    return total


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 23), st.sampled_from([1, 2, 10, 15]))
def test_the_calibration_error_is_that_of_its_definition(seed: int, classes: int, length: int, bins: int) -> None:
    random = np.random.default_rng(seed)
    probabilities = random.dirichlet(np.full(classes, 0.4), length)
    probabilities[0] = np.eye(classes)[0]  # the end of the last bin
    if classes == 2:
        probabilities[-1] = 0.5  # the end of an inner one
    gold = random.integers(0, classes, length)
    expected = slow_error(probabilities, gold, bins)
    assert calibration.expected_calibration_error(probabilities, gold, bins) == pytest.approx(expected, abs=1e-12)


def test_sure_and_right_has_no_calibration_error_and_sure_and_wrong_all_of_it() -> None:
    sure = np.eye(3)[[0, 2, 1]]
    assert calibration.expected_calibration_error(sure, [0, 2, 1]) == 0
    assert calibration.expected_calibration_error(sure, [1, 1, 0]) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity_are_refused(bad: float) -> None:
    with pytest.raises(IntegrityError, match="probabilities: example 1,"):
        calibration.tune_threshold([0.5, bad], [0, 1])
    with pytest.raises(IntegrityError, match="logits: example 1,"):
        calibration.fit_temperature([[0.5, 1.0], [bad, 0.0], [0.0, 1.0]], [0, 1, 1])
    with pytest.raises(IntegrityError, match="probabilities: example 0,"):
        calibration.expected_calibration_error([[0.5, bad]], [0])


@pytest.mark.parametrize(
    ("probabilities", "gold", "message"),
    [
        ([0.5, 0.6], [1, 1], "all 2 examples are of one class"),
        ([0.5, 0.6], [0, 0], "all 2 examples are of one class"),
        ([0.5, 0.6], [0, 2], "classes 0 to 2; they must be 0 to 1"),
        ([0.5, 0.6], [0, 1, 1], "must be 2 integers"),
        ([0.5, 0.6], [0.0, 1.0], "must be 2 integers"),
        ([0.5, 1.6], [0, 1], "0.5 to 1.6; they must be 0 to 1"),
        ([], [], r"shape \(0,\)"),
        ([[0.5, 0.5]], [1], "1 dimensions"),
    ],
)
def test_what_has_no_threshold_is_refused(probabilities: Any, gold: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        calibration.tune_threshold(probabilities, gold)
