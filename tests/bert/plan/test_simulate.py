"""The simulation agrees with the closed formulas where these apply, and answers what they cannot."""

import dataclasses
import statistics

import pytest

from bert.plan import network, simulate, update_time
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


def test_the_steps_of_a_ring_add_up_to_the_formula() -> None:
    found = simulate.ring([3e6] * 7, [1e9] * 7, [0.0] * 7, latency=1e-4)
    assert found == pytest.approx(network.ring(21e6, 7, 1e9, latency=1e-4))


def test_a_ring_is_as_slow_as_its_slowest_link_and_its_last_rank() -> None:
    links = [1e9] * 6 + [1e8]
    assert simulate.ring([3e6] * 7, links, [0.0] * 7) == pytest.approx(network.ring(21e6, 7, 1e8), rel=0.1)
    late = simulate.ring([3e6] * 7, [1e9] * 7, [0.0] * 6 + [5.0])
    assert late == pytest.approx(5.0 + network.ring(21e6, 7, 1e9))


def test_rings_within_nodes_and_between_them_add_up_to_the_formula() -> None:
    plan = machines(100)
    found = simulate.hierarchical(7e8, plan, [0.0] * 3)
    assert found == pytest.approx(update_time.reduction(7e8, plan))
    assert simulate.hierarchical(7e8, plan, [0.0, 3.0, 0.0]) == pytest.approx(3.0 + found)
    assert simulate.hierarchical(7e8, plan, [0.0] * 3, shares=[1.0, 1.0, 0.1]) > 5 * found


FAILURES = Failures(node_hours=500.0, restart=900.0, saving=60.0)


def test_the_expected_time_is_that_of_many_runs() -> None:
    runs = [simulate.run_with_failures(4e5, 3600.0, 40, FAILURES, seed) for seed in range(400)]
    assert simulate.expected_time(4e5, 3600.0, 40, FAILURES) == pytest.approx(statistics.mean(runs), rel=0.02)


def test_the_best_interval_loses_least() -> None:
    best = simulate.best_interval(40, FAILURES)
    at_best, *others = (
        simulate.expected_time(4e5, best * factor, 40, FAILURES) for factor in (1.0, 0.5, 0.7, 1.4, 2.0)
    )
    assert at_best < min(others)


def test_a_run_without_failures_pays_for_checkpoints_only() -> None:
    never = Failures(node_hours=1e12, saving=60.0)
    assert simulate.run_with_failures(36_000.0, 3600.0, 3, never) == pytest.approx(36_000 + 10 * 60)
    assert simulate.expected_time(36_000.0, 3600.0, 3, never) == pytest.approx(36_000 + 10 * 60, rel=1e-4)
