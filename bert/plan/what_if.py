"""What else a plan would take: other nodes, a slow network, a slow node, stragglers, failures."""

import dataclasses
from collections.abc import Sequence

from bert.plan import forecast as forecasts
from bert.plan import simulate, tables, update_time
from bert.plan.forecast import Forecast, forecast
from bert.plan.hardware import Cluster
from bert.plan.simulate import Failures, Ranks

SLOW_GIGABITS = 10.0
SLOW_NODE = 1.2  # times the others' time
JITTER = 0.05  # standard deviation of a micro-batch's time
HOST_RATE = 5e9  # bytes/s from a GPU to the host's memory, for which training waits at a checkpoint; an assumption
BUCKET = 25e6  # bytes, with overlap
MOST_RANKS = 4096  # that are simulated
EQUAL = dataclasses.replace(update_time.CONSTANTS, straggle_gpus=0.0, straggle_nodes=0.0)


def answers(phases: Sequence[Forecast], failures: Failures) -> list[tuple[str, str]]:
    """Return questions and answers about a plan."""
    cluster = phases[0].cluster
    rows = []
    for nodes in sorted({max(1, cluster.nodes // 2), cluster.nodes * 2} - {cluster.nodes}):
        rows.append((f"{nodes} nodes", _on(phases, dataclasses.replace(cluster, nodes=nodes))))
    if cluster.nodes > 1:
        slow = dataclasses.replace(cluster, network=SLOW_GIGABITS * 1e9 / 8)
        rows.append((f"{SLOW_GIGABITS:g} Gb/s a node", _on(phases, slow)))
    if cluster.ranks <= MOST_RANKS:
        rows.append((f"a node {SLOW_NODE - 1:.0%} slower", _simulated(phases, Ranks(slow_node=SLOW_NODE))))
        rows.append((f"times vary by {JITTER:.0%}", _simulated(phases, Ranks(jitter=JITTER))))
    return [*rows, *_failures(phases, failures)]


def _on(phases: Sequence[Forecast], cluster: Cluster) -> str:
    planned = [forecast(phase.name, phase.config, cluster, phase.job) for phase in phases]
    hours, _, _ = tables.totals(planned)
    base = tables.totals(phases)[0].value
    batches = [phase.config.batch.total for phase in planned]
    changed = "" if batches == [phase.config.batch.total for phase in phases] else f", batch {batches}"
    return f"{hours.value:,.1f} h, {hours.value / base:.2f} of the planned time{changed}"


def _simulated(phases: Sequence[Forecast], ranks: Ranks) -> str:
    total = sum(phase.config.run.steps * _update(phase, ranks) for phase in phases)
    even = sum(phase.config.run.steps * _update(phase, Ranks()) for phase in phases)
    return f"{total / even:.2f} of the time with equal ranks (simulated)"


def _update(phase: Forecast, ranks: Ranks) -> float:
    work = forecasts.work_of(phase.config, phase.cluster, phase.job)
    setting = forecasts.setting_of(phase.config, phase.cluster, phase.job)
    rate, _ = forecasts.rate_of(setting, work, phase.job.measured)
    buckets = max(1, round(work.gradients / BUCKET)) if work.overlap else 1
    return simulate.update(work, phase.cluster, rate, buckets=buckets, ranks=ranks, constants=EQUAL).total


def _failures(phases: Sequence[Forecast], failures: Failures) -> list[tuple[str, str]]:
    nodes, rows = phases[0].cluster.nodes, []
    for phase in phases:
        one = dataclasses.replace(failures, saving=phase.checkpoint / HOST_RATE)
        best = simulate.best_interval(nodes, one)
        updates = max(1, round(best / phase.seconds.value))
        useful, interval = phase.hours.value * 3600, phase.config.run.save_every * phase.seconds.value
        usual, tuned = (simulate.expected_time(useful, length, nodes, one) / 3600 for length in (interval, best))
        text = (
            f"{phase.name}: one in {simulate.mean_time(nodes, one) / 3600:,.0f} h; {usual:,.1f} h with a checkpoint "
            f"every {phase.config.run.save_every} updates, {tuned:,.1f} h with --run.save_every {updates}"
        )
        rows.append(("failures", text))
    return rows
