"""What a dev set tunes after training: the threshold of a binary task, and the temperature of its probabilities.

Both belong to one model and one dev set, and neither may see the test set.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bert.errors import InputError, IntegrityError

Metric = Literal["f1", "accuracy", "matthews"]
Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
MARGIN = 1.0  # beyond the lowest and the highest probability, for the thresholds that all and none reach
TEMPERATURES = (0.01, 100.0)
STEPS = 200  # of the search for a temperature; it ends after a few


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Examples with a P(class) of at least `value` are of the class; `score` is the metric with it, a fraction."""

    value: float
    score: float


@dataclass(frozen=True, kw_only=True)
class Temperature:
    """What logits are divided by, and the mean negative log-likelihood, in nats, without and with it."""

    value: float
    nll_before: float
    nll_after: float
    at_limit: bool
    """no temperature between the limits is best: the dev set is too small, all right, or worse than chance"""


def tune_threshold(probabilities: ArrayLike, gold: ArrayLike, metric: Metric = "f1") -> Threshold:
    """Return the threshold on P(class) with the best metric, exactly, by sorting them: O(n log n).

    probabilities: P(class) of each example [n]. gold: whether it is of the class, 0 or 1 [n]. The threshold is half-way
    between the probabilities of two examples, so that rounding errors do not matter; of several best ones it is the one
    nearest to 0.5. If it is best that all examples are of the class, or none, it is below or above all of them.
    Raises InputError if only one of the classes occurs, IntegrityError for NaN or infinity.
    """
    values, truth = _checked("probabilities", probabilities, 1, gold, classes=2)
    _check_range(values)
    positives, total = int(truth.sum()), len(truth)
    if positives in (0, total):
        raise InputError(f"all {total} examples are of one class; a threshold needs some of both")
    order = np.argsort(-values, kind="stable")
    ranked = values[order]
    # Equal probabilities are on the same side: the first `above` examples are taken to be of the class.
    above = np.concatenate([[0], np.flatnonzero(ranked[:-1] != ranked[1:]) + 1, [total]])
    right = np.concatenate([[0], np.cumsum(truth[order])])[above]
    qualities = _qualities(metric, right, above - right, positives, total)
    limits = np.concatenate([[ranked[0] + MARGIN], ranked, [ranked[-1] - MARGIN]])
    higher, lower = limits[above], limits[above + 1]
    half_way = lower + (higher - lower) / 2
    thresholds = np.where(half_way > lower, half_way, higher)  # of neighbouring floats the half is one of the two
    best = np.flatnonzero(qualities == qualities.max())
    chosen = best[np.argmin(np.abs(thresholds[best] - 0.5))]
    return Threshold(value=float(thresholds[chosen]), score=float(qualities[chosen]))


def _qualities(metric: Metric, right: Integers, wrong: Integers, positives: int, total: int) -> Numbers:
    """Return the metric for each number of true and false positives."""
    taken = right + wrong
    if metric == "accuracy":
        return (right + (total - positives) - wrong) / total
    if metric == "f1":
        return 2 * right / (taken + positives)
    covariance = right * total - taken * positives  # TP TN - FP FN
    variance = np.sqrt(taken * (total - taken)) * np.sqrt(positives * (total - positives))
    return np.divide(covariance, variance, out=np.zeros(len(right)), where=variance > 0)


def fit_temperature(logits: ArrayLike, gold: ArrayLike) -> Temperature:
    """Return the temperature T with the best likelihood of softmax(logits / T) (Guo et al. 2017, section 4.2).

    logits [n, C], gold: classes [n]. With b = 1 / T the mean of -log p is convex in b; its derivative is the mean of
    E_p[z] - z_gold, its second one the mean of Var_p[z]. Newton's method finds the root, and bisection where a step
    would leave the interval. The predicted classes do not change. Raises InputError for labels that are no classes,
    IntegrityError for NaN or infinity.
    """
    scores, truth = _checked("logits", logits, 2, gold)
    scores = scores - scores.max(axis=1, keepdims=True)  # [n, C], at most 0, so that exp does not overflow
    low, high = 1 / TEMPERATURES[1], 1 / TEMPERATURES[0]
    inverse = _root(scores, truth, low, high)
    return Temperature(
        value=1 / inverse,
        nll_before=_nll(scores, truth, 1.0),
        nll_after=_nll(scores, truth, inverse),
        at_limit=inverse in (low, high),
    )


