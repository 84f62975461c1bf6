"""The scores of classes and of numbers, as the published tasks define them.

Each function returns a fraction, as its equation does. `scores` and `Scores` are in percent, as GLUE prints them.
A score that the values do not define, as the correlation of predictions that are all equal, is 0, and `scores` says so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bert.core.errors import InputError, IntegrityError, UsageError
from tasks.examples import MAX_LISTED

Classes = NDArray[np.int64]
Numbers = NDArray[np.float64]
Gold = TypeVar("Gold")
Predicted = TypeVar("Predicted")


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores by the names of their metrics, and which of them are 0 because they are undefined."""

    values: dict[str, float]
    """in percent"""
    undefined: dict[str, str] = field(default_factory=dict)
    """the reason, by the name of the metric"""

    @classmethod
    def of_fractions(cls, values: Mapping[str, float], undefined: dict[str, str]) -> "Scores":
        """Return scores from their values of at most 1."""
        return cls(values={name: 100 * value for name, value in values.items()}, undefined=undefined)

    def note(self) -> str:
        """Return one line about the undefined scores; it is empty if there are none."""
        return "; ".join(f"{name} is undefined and counted as 0: {reason}" for name, reason in self.undefined.items())


def accuracy(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the share of classes [n] that are right."""
    true, guess = _classes(gold, predicted)
    return float(np.mean(true == guess))


def f1(gold: ArrayLike, predicted: ArrayLike, positive: int = 1) -> float:
    """Return the harmonic mean of precision and recall of one class, 2 TP / (2 TP + FP + FN); 0 if it never occurs."""
    return micro_f1(gold, predicted, [positive])


def micro_f1(gold: ArrayLike, predicted: ArrayLike, classes: Sequence[int]) -> float:
    """Return F1 with TP, FP and FN summed over some of the classes, as ChemProt's five of six; 0 if none occurs.

    Over all classes it would be the accuracy.
    """
    true, guess = _classes(gold, predicted)
    correct = int(np.isin(true[true == guess], classes).sum())
    return _ratio(2 * correct, int(np.isin(true, classes).sum() + np.isin(guess, classes).sum()))


def macro_f1(gold: ArrayLike, predicted: ArrayLike, classes: Sequence[int] | None = None) -> float:
    """Return the mean of the F1 of single classes, each with the same weight.

    classes: those to average over; one that never occurs counts as 0. By default those that occur in gold or predicted.
    """
    true, guess = _classes(gold, predicted)
    occurring, true_counts, guess_counts, correct = _counts(true, guess)
    each = 2 * correct / (true_counts + guess_counts)
    if classes is None:
        return float(each.mean())
    return _ratio(float(each[np.isin(occurring, classes)].sum()), len(set(classes)))


def matthews(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the Matthews correlation coefficient, for K classes R_K (Gorodkin 2004); 0 if one side has one class only.

    R_K = (c s - sum_k p_k t_k) / sqrt((s^2 - sum_k p_k^2) (s^2 - sum_k t_k^2)) with s samples, c of them right, p_k
    predicted and t_k truly of class k. For two classes that is
    (TP TN - FP FN) / sqrt((TP + FP) (TP + FN) (TN + FP) (TN + FN)).
    """
    true, guess = _classes(gold, predicted)
    _, true_counts, guess_counts, correct = _counts(true, guess)
    samples = len(true)
    covariance = int(correct.sum()) * samples - int(true_counts @ guess_counts)
    variances = (samples**2 - int(guess_counts @ guess_counts)) * (samples**2 - int(true_counts @ true_counts))
    return _ratio(covariance, variances**0.5)


def pearson(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the correlation of numbers [n], cov(x, y) / sqrt(var(x) var(y)); 0 if one is constant."""
    true, guess = _numbers(gold, predicted)
    if _is_constant(true) or _is_constant(guess):
        return 0.0
    x, y = _centred(true), _centred(guess)
    return float(np.clip(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)), -1, 1))


def spearman(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the correlation of the ranks of numbers [n], equal ones sharing their mean rank; 0 if one is constant."""
    true, guess = _numbers(gold, predicted)
    return pearson(_ranks(true), _ranks(guess))


def scores(
    names: Iterable[str],
    gold: ArrayLike,
    predicted: ArrayLike,
    *,
    positive: int = 1,
    classes: Sequence[int] | None = None,
) -> Scores:
    """Return several scores of the same predictions, and which of them are undefined.

    positive: the class of f1. classes: the classes of micro_f1 and macro_f1. Raises UsageError for an unknown name or
    micro_f1 without classes, IntegrityError for NaN or infinity, InputError for different lengths or nothing to score.
    """
    functions: dict[str, Callable[[], float]] = {
        "accuracy": lambda: accuracy(gold, predicted),
        "f1": lambda: f1(gold, predicted, positive),
        "micro_f1": lambda: micro_f1(gold, predicted, classes or ()),
        "macro_f1": lambda: macro_f1(gold, predicted, classes),
        "matthews": lambda: matthews(gold, predicted),
        "pearson": lambda: pearson(gold, predicted),
        "spearman": lambda: spearman(gold, predicted),
    }
    chosen = list(names)
    if unknown := [name for name in chosen if name not in functions]:
        raise UsageError(f"{unknown[0]}: no such metric; there are {', '.join(functions)}")
    if "micro_f1" in chosen and not classes:
        raise UsageError("micro_f1: no classes are given to compute it over")
    values = {name: functions[name]() for name in chosen}
    over = {"f1": [positive], "micro_f1": classes}
    reasons = {name: _why_undefined(name, *_checked(gold, predicted), over.get(name)) for name in chosen}
    return Scores.of_fractions(values, {name: reason for name, reason in reasons.items() if reason})


def by_id(
    gold: Iterable[tuple[str, Gold]], predicted: Mapping[str, Predicted] | Iterable[tuple[str, Predicted]]
) -> tuple[list[Gold], list[Predicted]]:
    """Return the gold values and the predictions of the same ids, in the order of gold.

    Raises InputError, with the first few ids, if one is missing, unknown or there twice.
    """
    true = _unique(gold, "the examples")
    guess = _unique(predicted.items() if isinstance(predicted, Mapping) else predicted, "the predictions")
    for problem, ids in (
        ("have no prediction", [key for key in true if key not in guess]),
        ("are predicted but not among the examples", [key for key in guess if key not in true]),
    ):
        if ids:
            raise InputError(f"{len(ids)} ids {problem}: {_some(ids)}; both must be of the same file")
    return list(true.values()), [guess[key] for key in true]


def predicted_classes(logits: ArrayLike) -> Classes:
    """Return the class with the highest logit, from logits [..., C]; the first one of several.

    Raises IntegrityError for NaN or infinity: NumPy's argmax would return the class whose logit is NaN, and the score
    would look normal.
    """
    values = np.asarray(logits)
    finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    if not finite.all():
        wrong = np.flatnonzero(~finite)
        raise IntegrityError(
            f"the logits of {len(wrong)} of {len(values)} examples are NaN or infinite, first those of example "
            f"{wrong[0]}, counted from 0; the weights, or the type of their products, cannot be used"
        )
    return values.argmax(axis=-1)


def _unique(pairs: Iterable[tuple[str, Gold]], where: str) -> dict[str, Gold]:
    values: dict[str, Gold] = {}
    doubled: dict[str, None] = {}  # a set that keeps its order
    for key, value in pairs:
        if key in values:
            doubled[key] = None
        values[key] = value
    if doubled:
        raise InputError(f"{len(doubled)} ids are more than once among {where}: {_some(list(doubled))}")
    return values


def _some(ids: list[str]) -> str:
    return ", ".join(repr(key[:100]) for key in ids[:MAX_LISTED]) + (" ..." if len(ids) > MAX_LISTED else "")


def _checked(gold: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Return both as arrays [n] of finite numbers, n > 0."""
    arrays = np.asarray(gold), np.asarray(predicted)
    for name, array in zip(("gold", "predicted"), arrays, strict=True):
        if array.ndim != 1:
            raise InputError(f"{name}: an array of shape {array.shape}, one value for each example is needed")
        if array.size and array.dtype.kind not in "biuf":
            raise InputError(f"{name}: values of type {array.dtype}, numbers are needed")
        if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
            place = int(np.argmin(finite))
            raise IntegrityError(
                f"{name}: value {place} of {len(array)}, counted from 0, is {array[place]}; all must be finite"
            )
    true, guess = arrays
    if len(true) != len(guess):
        raise InputError(f"{len(true)} gold values and {len(guess)} predictions; there must be one for each")
    if not len(true):
        raise InputError("nothing to score: there are no examples")
    return true, guess


def _classes(gold: ArrayLike, predicted: ArrayLike) -> tuple[Classes, Classes]:
    true, guess = _checked(gold, predicted)
    for name, array in (("gold", true), ("predicted", guess)):
        if array.dtype.kind == "f":
            raise InputError(f"{name}: values of type {array.dtype}, classes are integers")
    return true.astype(np.int64), guess.astype(np.int64)


def _numbers(gold: ArrayLike, predicted: ArrayLike) -> tuple[Numbers, Numbers]:
    true, guess = _checked(gold, predicted)
    return true.astype(np.float64), guess.astype(np.float64)


def _counts(true: Classes, guess: Classes) -> tuple[Classes, Classes, Classes, Classes]:
    """Return the classes [K] that occur, and for each how often it is true, predicted, and both."""
    occurring, places = np.unique(np.concatenate([true, guess]), return_inverse=True)
    true_places, guess_places = places[: len(true)], places[len(true) :]
    kinds = (true_places, guess_places, true_places[true_places == guess_places])
    true_counts, guess_counts, correct = (np.bincount(kind, minlength=len(occurring)) for kind in kinds)
    return occurring, true_counts, guess_counts, correct


def _ranks(numbers: Numbers) -> Numbers:
    """Return the rank of each number, from 1; equal ones have the mean of their ranks."""
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _is_constant(numbers: NDArray[np.generic]) -> bool:
    return bool((numbers == numbers[0]).all())


def _centred(numbers: Numbers) -> Numbers:
    """Return the distances to the mean, divided by a power of two that keeps their squares from over- and underflow."""
    scaled = _scaled(numbers)
    return _scaled(scaled - scaled.mean())


def _scaled(numbers: Numbers) -> Numbers:
    return np.ldexp(numbers, -np.frexp(np.abs(numbers).max())[1])


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0


def _why_undefined(
    name: str, true: NDArray[np.generic], guess: NDArray[np.generic], over: Sequence[int] | None
) -> str | None:
    """Return why a metric has no value. over: the classes that f1 and micro_f1 are computed over."""
    if over is not None:
        occurs = np.isin(true, over).any() or np.isin(guess, over).any()
        return None if occurs else f"class {', '.join(map(str, over))} is neither in the file nor predicted"
    if name in ("matthews", "pearson", "spearman"):
        for what, values in (("gold values", true), ("predictions", guess)):
            if _is_constant(values):
                return f"all {len(values)} {what} are {values[0]}"
    return None
