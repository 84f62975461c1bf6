"""The simulation agrees with the closed formulas where these apply, and answers what they cannot."""

import dataclasses
import random
import statistics

import pytest

from bert.plan import simulate, update_time
from bert.plan.hardware import Cluster, cluster
from bert.plan.simulate import Failures, Ranks
from bert.plan.update_time import CONSTANTS, Work

WORK = Work(flops=2.4e11, per_device=13, accumulation=5, parameters=336e6, gradients=1344e6)
EQUAL = dataclasses.replace(CONSTANTS, straggle_gpus=0.0, straggle_nodes=0.0)
RATE = 1.1e14


def machines(gigabits: float) -> Cluster:
    return cluster("a100-sxm-40", 3, 7, gigabits=gigabits)


@pytest.mark.parametrize("gigabits", [1.0, 10.0, 100.0, 1600.0])
def test_equal_ranks_without_overlap_take_what_the_formula_says(gigabits: float) -> None:
    found = simulate.update(WORK, machines(gigabits), RATE, buckets=11, constants=EQUAL)
    assert found.total == pytest.approx(update_time.times(WORK, machines(gigabits), RATE, EQUAL).total)
    assert found.exposed == pytest.approx(found.reduced)


@pytest.mark.parametrize("gigabits", [1.0, 10.0, 30.0, 60.0, 100.0, 1600.0])
@pytest.mark.parametrize("buckets", [54, 101])
def test_overlap_of_many_buckets_hides_what_the_formula_says(gigabits: float, buckets: int) -> None:
    hiding = dataclasses.replace(WORK, overlap=True)
    formula = update_time.times(hiding, machines(gigabits), RATE, EQUAL).total
    found = simulate.update(hiding, machines(gigabits), RATE, buckets=buckets, constants=EQUAL)
    assert found.total == pytest.approx(formula, rel=0.06)


def test_a_slow_node_slows_all() -> None:
    plain, slowed = (
        simulate.update(WORK, machines(100), RATE, ranks=Ranks(slow_node=factor), constants=EQUAL)
        for factor in (1.0, 1.25)
    )
    assert slowed.computed == pytest.approx(1.25 * plain.computed)
    assert slowed.total - plain.total == pytest.approx(0.25 * plain.computed)


def test_stragglers_cost_more_with_more_ranks_and_less_with_accumulation() -> None:
    def lost(nodes: int, accumulation: int) -> float:
        work = dataclasses.replace(WORK, accumulation=accumulation)
        one = dataclasses.replace(machines(100), nodes=nodes)
        runs = [
            simulate.update(work, one, RATE, ranks=Ranks(jitter, seed=seed), constants=EQUAL).computed
            for jitter, seed in [(0.05, 1), (0.05, 2), (0.05, 3), (0.0, 0)]
        ]
        return statistics.mean(runs[:3]) / runs[3] - 1

    assert 0 < lost(1, 1) < lost(9, 1) < 0.3
    assert lost(9, 25) < 0.35 * lost(9, 1)


def run_with_failures(useful: float, interval: float, nodes: int, failures: Failures, seed: int = 0) -> float:
    """Return the seconds of one simulated run; failures also strike while it restarts."""
    chance, mean = random.Random(seed), simulate.mean_time(nodes, failures)
    now, done, fails = 0.0, 0.0, chance.expovariate(1 / mean)
    while done < useful:
        piece = min(interval, useful - done) + failures.saving
        if now + piece <= fails:
            now, done = now + piece, done + piece - failures.saving
            continue
        now = fails
        while True:  # until a restart succeeds
            fails = now + chance.expovariate(1 / mean)
            if now + failures.restart <= fails:
                now += failures.restart
                break
            now = fails
    return now


FAILURES = Failures(node_hours=500.0, restart=900.0, saving=60.0)


def test_the_expected_time_is_that_of_many_runs() -> None:
    runs = [run_with_failures(4e5, 3600.0, 40, FAILURES, seed) for seed in range(400)]
    assert simulate.expected_time(4e5, 3600.0, 40, FAILURES) == pytest.approx(statistics.mean(runs), rel=0.02)


def test_the_best_interval_loses_least() -> None:
    best = simulate.best_interval(40, FAILURES)
    at_best, *others = (
        simulate.expected_time(4e5, best * factor, 40, FAILURES) for factor in (1.0, 0.5, 0.7, 1.4, 2.0)
    )
    assert at_best < min(others)
