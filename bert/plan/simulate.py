"""One update as discrete events: each rank computes, buckets of gradients leave one after the other; and failures.

The closed formula (`update_time`) assumes equal ranks and one reduction. Here ranks differ, and gradients become ready
one layer after the other. Tests compare both where both apply.
"""

import heapq
import math
import random
from dataclasses import dataclass

from bert.plan import update_time
from bert.plan.hardware import Cluster
from bert.plan.update_time import BACKWARD, CONSTANTS, Constants, Work

Event = tuple[float, int, str, int]  # time, order, what, bucket


@dataclass(frozen=True)
class Ranks:
    """How ranks differ. Factors are on the time of computation."""

    jitter: float = 0.0  # standard deviation of a micro-batch's time, relative
    slow_node: float = 1.0  # factor of the first node
    seed: int = 0


@dataclass(frozen=True)
class Update:
    """Seconds of a simulated update."""

    total: float
    computed: float  # until the last rank has its gradients
    reduced: float  # the network was busy
    exposed: float  # of the reduction, after the last gradient


def update(
    work: Work,
    cluster: Cluster,
    rate: float,
    *,
    buckets: int = 1,
    ranks: Ranks = Ranks(),
    constants: Constants = CONSTANTS,
) -> Update:
    """Simulate one update with gradients in `buckets` buckets.

    A bucket leaves when the slowest rank has computed its gradients: with overlap during the last backward pass, all
    layers taking the same time; otherwise after it. The network carries one bucket after the other, in their order.
    The formula's factor for stragglers is left out: they are `ranks`.
    """
    starts, ends = _backward(work, cluster, rate, ranks, constants)
    events: list[Event] = []
    for number in range(buckets):
        share = update_time.HIDEABLE * (number + 1) / buckets if work.overlap else 1.0
        share = 1.0 if number == buckets - 1 else share  # the first layer's gradients come last
        ready = max(start + share * (end - start) for start, end in zip(starts, ends, strict=True))
        heapq.heappush(events, (ready, number, "ready", number))
    one = update_time.reduction(work.gradients / buckets, cluster, constants)
    free, waiting, busy, done = 0.0, [], False, 0.0  # type: float, list[int], bool, float
    while events:
        now, _, what, bucket = heapq.heappop(events)
        if what == "ready":
            heapq.heappush(waiting, bucket)
        else:
            busy, done = False, now
        if waiting and not busy:
            free, busy = now + one, True
            heapq.heappush(events, (free, heapq.heappop(waiting), "sent", bucket))
    computed = max(ends)
    optimizer = update_time.optimizer(work, cluster, constants)
    return Update(
        total=max(done, computed) + optimizer,
        computed=computed,
        reduced=buckets * one,
        exposed=max(0.0, done - computed),
    )


def _backward(
    work: Work, cluster: Cluster, rate: float, ranks: Ranks, constants: Constants
) -> tuple[list[float], list[float]]:
    """Return when each rank begins and ends its last backward pass.

    With tensor parallelism, or any other collective within a micro-batch, no rank is ahead; here each runs alone until
    the reduction.
    """
    chance = random.Random(ranks.seed)
    arithmetic = work.flops * (1 + work.recomputed) * work.per_device / rate
    micro_batch = arithmetic + constants.launch + work.collectives
    starts, ends = [], []
    for rank in range(cluster.ranks):
        slow = ranks.slow_node if rank < cluster.per_node else 1.0
        times = [slow * micro_batch * max(0.0, 1 + chance.gauss(0.0, ranks.jitter)) for _ in range(work.accumulation)]
        ends.append(sum(times))
        starts.append(ends[-1] - BACKWARD * times[-1])
    return starts, ends


@dataclass(frozen=True)
class Failures:
    """Failures of nodes, and what they cost. Times in seconds."""

    node_hours: float  # mean time between failures of one node
    restart: float = 600.0  # until the run computes again
    saving: float = 0.0  # of a checkpoint, if training waits for it


def best_interval(nodes: int, failures: Failures) -> float:
    """Return the seconds between checkpoints that lose least: the root of 2 x saving x mean time between failures.

    Young 1974, "A first order approximation to the optimum checkpoint interval". Zero if saving is free.
    """
    return math.sqrt(2 * failures.saving * mean_time(nodes, failures))


def mean_time(nodes: int, failures: Failures) -> float:
    """Return the mean time between failures of a run, in seconds: any of the nodes ends it."""
    return failures.node_hours * 3600 / nodes


def expected_time(useful: float, interval: float, nodes: int, failures: Failures) -> float:
    """Return the mean seconds of a run with `useful` seconds of training and a checkpoint every `interval` seconds.

    Failures are a Poisson process of rate 1 / M. A piece of length s needs (M + restart) (exp(s / M) - 1) on average,
    failures in it and in the restarts included (Daly 2006).
    """
    mean = mean_time(nodes, failures)
    pieces = useful / interval
    return pieces * math.exp(failures.restart / mean) * mean * math.expm1((interval + failures.saving) / mean)
