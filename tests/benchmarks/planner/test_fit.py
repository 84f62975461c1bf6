"""The planner's errors on published rows whose source its fit has not seen."""

import dataclasses
import math

import numpy as np
import pytest

from benchmarks.planner import fit
from benchmarks.planner.fit import FITTED
from benchmarks.planner.published import Row
from bert.plan import rates
from bert.plan.update_time import CONSTANTS

Results = list[tuple[Row, float]]


@pytest.fixture(scope="module")
def warm() -> Results:
    return fit.warm()


@pytest.fixture(scope="module")
def cold() -> Results:
    return fit.cold()


def sizes(results: Results) -> np.ndarray:
    return np.abs(np.expm1([error for _, error in results]))


def table(results: Results) -> str:
    lines = [
        f"{row.id} {row.series:<60} {row.cluster.ranks:>5} GPUs {math.expm1(error):+7.1%}" for row, error in results
    ]
    return "\n".join([*lines, fit.summary(results)])


@pytest.mark.slow
def test_one_measured_row_predicts_the_others_of_its_code(warm: Results) -> None:
    print(table(warm))
    found = sizes(warm)
    assert len(found) > 240
    assert np.median(found) <= 0.03
    assert np.percentile(found, 90) <= 0.10
    assert all(size <= 0.20 for (row, _), size in zip(warm, found, strict=True) if row.cluster.nodes > 1)


def test_it_predicts_better_than_a_straight_line(warm: Results) -> None:
    straight = [abs(base.rate / base.cluster.ranks * row.cluster.ranks / row.rate - 1) for base, row in fit.pairs()]
    assert np.percentile(sizes(warm), 90) < 0.6 * np.percentile(straight, 90)
    assert np.median(sizes(warm)) < 0.6 * np.median(straight)


def test_without_a_measured_row_the_intervals_say_how_wrong_it_is(cold: Results) -> None:
    print(table(cold))
    assert len(cold) > 300
    assert np.median(sizes(cold)) <= 0.10
    assert 0.85 <= fit.coverage(cold) <= 0.95


def test_the_intervals_of_the_command_are_those_of_the_errors(warm: Results, cold: Results) -> None:
    assert fit.width(warm) == pytest.approx(rates.MEASURED, abs=0.01)
    assert fit.width(cold) == pytest.approx(rates.WIDTH, abs=0.015)


def test_the_constants_are_those_that_the_rows_give() -> None:
    fitted = fit.fit(fit.pairs(), start=dataclasses.replace(CONSTANTS, link_share=0.4))
    for name in FITTED:
        assert getattr(fitted, name) == pytest.approx(getattr(CONSTANTS, name), rel=0.05), name
    shares = fit.fit_shares(fit.cold_rows())
    assert shares == pytest.approx(rates.COEFFICIENTS, abs=0.01)
