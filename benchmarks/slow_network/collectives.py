"""What the turns of all ranks come to for ways to sum a bucket of gradients over the ranks.

Horovod cannot sum bfloat16. Packed as 16-bit words it can travel, but only be gathered or exchanged, and each rank
then adds the numbers itself:

gathered     every rank gets the whole bucket of all others: (N - 1) times 2 bytes per gradient
exchanged    every rank gets its part of the bucket of all others (all-to-all), adds, and all gather the sums: 2 (N - 1)
             / N times 2 bytes, which is what float16 needs, in two collectives

"float32 scattered and gathered" is the traffic of a sharded optimizer: a reduce-scatter of gradients, an all-gather of
as many new weights.
"""

import statistics
from collections.abc import Sequence
from typing import Any

SIZE = 25_000_000  # bytes of a bucket in float32, the trainer's default
WAYS = ("float32 summed", "float32 scattered and gathered", "float16 summed", "bfloat16 gathered", "bfloat16 exchanged")


def slowest_rank(turns: Sequence[Sequence[dict[str, Any]]]) -> list[float]:
    """Return the seconds of all repeats of all turns on the rank that was slowest. turns: those of each rank."""
    by_rank = [[time for turn in one for time in turn["seconds"]] for one in turns]
    return [max(times) for times in zip(*by_rank, strict=True)]


def rows(ranks: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a row for each way: the median time of the slowest rank, CPU seconds, bytes sent, largest error."""
    measured = []
    for way in WAYS:
        turns = [[line for line in lines if line["way"] == way] for lines in ranks]
        seconds = slowest_rank(turns)
        everything = [turn for one in turns for turn in one]
        row = {"way": way, "ranks": len(ranks), "seconds": statistics.median(seconds)}
        row |= {"fastest": min(seconds), "slowest": max(seconds), "error": max(turn["error"] for turn in everything)}
        row |= {name: statistics.median(turn[name] for turn in everything) for name in ("cpu", "sent")}
        measured.append(row)
    return measured


HEADER = """\
| link | way | ms for 25 MB of float32 (min - max) | CPU ms | MB sent | largest error |
|---|---|---|---|---|---|
"""


def line(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    name = f"{row['megabits']:g} Mb/s" + (f", {row['milliseconds']:g} ms" if row["milliseconds"] else "")
    times = [1000 * row[kind] for kind in ("seconds", "fastest", "slowest")]
    return (
        f"| {name} | {row['way']} | {times[0]:.0f} ({times[1]:.0f} - {times[2]:.0f}) | {1000 * row['cpu']:.0f} | "
        f"{row['sent'] / 1e6:.1f} | {row['error']:.1g} |"
    )
