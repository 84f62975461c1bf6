"""What scikit-learn and SciPy make of random cases, run by test_metrics.py in .venv-oracles; imports nothing of ours.

    python scores_oracle.py classes cases.npz scores.npz    # gold, predicted [examples], lengths [cases], every
    python scores_oracle.py labels cases.npz scores.npz     # gold0, probabilities0, given0 [n, C], gold1 ...
    python scores_oracle.py numbers cases.npz scores.npz    # gold0, predicted0 [cases, n], gold1, predicted1 ...

Writes each score of each case [cases]; NaN where it is undefined.
"""

import sys
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn import config_context, metrics

KINDS = 5  # classes 0 to 4
SOME = (1, 3, 4)  # those of micro_f1
Numbers = NDArray[np.float64]
Cases = dict[str, Any]  # arrays


def classes(given: Cases) -> dict[str, Numbers]:
    """Score all cases in one call: with five classes of its own for each case, and the F1 of each class."""
    lengths = given["lengths"].astype(np.int64)
    shift = np.repeat(KINDS * np.arange(len(lengths)), lengths)
    gold, predicted = given["gold"] + shift, given["predicted"] + shift
    every = np.arange(KINDS * len(lengths))
    each = metrics.f1_score(gold, predicted, labels=every, average=None, zero_division=np.nan).reshape(-1, KINDS)
    table = metrics.multilabel_confusion_matrix(gold, predicted, labels=every).reshape(-1, KINDS, 4)
    _, fp, fn, tp = table[:, SOME].sum(axis=1).T
    return {
        "f1": each[:, 2],
        "macro_f1": np.nanmean(each, axis=1),
        "macro_f1_of_five": np.nansum(each, axis=1) / KINDS,
        "micro_f1": 2 * tp / np.where(tp + fp + fn, 2 * tp + fp + fn, np.nan),
    } | one_by_one(given, lengths)


def one_by_one(given: Cases, lengths: NDArray[np.int64]) -> dict[str, Numbers]:
    """Score each case whose number `every` divides with the functions that users call, a millisecond for each."""
    scores = {name: np.full(len(lengths), np.nan) for name in ("accuracy", "matthews", "direct_macro", "direct_micro")}
    ends = np.cumsum(lengths)
    every = int(given["every"])
    for case in range(0, len(lengths), every):
        span = slice(ends[case] - lengths[case], ends[case])
        gold, predicted = given["gold"][span], given["predicted"][span]
        scores["accuracy"][case] = metrics.accuracy_score(gold, predicted)
        scores["matthews"][case] = metrics.matthews_corrcoef(gold, predicted)
        if case % (5 * every) == 0:
            scores["direct_macro"][case] = metrics.f1_score(gold, predicted, average="macro")
            scores["direct_micro"][case] = metrics.f1_score(gold, predicted, labels=SOME, average="micro")
    return scores


def labels(given: Cases) -> dict[str, Numbers]:
    """Score sets of labels, case by case; the areas only of labels that some texts have and some have not."""
    rows = []
    for case in range(len(given) // 3):
        gold, probabilities, chosen = (given[f"{name}{case}"] for name in ("gold", "probabilities", "given"))
        both = (gold.any(axis=0) & ~gold.all(axis=0)).nonzero()[0]
        areas = [metrics.roc_auc_score(gold[:, label], probabilities[:, label]) for label in both]
        f1 = [metrics.f1_score(gold, chosen, average=average) for average in ("micro", "macro", "samples")]
        precision = metrics.average_precision_score(gold, probabilities, average="macro")
        rows.append([precision, np.mean(areas) if areas else 0.0, *f1, metrics.accuracy_score(gold, chosen)])
    names = ("average_precision", "roc_auc", "micro_f1", "macro_f1", "samples_f1", "accuracy")
    return dict(zip(names, np.array(rows).T, strict=True))


def numbers(given: Cases) -> dict[str, Numbers]:
    """Correlate all cases of one length at once, and the first of them with spearmanr itself."""
    scores: dict[str, list[Numbers]] = {"pearson": [], "spearman": [], "direct_spearman": []}
    for block in range(len(given) // 2):
        gold, predicted = given[f"gold{block}"], given[f"predicted{block}"]
        ranks = [stats.rankdata(one, axis=1) for one in (gold, predicted)]
        scores["pearson"].append(stats.pearsonr(gold, predicted, axis=1).statistic)
        scores["spearman"].append(stats.pearsonr(*ranks, axis=1).statistic)
        scores["direct_spearman"].append(np.full(len(gold), np.nan))
        scores["direct_spearman"][-1][0] = stats.spearmanr(gold[0], predicted[0]).statistic
    return {name: np.concatenate(values) for name, values in scores.items()}


def main() -> None:
    job, source, target = sys.argv[1:]
    warnings.simplefilter("ignore")  # of what is undefined
    with np.load(source) as arrays:
        given = dict(arrays)
    with config_context(assume_finite=True, skip_parameter_validation=True):
        scores: dict[str, Any] = {"classes": classes, "labels": labels, "numbers": numbers}[job](given)
    np.savez(target, **scores)


if __name__ == "__main__":
    main()
