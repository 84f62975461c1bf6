"""The time of one update as a sum of its parts: the closed formula of the planner.

    update = a (F b / rate + launch) straggle + optimizer + reduction - hidden

a micro-batches of b sequences, each of F operations; `rate`: FLOP/s of one GPU in them. `straggle` grows with the
number of GPUs that wait for each other: 1 + x log2(GPUs of a node) + y log2(nodes). The optimizer reads and writes its
state PASSES times. The reduction is a ring in a node, then a ring over nodes, each at a share of its link's data
sheet. The four shares were fitted to published rows (`calibration`); docs/planning.md has their errors.
"""

import math
from dataclasses import dataclass

from bert.plan.hardware import Cluster


@dataclass(frozen=True)
class Constants:
    """Constants that were fitted to published rows, and two that are set, since the rows cannot determine them."""

    link_share: float = 0.301  # of the data sheet's rate between the GPUs of a node
    network_share: float = 0.951  # of the data sheet's rate between nodes
    straggle_gpus: float = 0.0133  # lost per doubling of a node's GPUs
    straggle_nodes: float = 0.0148  # lost per doubling of nodes
    launch: float = 0.01  # seconds per micro-batch beside its arithmetic; set
    passes: float = 6.0  # times that the optimizer goes through its parameters in memory; set


CONSTANTS = Constants()
BACKWARD = 2 / 3  # share of the backward pass in the time of a micro-batch
HIDEABLE = 0.9  # share of it in which gradients are ready to leave; the first layer's come last


@dataclass(frozen=True)
class Work:
    """What one rank does in an update. Operations in FLOP, sizes in bytes."""

    flops: float  # of one sequence, on this rank
    per_device: int
    accumulation: int
    parameters: float  # updated by this rank
    gradients: float  # bytes of the gradients that travel
    collectives: float = 0.0  # seconds of tensor parallelism in one micro-batch
    recomputed: float = 0.0  # share of the operations that are computed again in the backward pass
    overlap: bool = False
    exposed: float = 0.0  # share of the gradients that overlap does not hide: the embeddings', and one bucket


@dataclass(frozen=True)
class Times:
    """Seconds of the parts of an update."""

    compute: float
    tensor: float
    optimizer: float
    reduction: float
    hidden: float

    @property
    def total(self) -> float:
        return self.compute + self.tensor + self.optimizer + self.reduction - self.hidden


def straggle(nodes: int, per_node: int, constants: Constants = CONSTANTS) -> float:
    """Return the factor by which a micro-batch takes longer than on one GPU, because all wait for the slowest."""
    return 1 + constants.straggle_gpus * math.log2(per_node) + constants.straggle_nodes * math.log2(nodes)


def reduction(size: float, cluster: Cluster, constants: Constants = CONSTANTS) -> float:
    """Return the seconds of an all-reduce of `size` bytes over all GPUs: a ring sends 2 (n - 1) / n of them."""
    gpus, nodes = cluster.per_node, cluster.nodes
    inner = 2 * (gpus - 1) / gpus * size / (constants.link_share * cluster.gpu.link)
    outer = 2 * (nodes - 1) / nodes * size / (constants.network_share * cluster.network)
    return inner + outer


def can_hide(reduce: float, exposed: float, micro_batch: float) -> float:
    """Return the seconds of a reduction that overlap can hide.

    They are at most the part of the backward pass in which gradients are ready. reduce: seconds of the reduction, in
    which all gradients travel. exposed: share of the gradients that overlap cannot hide. micro_batch: seconds.
    """
    return min(reduce * (1 - exposed), BACKWARD * HIDEABLE * micro_batch)


def optimizer(work: Work, cluster: Cluster, constants: Constants = CONSTANTS) -> float:
    """Return the seconds of the optimizer's passes through the memory."""
    return constants.passes * 4 * work.parameters / cluster.gpu.bandwidth


def times(
    work: Work, cluster: Cluster, rate: float, constants: Constants = CONSTANTS, group: Cluster | None = None
) -> Times:
    """Return the parts of an update. rate: FLOP/s of one GPU within a micro-batch.

    group: the GPUs among which gradients are summed, with their share of the network; all of the cluster by default.
    """
    arithmetic = work.flops * (1 + work.recomputed) * work.per_device / rate
    micro_batch = (arithmetic + constants.launch) * straggle(cluster.nodes, cluster.per_node, constants)
    reduce = reduction(work.gradients, group or cluster, constants)
    hidden = can_hide(reduce, work.exposed, micro_batch + work.collectives) if work.overlap else 0.0
    return Times(
        compute=work.accumulation * micro_batch,
        tensor=work.accumulation * work.collectives,
        optimizer=optimizer(work, cluster, constants),
        reduction=reduce,
        hidden=hidden,
    )


def rate(work: Work, cluster: Cluster, seconds: float, constants: Constants = CONSTANTS) -> float:
    """Return the FLOP/s within a micro-batch with which an update takes `seconds`; the inverse of `times`.

    Return 0 if the other parts alone take longer. The inverse assumes that overlap hides nothing.
    """
    other = optimizer(work, cluster, constants) + reduction(work.gradients, cluster, constants)
    micro_batch = (seconds - other) / work.accumulation - work.collectives
    arithmetic = micro_batch / straggle(cluster.nodes, cluster.per_node, constants) - constants.launch
    return work.flops * (1 + work.recomputed) * work.per_device / arithmetic if arithmetic > 0 else 0.0
