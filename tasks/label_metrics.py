"""Scores of texts with several labels, as scikit-learn defines them. n texts, C labels.

Each function returns a fraction, `scores` percentages.
gold has 1 where a text has a label, 0 where it has not, -1 where that is not known, which no score counts. A score
that the values do not define is 0, or left out of a mean, and `scores` says so.
"""

from collections.abc import Sequence

import numpy as np

from bert.core.errors import InputError, IntegrityError
from bert.thresholds import DEFAULT
from tasks.metrics import Scores

MAX_LISTED = 5  # labels in a message


def scores(
    names: Sequence[str], gold: np.ndarray, probabilities: np.ndarray, predicted: np.ndarray, labels: Sequence[str]
) -> Scores:
    """Return several scores of the same predictions, and which of them are undefined.

    names: of the scores. gold, probabilities: [n, C]. predicted: whether a text is given a label [n, C], for F1 and
    accuracy. labels: names of the labels. accuracy is the share of texts whose labels are all right. Raise InputError
    if there is nothing to score, IntegrityError for NaN or infinity.
    """
    if not len(gold):
        raise InputError("nothing to score: there are no examples")
    if not np.isfinite(probabilities).all():
        raise IntegrityError("a probability is not finite; the weights, or the type of their products, cannot be used")
    counts = _counts(gold, predicted, axis=0)
    ranked = [_ranked(gold[:, label], probabilities[:, label]) for label in range(gold.shape[1])]
    absent = [not bool(true.any()) for true, _ in ranked]
    constant = [bool(true.all() or not true.any()) for true, _ in ranked]
    areas = [roc_auc(*pair) for pair, same in zip(ranked, constant, strict=True) if not same]
    of_texts, each = _counts(gold, predicted, axis=1), _f1(*counts)
    occurs, empty = np.sum(counts, axis=0) > 0, int((np.sum(of_texts, axis=0) == 0).sum())
    values = {
        "average_precision": float(np.mean([average_precision(*pair) for pair in ranked])),
        "roc_auc": float(np.mean(areas)) if areas else 0.0,
        "micro_f1": float(_f1(*(part.sum(keepdims=True) for part in counts))[0]),
        "macro_f1": float(each.mean()),
        "samples_f1": float(_f1(*of_texts).mean()),
        "accuracy": float(((gold < 0) | (predicted == (gold > 0))).all(axis=1).mean()),
    }
    reasons = {
        "average_precision": listed("no text has", labels, absent),
        "roc_auc": listed("left out of the mean, as all or no texts have", labels, constant),
        "macro_f1": listed("no text has or is given", labels, (~occurs).tolist()),
        "samples_f1": f"{empty} texts have no label and are given none; each counts as 0" if empty else "",
    }
    undefined = {name: reason for name, reason in reasons.items() if reason and name in names}
    return Scores.of_fractions({name: values[name] for name in names}, undefined)


def average_precision(gold: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the sum of (R_k - R_k-1) P_k over the thresholds k, from high to low, of one label [n]; 0 without a 1.

    P_k and R_k are precision and recall of the texts whose probability is the threshold or more.
    """
    right, total, _ = _above(gold, probabilities)
    if not len(right) or not right[-1]:
        return 0.0
    return float(np.sum(np.diff(right, prepend=0) / right[-1] * right / total))


def roc_auc(gold: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the probability that a text with the label has a higher score than a text without it; ties count half.

    gold, probabilities: of one label [n]; gold has both 0 and 1.
    """
    right, total, _ = _above(gold, probabilities)
    wrong = total - right
    below = np.concatenate([[0], right])
    return float(np.sum(np.diff(wrong, prepend=0) * (below[1:] + below[:-1])) / (2.0 * right[-1] * wrong[-1]))


def best_threshold(gold: np.ndarray, probabilities: np.ndarray) -> tuple[float, float]:
    """Return the threshold of one label [n] with the highest F1, the lowest of several, and that F1.

    It is half-way between two probabilities, so that rounding errors do not matter. A label that no text has keeps the
    usual threshold and has 0.
    """
    right, total, at = _above(*_ranked(gold, probabilities))
    if not len(right) or not right[-1]:
        return DEFAULT, 0.0
    f1 = 2 * right / (total + right[-1])  # if the label is given from the k-th probability on
    best = len(f1) - 1 - int(np.argmax(f1[::-1]))
    below = at[best + 1] if best + 1 < len(at) else 0.0
    middle = float((at[best] + below) / 2)
    return (middle if middle > below else float(at[best])), float(f1[best])


def _above(gold: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays [k] for the k different probabilities, from high to low.

    They are the number of texts with the label among the texts of this or a higher probability, the number of these
    texts, and the probability.
    """
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    last = np.flatnonzero(np.append(np.diff(ranked) != 0, True)) if len(ranked) else np.zeros(0, np.int64)
    return np.cumsum(gold[order] > 0)[last], last + 1, ranked[last]


def _ranked(gold: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return gold (as bool) and probabilities of one label, without the texts whose label is not known."""
    return gold[gold >= 0] > 0, probabilities[gold >= 0]


def _counts(gold: np.ndarray, predicted: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how often a label is right, wrong and missing, summed over an axis."""
    return (
        ((gold > 0) & predicted).sum(axis=axis),
        ((gold == 0) & predicted).sum(axis=axis),
        ((gold > 0) & ~predicted).sum(axis=axis),
    )


def _f1(right: np.ndarray, wrong: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return 2 TP / (2 TP + FP + FN), 0 where all counts are 0."""
    return np.asarray(2 * right / np.maximum(2 * right + wrong + missing, 1))


def listed(what: str, labels: Sequence[str], which: Sequence[bool]) -> str:
    """Return a reason that names the labels; it is empty if there are none."""
    chosen = [name for name, flag in zip(labels, which, strict=True) if flag]
    more = f" and {len(chosen) - MAX_LISTED} more" if len(chosen) > MAX_LISTED else ""
    return f"{what} {', '.join(chosen[:MAX_LISTED])}{more}" if chosen else ""
