"""What the turns of all ranks come to: exposed communication, the share of it that overlap hides, traffic.

compute     an update of every rank for itself, all ranks at the same time: without any exchange, and without overlap
exposed     an update with the exchange, less compute
hidden      of the exposed communication without overlap, what overlap removes, as a share of what could be hidden: by
            a network that carries one bucket after the other without a pause, each from the moment in the last
            micro-batch's backward pass at which it is complete
scaling     compute / update: the speed of N ranks over N times that of one, each with a batch of its own (weak scaling)
transfer    CPU seconds of a rank in an update, less those of compute
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.slow_network.collectives import slowest_rank
from benchmarks.slow_network.work import ALONE, WAYS
from bert.errors import IntegrityError

TOLERANCE = {False: 1e-6, True: 2e-3}  # of losses, relative, against the first way; with gradients in float16 or not
LEAST = 0.05  # of an update: a share of less that could be hidden is only noise
PARTNER = {way: way.replace("overlap+", "").replace("+overlap", "") for way in WAYS}  # the same without overlap
PARTNER["overlap"] = "summed"


@dataclass(frozen=True)
class Setting:
    """What a row was measured with."""

    model: str
    megabits: float
    milliseconds: float
    sequences: int
    tokens: int


def ring_bytes(parameters: int, ranks: int, compress: bool, sharded: bool) -> float:
    """Return the bytes that a rank sends in an update, in theory.

    A ring all-reduce is a reduce-scatter and an all-gather, each of (N - 1) / N of the bytes (Patarasuk and Yuan 2009).
    A sharded optimizer gathers weights in float32 instead of gradients.
    """
    gradient = 2 if compress else 4
    return (ranks - 1) / ranks * parameters * (gradient + (4 if sharded else gradient))


def could_be_hidden(communication: float, sizes: Sequence[float], ready: Sequence[float], backward: float) -> float:
    """Return the most seconds of communication that overlap could hide.

    sizes: of the buckets, in the order in which they travel. ready: the share of the backward pass, which takes
    `backward` seconds, after which each is complete.
    """
    end = 0.0
    for size, share in zip(sizes, ready, strict=True):
        end = max(end, share * backward) + communication * size / sum(sizes)
    return max(0.0, communication - (end - backward))


def rows(setting: Setting, ranks: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a row for each accumulation and way. ranks: what each rank told, facts first."""
    facts, told = ranks[0][0], [lines[1:] for lines in ranks]
    _check_losses(told[0])
    measured = []
    for accumulation in dict.fromkeys(turn["accumulation"] for turn in told[0]):
        ways = {
            way: _of_way([[t for t in one if (t["accumulation"], t["way"]) == (accumulation, way)] for one in told])
            for way in dict.fromkeys(turn["way"] for turn in told[0])
        }
        alone = ways.pop(ALONE)
        backward = max(0.0, alone["micro_batch"] - max(lines[0]["forward"] for lines in ranks))
        for way, figures in ways.items():
            row = {**vars(setting), "ranks": len(ranks), "accumulation": accumulation, "way": way, **figures}
            row |= {
                "compute": alone["update"],
                "exposed": figures["update"] - alone["update"],
                "scaling": alone["update"] / figures["update"],
                "transfer": figures["cpu"] - alone["cpu"],
                "backward": backward,
                "in_theory": ring_bytes(facts["parameters"], len(ranks), *WAYS[way][1:]),
            }
            partner = ways.get(PARTNER[way]) if WAYS[way][0] else None
            if partner:
                communication = partner["update"] - alone["update"]
                sizes, ready = facts["buckets"][way], facts["ready"][way]
                row["could_be_hidden"] = could_be_hidden(communication, sizes, ready, backward)
                if row["could_be_hidden"] > LEAST * figures["update"]:
                    row["hidden"] = (partner["update"] - figures["update"]) / row["could_be_hidden"]
            measured.append(row)
    return measured


def _of_way(ranks: list[list[dict[str, Any]]]) -> dict[str, float]:
    """Return the figures of one way from the turns of each rank: an update takes as long as on the slowest rank."""
    updates = slowest_rank(ranks)
    everything = [turn for turns in ranks for turn in turns]
    return {
        "update": statistics.median(updates),
        "fastest": min(updates),
        "slowest": max(updates),
        "micro_batch": statistics.median(seconds for turn in everything for seconds in turn["micro_batch"]),
        "cpu": statistics.median(turn["cpu"] for turn in everything),
        "sent": statistics.median(turn["sent"] for turn in everything),
    }


def _check_losses(turns: Sequence[dict[str, Any]]) -> None:
    """Raise IntegrityError if a way of exchange does not give the losses of the first one."""
    for accumulation in dict.fromkeys(turn["accumulation"] for turn in turns):
        of_it = [turn for turn in turns if turn["accumulation"] == accumulation and turn["way"] != ALONE]
        for turn in of_it:
            compress = WAYS[turn["way"]][1]
            for expected, loss in zip(of_it[0]["losses"], turn["losses"], strict=True):
                if not abs(loss - expected) <= TOLERANCE[compress or WAYS[of_it[0]["way"]][1]] * abs(expected):
                    raise IntegrityError(
                        f"accumulation {accumulation}: {turn['way']} gives a loss of {loss:.8g}, {of_it[0]['way']} "
                        f"{expected:.8g}: they do not compute the same, so the times are worth nothing"
                    )


HEADER = """\
| model | link | micro-batches | way | s/update (min - max) | compute | exposed | hidden of what could be | scaling | \
transfer, CPU s | MB sent (theory) |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def line(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    link = f"{row['megabits']:g} Mb/s" + (f", {row['milliseconds']:g} ms" if row["milliseconds"] else "")
    hidden = ""
    if "could_be_hidden" in row:
        of = f"of {row['could_be_hidden']:.2f} s"
        hidden = f"{100 * row['hidden']:.0f} % {of}" if "hidden" in row else f"- {of}"
    cells = [
        f"{row['model']}, {row['sequences']} x {row['tokens']}",
        link,
        f"{row['accumulation']}",
        row["way"],
        f"{row['update']:.2f} ({row['fastest']:.2f} - {row['slowest']:.2f})",
        f"{row['compute']:.2f}",
        f"{row['exposed']:.2f}",
        hidden,
        f"{row['scaling']:.2f}",
        f"{row['transfer']:.2f}",
        f"{row['sent'] / 1e6:.1f} ({row['in_theory'] / 1e6:.1f})",
    ]
    return f"| {' | '.join(cells)} |"