def _root(scores: Numbers, truth: Integers, low: float, high: float) -> float:
    """Return where the derivative of the likelihood by 1 / T is 0, or the limit that it is best at."""
    if _slope(scores, truth, low)[0] >= 0:
        return low
    if _slope(scores, truth, high)[0] <= 0:
        return high
    inverse = 1.0
    for _ in range(STEPS):
        slope, curvature = _slope(scores, truth, inverse)
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        following = inverse - slope / curvature if curvature > 0 else low
        if not low <= following <= high:
            following = (low + high) / 2
        if abs(following - inverse) <= 1e-12 * inverse:
            break
        inverse = following
    return inverse


def _slope(scores: Numbers, truth: Integers, inverse: float) -> tuple[float, float]:
    """Return the first and the second derivative of the mean of -log softmax(inverse * scores)[truth] by `inverse`."""
    weights = np.exp(inverse * scores)
    weights /= weights.sum(axis=1, keepdims=True)
    mean = (weights * scores).sum(axis=1)
    variance = (weights * np.square(scores - mean[:, None])).sum(axis=1)
    return float(np.mean(mean - _of(scores, truth))), float(variance.mean())


def _nll(scores: Numbers, truth: Integers, inverse: float) -> float:
    scaled = inverse * scores
    return float(np.mean(np.log(np.exp(scaled).sum(axis=1)) - _of(scaled, truth)))


def _of(scores: Numbers, truth: Integers) -> Numbers:
    """Return from each row the number of its class."""
    return np.take_along_axis(scores, truth[:, None], axis=1)[:, 0]


def expected_calibration_error(probabilities: ArrayLike, gold: ArrayLike, bins: int = 15) -> float:
    """Return the mean distance of confidence and accuracy (Guo et al. 2017, equation 3).

    probabilities [n, C], gold: classes [n]. The confidence of an example is its highest probability. Bin m holds the
    examples with a confidence in ((m - 1) / bins, m / bins], and counts by their number.
    """
    shares, truth = _checked("probabilities", probabilities, 2, gold)
    _check_range(shares)
    confidence, is_right = shares.max(axis=1), shares.argmax(axis=1) == truth
    edges = np.arange(1, bins) / bins
    places = np.searchsorted(edges, confidence, side="left")
    gaps = np.bincount(places, weights=is_right - confidence, minlength=bins)  # each n_m (accuracy - confidence)
    return float(np.abs(gaps).sum() / len(truth))


def _checked(
    name: str, values: ArrayLike, rank: int, gold: ArrayLike, *, classes: int | None = None
) -> tuple[Numbers, Integers]:
    """Return finite numbers [n] or [n, C], and classes [n], each from 0 up to, but without, `classes` or C."""
    numbers, truth = np.asarray(values, np.float64), np.asarray(gold)
    if numbers.ndim != rank or not numbers.size:
        raise InputError(f"{name}: an array of shape {numbers.shape}; it must have {rank} dimensions, and values")
    if truth.shape != numbers.shape[:1] or truth.dtype.kind not in "biu":
        raise InputError(
            f"gold: {truth.dtype} of shape {truth.shape}; for {name} of shape {numbers.shape} it must be "
            f"{len(numbers)} integers"
        )
    if not (finite := np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1)).all():
        place = int(np.argmin(finite))
        raise IntegrityError(f"{name}: example {place}, counted from 0, has NaN or infinity; all must be finite")
    classes = classes or numbers.shape[1]
    if truth.min() < 0 or truth.max() >= classes:
        raise InputError(f"gold: classes {truth.min()} to {truth.max()}; they must be 0 to {classes - 1}")
    return numbers, truth.astype(np.int64)


def _check_range(probabilities: Numbers) -> None:
    lowest, highest = float(probabilities.min()), float(probabilities.max())
    if lowest < 0 or highest > 1:
        raise InputError(f"probabilities: {lowest:g} to {highest:g}; they must be 0 to 1, as softmax(logits)")
