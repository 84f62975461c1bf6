"""What the runs of bert.pretrain over a link come to: exposed communication, what overlap saves, traffic.

compute     an update of a run on each host, both at the same time, with nothing exchanged
exposed     an update with the exchange, less compute
saved       by overlap: an update without it, less the update
could       be saved: all sums but the embeddings' and one bucket's, at most a backward pass (bert.plan.update_time)
scaling     compute / update: the speed of N ranks over N times that of one, each with a batch of its own (weak scaling)
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.core.errors import IntegrityError
from bert.plan import update_time

RANKS = 2
UNTIMED = 2  # first updates of a run, which trace and compile
ALONE = "alone"
WAYS = {  # overlap, compress, sharded
    "summed": (False, False, False),
    "overlap": (True, False, False),
    "compress": (False, True, False),
    "overlap+compress": (True, True, False),
    "sharded": (False, False, True),
    "sharded+overlap": (True, False, True),
}
# The same way without overlap.
PARTNER = {"overlap": "summed", "overlap+compress": "compress", "sharded+overlap": "sharded"}
AT = " at "  # in the name of a way, before the size of its buckets
TOLERANCE = {False: 1e-6, True: 2e-3}  # of losses, relative, against the first way; with gradients in float16 or not


def named(way: str, megabytes: float) -> str:
    """Return the name of a way with buckets of this size; 0: of the trainer's default. Only some ways have buckets."""
    overlap, _, sharded = WAYS[way]
    return f"{way}{AT}{megabytes:g} MB" if megabytes and (overlap or sharded) else way


def of_name(name: str) -> tuple[str, float]:
    """Return the way and the size of its buckets of such a name."""
    way, _, size = name.removesuffix(" MB").partition(AT)
    return way, float(size or 0)


@dataclass(frozen=True)
class Setting:
    """What a row was measured with."""

    model: str
    parameters: int
    megabits: float
    milliseconds: float
    sequences: int
    tokens: int
    accumulation: int


@dataclass(frozen=True)
class Turn:
    """One run of a way."""

    seconds: list[float]
    """of the timed updates"""
    losses: list[float]
    """of all updates"""
    sent: float = 0.0
    """bytes that a rank sent in an update"""


def read(run: Path, total: int, sent: float = 0.0) -> Turn:
    """Return the figures in the metrics of a finished run. total: sequences of an update. sent: bytes in all."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    updates = [line for line in lines if line["split"] == "train"]
    seconds = [total / line["sequences_per_second"] for line in updates]
    return Turn(seconds[UNTIMED:], [float(line["loss"]) for line in updates], sent / len(updates))


def slower(first: Turn, second: Turn) -> Turn:
    """Return two runs at the same time as one: an update takes as long as the slower one."""
    return Turn([max(pair) for pair in zip(first.seconds, second.seconds, strict=True)], first.losses)


def ring_bytes(parameters: int, compress: bool, sharded: bool, ranks: int = RANKS) -> float:
    """Return the bytes that a rank sends in an update, in theory.

    A ring all-reduce is a reduce-scatter and an all-gather, each of (N - 1) / N of the bytes (Patarasuk and Yuan 2009).
    A sharded optimizer gathers weights in float32 instead of gradients.
    """
    gradient = 2 if compress else 4
    return (ranks - 1) / ranks * parameters * (gradient + (4 if sharded else gradient))


def rows(
    setting: Setting, turns: Mapping[str, Sequence[Turn]], share: Callable[[float], float]
) -> list[dict[str, Any]]:
    """Return a row for each way but ALONE. turns: of each way. Raise IntegrityError if losses differ.

    share: of the gradients that overlap cannot hide, by the MB of a bucket; 0: of the trainer's default.
    """
    seconds = {way: [time for turn in runs for time in turn.seconds] for way, runs in turns.items()}
    medians = {way: statistics.median(times) for way, times in seconds.items()}
    ways = [way for way in turns if way != ALONE]
    _check_losses(ways, turns)
    measured = []
    for way in ways:
        row = {**vars(setting), "way": way, "update": medians[way], "compute": medians[ALONE]}
        row |= {"fastest": min(seconds[way]), "slowest": max(seconds[way])}
        row |= {"exposed": medians[way] - medians[ALONE], "scaling": medians[ALONE] / medians[way]}
        kind, megabytes = of_name(way)
        if (partner := PARTNER.get(kind)) in medians:
            row["saved"] = medians[partner] - medians[way]
            communication, micro_batch = medians[partner] - medians[ALONE], medians[ALONE] / setting.accumulation
            row["could_be_saved"] = update_time.can_hide(communication, share(megabytes), micro_batch)
        row["sent"] = statistics.median(turn.sent for turn in turns[way])
        measured.append(row | {"in_theory": ring_bytes(setting.parameters, *WAYS[kind][1:])})
    return measured


def _check_losses(ways: Sequence[str], turns: Mapping[str, Sequence[Turn]]) -> None:
    """Raise IntegrityError if a way of exchange does not give the losses of the first one."""
    first = turns[ways[0]][0].losses
    in_float16 = {way: WAYS[of_name(way)[0]][1] for way in ways}
    for way in ways:
        tolerance = TOLERANCE[in_float16[way] or in_float16[ways[0]]]
        for turn in turns[way]:
            for expected, loss in zip(first, turn.losses, strict=True):
                if not abs(loss - expected) <= tolerance * abs(expected):
                    raise IntegrityError(
                        f"{way} gives a loss of {loss:.8g}, {ways[0]} {expected:.8g}: they do not compute the same, so "
                        "the times are worth nothing"
                    )


HEADER = """\
| model | link | micro-batches | way | s/update (range) | compute | exposed | saved (could) | scaling | MB (theory) |
|---|---|---|---|---|---|---|---|---|---|
"""


def line(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    cells = [
        f"{row['model']}, {row['sequences']} x {row['tokens']}",
        f"{row['megabits']:g} Mb/s" + (f", {row['milliseconds']:g} ms" if row["milliseconds"] else ""),
        f"{row['accumulation']}",
        row["way"],
        f"{row['update']:.2f} ({row['fastest']:.2f} - {row['slowest']:.2f})",
        f"{row['compute']:.2f}",
        f"{row['exposed']:.2f}",
        f"{row['saved']:.2f} ({row['could_be_saved']:.2f})" if "saved" in row else "",
        f"{row['scaling']:.2f}",
        f"{row['sent'] / 1e6:.1f} ({row['in_theory'] / 1e6:.1f})",
    ]
    return f"| {' | '.join(cells)} |"
