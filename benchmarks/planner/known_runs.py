"""Published runs and tables that the planner must come close to: what it predicts beside what was stated."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.planner import published
from benchmarks.planner.published import Row
from bert.plan import network, update_time
from bert.plan.hardware import Cluster, cluster
from bert.plan.update_time import CONSTANTS, Work

HOUR, DAY = 3600.0, 86_400.0
PHASES = ((7038 * 65_536, 64, 4), (1563 * 32_768, 8, 16))  # sequences, micro-batch, accumulation on 256 GPUs
# NVIDIA's MLPerf code keeps no Python between micro-batches (CUDA graphs) and divides LAMB over a node's GPUs. Fitted
# to the submissions on A100, without any on H100.
MLPERF = dataclasses.replace(CONSTANTS, network_share=0.44, straggle_nodes=0.002, launch=0.0008)
RECIPE_UPDATES = 1_144_000  # of the TensorFlow recipe of March 2019, which sums gradients in float32
MEGATRON = ((1920, 24, 1.16e9, 1), (2304, 30, 2.03e9, 2), (3072, 36, 4.24e9, 4), (4096, 42, 8.67e9, 8))
MEGATRON_STATED = {  # milliseconds an iteration, with micro-batches of 8 and 16; images/tables.tex
    "v100-sxm3-32": (8, (1121, 1093, 1238, 1407)),
    "a100-sxm-40": (16, (1076, 1026, 1162, 1343)),
}


@dataclass(frozen=True)
class Run:
    """A prediction beside what was stated, in the same unit."""

    name: str
    measured_row: str  # the one that gives the rate
    predicted: float
    stated: float
    unit: str
    remark: str = ""

    @property
    def error(self) -> float:
        return self.predicted / self.stated - 1


def all_runs() -> list[Run]:
    """Return all known runs."""
    return [*superpod(), *large_scale(), *first_tensorflow(), *mlperf(), *megatron()]


def _row(name: str) -> Row:
    return next(row for row in published.rows() if row.id == name)


def _seconds(base: Row, target: Cluster, work: Work, scale: float = 1.0) -> float:
    """Return the time of an update with the rate of a measured row, on GPUs that are `scale` times as fast."""
    rate = update_time.rate(base.work, base.cluster, base.seconds)
    return update_time.times(work, target, rate * scale).total


def _two_phases(bases: tuple[Row, Row], target: Cluster, accumulation: tuple[int, int]) -> float:
    """Return the hours of NVIDIA's two phases with this many micro-batches an update; the sequences stay the same."""
    total = 0.0
    for base, (sequences, per_device, _), number in zip(bases, PHASES, accumulation, strict=True):
        work = dataclasses.replace(base.work, per_device=per_device, accumulation=number)
        total += sequences / (per_device * number * target.ranks) * _seconds(base, target, work)
    return total / HOUR


def superpod() -> Iterator[Run]:
    """1,472 V100 in 47 minutes, from the rates of one node and of 64; micro-batches as on 64 nodes."""
    target = cluster("v100-sxm3-32h", 92, 16)
    for bases in (("r305", "r310"), ("r301", "r306")):
        rows = _row(bases[0]), _row(bases[1])
        hours = _two_phases(rows, target, (1, 3))
        yield Run("PyTorch, 92 DGX-2H", " ".join(bases), hours * 60, 47, "min", f"from {rows[0].cluster.nodes} nodes")


def large_scale() -> Iterator[Run]:
    """The same code on 1 to 64 nodes, from one node; the stated times include start and checkpoints."""
    rows = _row("r301"), _row("r306")
    for nodes, accumulation, stated in ((1, (64, 256), 58.4), (4, (16, 64), 15.35), (16, (4, 16), 3.94),
                                        (64, (1, 4), 1.124)):  # fmt: skip
        hours = _two_phases(rows, cluster("v100-sxm3-32h", nodes, 16), accumulation)
        yield Run(f"PyTorch, {nodes} DGX-2H", "r301 r306", hours, stated, "h")


def first_tensorflow() -> Iterator[Run]:
    """TensorFlow 1.13 with Adam: 6.5 days on a DGX-2, 3.3 days on 64 V100 (6.8 in float32), 512 tokens throughout."""
    for name, row, nodes, batch, stated, gpu, scale in (
        ("TensorFlow, DGX-2", "r089", 1, 14, 6.5, "v100-sxm3-32", 1.0),
        ("TensorFlow, 4 DGX-2H", "r063", 4, 4, 3.3, "v100-sxm3-32h", 131 / 125),
        ("TensorFlow, 4 DGX-2H, float32", "r076", 4, 4, 6.8, "v100-sxm3-32h", 16.4 / 15.7),
    ):
        base = _row(row)
        work = dataclasses.replace(base.work, per_device=batch, accumulation=1, gradients=base.work.parameters * 4)
        days = RECIPE_UPDATES * _seconds(base, cluster(gpu, nodes, 16), work, scale) / DAY
        yield Run(name, row, days, stated, "days", f"{RECIPE_UPDATES:,} updates")


def mlperf() -> Iterator[Run]:
    """H100, from NVIDIA's row of 8 GPUs; the youngest row also from others, of which none comes within 10 %.

    Those are 8 GPUs of another maker in the same round and container, and 3,072 GPUs with the same micro-batch.
    """
    later = "a later container"
    for measured, name, remark in (("r763", "r761", ""), ("r763", "r760", ""), ("r763", "r762", ""),
                                   ("r763", "r764", ""), ("r763", "r792", later), ("r786", "r792", "same container"),
                                   ("r764", "r792", later)):  # fmt: skip
        base, row = _divided(_row(measured)), _divided(_row(name))
        rate = update_time.rate(base.work, base.cluster, base.seconds, MLPERF)
        seconds = update_time.times(row.work, row.cluster, rate, MLPERF).total
        rate_of_all = row.work.per_device * row.cluster.ranks / seconds
        name = f"MLPerf, {row.cluster.ranks} H100 from {base.cluster.ranks}"
        yield Run(name, base.id, rate_of_all, row.rate, "seq/s", remark)


def _divided(row: Row) -> Row:
    work = dataclasses.replace(row.work, parameters=row.work.parameters / row.cluster.per_node)
    return dataclasses.replace(row, work=work)


def megatron() -> Iterator[Run]:
    """Tensor parallelism of GPT-2 on 2, 4 and 8 GPUs, from one GPU; activations are computed again."""
    for name, (batch, stated) in MEGATRON_STATED.items():
        node, first = cluster(name, 1), 0.0
        for (width, layers, count, parts), milliseconds in zip(MEGATRON, stated, strict=True):
            flops = _megatron_flops(width, layers, batch)
            optimizer = CONSTANTS.passes * 4 * count / parts / node.gpu.bandwidth
            if parts == 1:
                first = flops / (milliseconds / 1e3 - optimizer)
                continue
            states = batch * 1024 * width * 2
            travel = network.tensor_parallel(parts, layers, states, node, recompute=True, latency=network.LATENCY)
            predicted = flops / parts / first + optimizer + travel
            yield Run(f"Megatron-LM, {parts} parts, {name}", "one GPU", predicted * 1e3, milliseconds, "ms")


def _megatron_flops(width: int, layers: int, batch: int, sequence: int = 1024, words: int = 51_200) -> float:
    """Return the operations of an update with recomputation, as the authors count them."""
    share = 1 + sequence / (6 * width) + words / (16 * layers * width)
    return 96 * batch * sequence * layers * width**2 * share
