"""The simulation agrees with the closed formulas where these apply, and answers what they cannot."""

import dataclasses
import random
import statistics
from collections.abc import Sequence

import pytest

from bert.plan import network, simulate, update_time
from bert.plan.hardware import Cluster, cluster
from bert.plan.simulate import Failures, Ranks
from bert.plan.update_time import CONSTANTS, Constants, Work

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


def ring(sizes: Sequence[float], bandwidth: Sequence[float], ready: Sequence[float], latency: float = 0.0) -> float:
    """Return when a ring all-reduce ends, step by step: rank r sends its part to rank r + 1, 2 (n - 1) times.

    sizes: bytes of each of the n parts. bandwidth: bytes/s from rank r to the next. ready: when each rank begins. In
    step k rank r sends part r - k, as soon as it has received it and has sent its last one.
    """
    count = len(ready)
    have = list(ready)  # when rank r has what it sends next
    for step in range(2 * (count - 1)):
        sent = [have[rank] + latency + sizes[(rank - step) % count] / bandwidth[rank] for rank in range(count)]
        have = [max(sent[rank - 1], sent[rank]) for rank in range(count)]
    return max(have)


def hierarchical(
    size: float,
    cluster: Cluster,
    ready: Sequence[float],
    shares: Sequence[float] = (),
    constants: Constants = CONSTANTS,
) -> float:
    """Return when an all-reduce in three parts ends: sums within nodes, a ring over nodes, and their results back.

    ready: when each node begins. shares: of the network's rate that each node has, all by default.
    """
    nodes, gpus = cluster.nodes, cluster.per_node
    half = (gpus - 1) / gpus * size / (constants.link_share * cluster.gpu.link)
    network = constants.network_share * cluster.network
    links = [network * share for share in shares or [1.0] * nodes]
    return ring([size / nodes] * nodes, links, [start + half for start in ready]) + half


def test_the_steps_of_a_ring_add_up_to_the_formula() -> None:
    found = ring([3e6] * 7, [1e9] * 7, [0.0] * 7, latency=1e-4)
    assert found == pytest.approx(network.ring(21e6, 7, 1e9, latency=1e-4))


def test_a_ring_is_as_slow_as_its_slowest_link_and_its_last_rank() -> None:
    links = [1e9] * 6 + [1e8]
    assert ring([3e6] * 7, links, [0.0] * 7) == pytest.approx(network.ring(21e6, 7, 1e8), rel=0.1)
    late = ring([3e6] * 7, [1e9] * 7, [0.0] * 6 + [5.0])
    assert late == pytest.approx(5.0 + network.ring(21e6, 7, 1e9))


def test_rings_within_nodes_and_between_them_add_up_to_the_formula() -> None:
    plan = machines(100)
    found = hierarchical(7e8, plan, [0.0] * 3)
    assert found == pytest.approx(update_time.reduction(7e8, plan))
    assert hierarchical(7e8, plan, [0.0, 3.0, 0.0]) == pytest.approx(3.0 + found)
    assert hierarchical(7e8, plan, [0.0] * 3, shares=[1.0, 1.0, 0.1]) > 5 * found


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


def test_a_run_without_failures_pays_for_checkpoints_only() -> None:
    never = Failures(node_hours=1e12, saving=60.0)
    assert run_with_failures(36_000.0, 3600.0, 3, never) == pytest.approx(36_000 + 10 * 60)
    assert simulate.expected_time(36_000.0, 3600.0, 3, never) == pytest.approx(36_000 + 10 * 60, rel=1e-4)
