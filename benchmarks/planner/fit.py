"""Fit the planner's numbers to published rows, and measure its errors on sources that the fit has not seen.

    python -m benchmarks.planner.fit

prints the fitted numbers and a table of errors; docs/planning.md has it.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from benchmarks.planner import published
from benchmarks.planner.published import Row
from bert.plan import rates, update_time
from bert.plan.update_time import CONSTANTS, Constants

FITTED = ("link_share", "network_share", "straggle_gpus", "straggle_nodes")
HUBER = 0.03  # errors above this count linearly: published tables have misprints
SWEEPS, STEPS = 3, 12  # of the coordinate search; golden sections
RANGE = 2.0  # a number is sought within this factor of the last one
RIDGE = 0.3
Pair = tuple[Row, Row]  # the measured row, and the one to predict
Array = np.ndarray


def clean(kind: str = "code") -> dict[str, list[Row]]:
    """Return the series without the rows that contradict themselves."""
    bad = published.contradictions(kind)
    return {name: [row for row in group if row.id not in bad] for name, group in published.series(kind).items()}


def pairs(kind: str = "code") -> list[Pair]:
    """Return the smallest row of each series with each of its other rows."""
    return [(group[0], row) for group in clean(kind).values() for row in group[1:]]


def errors(chosen: Sequence[Pair], constants: Constants) -> Array:
    """Return the logarithm of the predicted rate relative to the published one, for each pair."""
    return np.array([_error(base, row, constants) for base, row in chosen])


def _error(base: Row, row: Row, constants: Constants) -> float:
    rate = update_time.rate(base.work, base.cluster, base.seconds, constants)
    if not rate:
        return 9.0
    return math.log(row.seconds / update_time.times(row.work, row.cluster, rate, constants).total)


def fit(chosen: Sequence[Pair], start: Constants = CONSTANTS) -> Constants:
    """Return the constants with the smallest Huber loss: a search along one number after the other."""

    def loss(constants: Constants) -> float:
        size = np.abs(errors(chosen, constants))
        return float(np.mean(np.where(size < HUBER, size**2 / 2, HUBER * (size - HUBER / 2))))

    fitted = start
    for sweep in range(SWEEPS):
        span = math.log(RANGE) / 2**sweep
        for name in FITTED:
            fitted = _search(fitted, name, span, loss)
    return fitted


def _search(constants: Constants, name: str, span: float, loss: Callable[[Constants], float]) -> Constants:
    def at(logarithm: float) -> Constants:
        return dataclasses.replace(constants, **{name: math.exp(logarithm)})

    middle, golden = math.log(getattr(constants, name)), (math.sqrt(5) - 1) / 2
    low, high = middle - span, middle + span
    for _ in range(STEPS // 2):
        first, second = high - golden * (high - low), low + golden * (high - low)
        if loss(at(first)) < loss(at(second)):
            high = second
        else:
            low = first
    return min((constants, at((low + high) / 2)), key=loss)


def warm(kind: str = "code") -> list[tuple[Row, float]]:
    """Return each row with its error from one measured row of its series; its source was left out of the fit."""
    return _left_out(pairs(kind))


def _left_out(chosen: Sequence[Pair]) -> list[tuple[Row, float]]:
    results = []
    for source in sorted({row.source for _, row in chosen}):
        constants = fit([pair for pair in chosen if pair[1].source != source])
        mine = [pair for pair in chosen if pair[1].source == source]
        results += [(row, error) for (_, row), error in zip(mine, errors(mine, constants), strict=True)]
    return results


def cold_rows() -> list[Row]:
    """Return the rows for the share of the peak: not those whose sequences were shorter than they say."""
    return [row for group in clean().values() for row in group if not _trimmed(row)]


def _trimmed(row: Row) -> bool:
    """Return whether the code sorted sequences of 512 tokens by length, so that they have fewer operations."""
    return row.sequence == 512 and row.source.startswith(("DLE-PyT", "DLE-Paddle"))


def setting(row: Row) -> rates.Setting:
    """Return what the share of the peak of a row depends on."""
    tokens = row.work.per_device * row.sequence
    return rates.Setting(row.cluster.gpu, row.precision, row.width, tokens, row.code, task="SQuAD" in row.source)


def fit_shares(chosen: Sequence[Row]) -> dict[str, float]:
    """Return the coefficients of the share of the peak, by ridge regression; each setting counts once."""
    matrix = np.array([list(rates.features(setting(row), row.work).values()) for row in chosen])
    same = [(row.source, setting(row)) for row in chosen]
    weights = np.array([1 / same.count(one) for one in same])
    shares = np.array([_share(row) for row in chosen])
    mean = float(np.average(shares, weights=weights))
    penalty = RIDGE * weights.mean() * np.diag([float(name != "base") for name in rates.FEATURES])
    solution = np.linalg.solve(matrix.T @ (weights[:, None] * matrix) + penalty, matrix.T @ (weights * (shares - mean)))
    coefficients = dict(zip(rates.FEATURES, map(float, solution), strict=True))
    return coefficients | {"base": coefficients["base"] + mean}


def _share(row: Row) -> float:
    rate = update_time.rate(row.work, row.cluster, row.seconds)
    return math.log(rate / row.cluster.gpu.peak(row.precision))


def cold() -> list[tuple[Row, float]]:
    """Return each row with its error without a measured row of its source."""
    chosen, results = cold_rows(), []
    for source in sorted({row.source for row in chosen}):
        coefficients = fit_shares([row for row in chosen if row.source != source])
        results += [(row, cold_error(row, coefficients)) for row in chosen if row.source == source]
    return results


def cold_error(row: Row, coefficients: dict[str, float]) -> float:
    """Return the logarithm of the predicted rate of a row relative to the published one."""
    rate = rates.estimate(setting(row), row.work, coefficients)
    return math.log(row.seconds / update_time.times(row.work, row.cluster, rate).total)


def width(results: Iterable[tuple[Row, float]], share: float = 0.9) -> float:
    """Return the half width of the interval of the logarithm that holds `share` of the errors; sources weigh alike."""
    rows = list(results)
    sources = [row.source for row, _ in rows]
    order = sorted((abs(error), 1 / sources.count(row.source)) for row, error in rows)
    total, sum_ = sum(weight for _, weight in order), 0.0
    for error, weight in order:
        sum_ += weight
        if sum_ >= share * total:
            return error
    return order[-1][0]


def coverage(results: Sequence[tuple[Row, float]]) -> float:
    """Return the share of rows within the interval that the errors of the other sources give."""
    inside = 0
    for source in {row.source for row, _ in results}:
        half = width((row, error) for row, error in results if row.source != source)
        inside += sum(abs(error) <= half for row, error in results if row.source == source)
    return inside / len(results)


def summary(results: Sequence[tuple[Row, float]]) -> str:
    """Return the number of rows, and their median, 90th-percentile and largest relative error."""
    sizes = np.abs(np.expm1([error for _, error in results]))
    median, most = np.percentile(sizes, 50), np.percentile(sizes, 90)
    return f"{len(sizes):>4} rows  median {median:6.1%}  90 % {most:6.1%}  largest {sizes.max():6.1%}"


def main() -> None:
    """Print the fit and its errors."""
    constants, shares = fit(pairs()), fit_shares(cold_rows())
    print(*(f"{name} {getattr(constants, name):.4f}" for name in FITTED), sep="\n")
    print("coefficients", {name: round(value, 4) for name, value in shares.items()})
    measured, unmeasured = warm(), cold()
    print("from one measured row, its source left out  ", summary(measured))
    several = [(row, error) for row, error in measured if row.cluster.nodes > 1]
    print("the same, several nodes                     ", summary(several))
    for source in sorted({row.source for row, _ in measured}):
        print(f"    {source:<40}", summary([(row, error) for row, error in measured if row.source == source]))
    print("without a measured row, its source left out ", summary(unmeasured))
    for source in sorted({row.source for row, _ in unmeasured}):
        print(f"    {source:<40}", summary([(row, error) for row, error in unmeasured if row.source == source]))
    print(f"intervals: {width(measured):.3f} and {width(unmeasured):.3f}, of the logarithm; those of the other sources")
    print(f"hold {coverage(measured):.0%} and {coverage(unmeasured):.0%} of the rows")
    bad = published.contradictions()
    print(
        f"{len(bad)} rows contradict themselves:", *(f"    {name}: {reason}" for name, reason in bad.items()), sep="\n"
    )


if __name__ == "__main__":
    main()
