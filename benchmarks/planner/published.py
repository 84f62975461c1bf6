"""Published measurements of BERT and GPT-2 training (`published_rows.csv`), and those that contradict themselves."""

import csv
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bert.core.config import ModelConfig
from bert.model import cost
from bert.plan.hardware import Cluster, gpus
from bert.plan.update_time import Work

ROWS = Path(__file__).with_name("published_rows.csv")
PRECISIONS = {"fp32": "float32", "tf32": "tf32", "fp16": "float16", "bf16": "bfloat16", "fp16/fp8": "float16"}
BATCH_TOLERANCE = 0.01  # between the printed batch and that of the printed accumulation
SUPERLINEAR = 1.04  # faster per GPU with more GPUs and the same micro-batch
LOST = 0.12  # share of an update that is lost against one node ...
WIRES = 15  # ... and more than this many times what the gradients need by the data sheets


@dataclass(frozen=True)
class Row:
    """One published measurement with the work and the cluster that it means."""

    id: str
    series: str  # rows that differ in the number of GPUs only
    source: str  # the code, and who measured it
    kind: str  # "code": tables of throughput; "mlperf"
    framework: str
    precision: str
    sequence: int
    width: int
    batch: float  # printed sequences per update; 0: not printed
    rate: float  # sequences per second
    cluster: Cluster
    work: Work
    listed: str  # why the row contradicts another statement of its source; empty: it does not

    @property
    def seconds(self) -> float:
        """Return the time of one update."""
        return self.work.per_device * self.work.accumulation * self.cluster.ranks / self.rate

    @property
    def code(self) -> str:
        """Return how the code was compiled: "xla", "plain" (TensorFlow alone), or "fused" kernels written by hand."""
        if not self.framework.startswith("TF"):
            return "fused"
        return "plain" if "no XLA" in self.framework else "xla"


@functools.cache
def rows() -> tuple[Row, ...]:
    """Return the rows with a known GPU, batch and rate of sequences."""
    with ROWS.open(encoding="ascii", newline="") as stream:
        return tuple(filter(None, map(_row, csv.DictReader(stream))))


def _row(fields: dict[str, str]) -> Row | None:
    needed = ("gpu", "seq_per_s", "per_gpu_batch", "accumulation", "seq_len", "predictions")
    model = gpus().get(fields["gpu"])
    if model is None or fields["kind"] == "other" or not all(fields[name] for name in needed):
        return None
    nodes, ranks, width = int(fields["nodes"]), int(fields["gpus"]), int(fields["hidden"])
    config = ModelConfig(
        vocab_size=int(fields["vocab"]),
        hidden_size=width,
        num_hidden_layers=int(fields["layers"]),
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    precision, parameters = PRECISIONS[fields["precision"]], cost.parameters(config)
    network = float(fields["network_gbps_per_node"] or model.network * 8e-9) * 1e9 / 8
    return Row(
        id=fields["id"],
        series=fields["series"],
        source=fields["series"].split("|")[0] if fields["kind"] == "code" else fields["series"].split("|")[1],
        kind=fields["kind"],
        framework=fields["framework"],
        precision=precision,
        sequence=int(fields["seq_len"]),
        width=width,
        batch=float(fields["global_batch"] or 0),
        rate=float(fields["seq_per_s"]),
        cluster=Cluster(model, nodes, ranks // nodes, network),
        work=Work(
            flops=cost.flops(config, int(fields["seq_len"]), float(fields["predictions"])),
            per_device=int(float(fields["per_gpu_batch"])),
            accumulation=int(float(fields["accumulation"])),
            parameters=parameters,
            gradients=parameters * (2.0 if precision == "float16" else 4.0),
        ),
        listed=fields["contradiction"],
    )


def series(kind: str = "code") -> dict[str, list[Row]]:
    """Return the rows of each series, by their number of GPUs."""
    chosen: dict[str, list[Row]] = {}
    for row in sorted((row for row in rows() if row.kind == kind), key=lambda row: row.cluster.ranks):
        chosen.setdefault(row.series, []).append(row)
    return chosen


def contradictions(kind: str = "code") -> dict[str, str]:
    """Return why a row is not fitted, by its id. The rules look at the published numbers, not at our predictions."""
    return {row.id: reason for group in series(kind).values() for row, reason in _contradicted(group)}


def _contradicted(group: list[Row]) -> Iterator[tuple[Row, str]]:
    for number, row in enumerate(group):
        smaller = [other for other in group[:number] if other.cluster.nodes == 1 and not _alone(other, group)]
        reason = _alone(row, group) or next(filter(None, (_lost(row, other) for other in smaller)), "")
        if reason:
            yield row, reason


def _alone(row: Row, group: list[Row]) -> str:
    if row.listed:
        return row.listed
    work, printed = row.work, row.work.per_device * row.work.accumulation * row.cluster.ranks
    if row.batch and abs(printed / row.batch - 1) > BATCH_TOLERANCE:
        return f"batch x accumulation x GPUs is {printed:,}; the table says {row.batch:,.0f}"
    larger = [
        other
        for other in group
        if other.cluster.ranks > row.cluster.ranks and other.work.per_device == work.per_device and not other.listed
    ]
    gain = max((other.rate / other.cluster.ranks for other in larger), default=0.0) / (row.rate / row.cluster.ranks)
    return f"a GPU is {gain:.2f} times as fast in a row with more GPUs" if gain > SUPERLINEAR else ""


def _lost(row: Row, base: Row) -> str:
    """Return why no network explains the time that an update loses against one node of the same series, or ""."""
    if row.cluster.nodes == 1:
        return ""
    ideal = row.work.per_device * row.work.accumulation / (base.rate / base.cluster.ranks)
    lost, cluster = row.seconds - ideal, row.cluster
    shares = (cluster.nodes - 1) / cluster.nodes, (cluster.per_node - 1) / cluster.per_node
    wire = 2 * row.work.gradients * (shares[0] / cluster.network + shares[1] / cluster.gpu.link)
    if lost < LOST * row.seconds or lost < WIRES * wire:
        return ""
    return f"loses {lost / row.seconds:.0%} against one node, {lost / wire:.0f} times what the gradients need"
