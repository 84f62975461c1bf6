"""Measure what a sum over the parts of a model takes, which every layer of tensor parallelism waits for.

    python -m benchmarks.part_sums [--ranks 2] [--tensor 2] [--cycle_time 0 1]

Sums depend on each other in a chain, as those of layers do, and between two of them is one multiplication. The table
has the best and the median microseconds of a sum over all turns. The first rank's clock is used.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

from benchmarks.contender import ROOT
from bert import cli, ranges
from bert.config import ParallelConfig, RunConfig
from bert.errors import UserError
from bert.ranges import Range
from bert.storage import files

SIZES = {"4 B": 1, "64 KB": 1 << 14, "1 MB": 1 << 18, "4 MB": 1 << 20}  # floats
CHAIN = 20  # sums in a chain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.part_sums`."""

    ranks: Annotated[int, Range(2, 64)] = 2
    """ranks on this machine"""
    tensor: Annotated[int, Range(2, 64)] = 2
    """parts of a model"""
    cycle_time: tuple[Annotated[float, Range(0, 1000)], ...] = (0.0, 1.0)
    """milliseconds between the rounds of Horovod's background thread (HOROVOD_CYCLE_TIME); the trainer's is 0"""
    turns: Annotated[int, Range(1, 10_000)] = 30
    """chains of each size"""
    result: Path | None = None
    """where a rank writes its figures (the command starts ranks with it)"""

    def __post_init__(self) -> None:
        ranges.check(self)


def measure_rank(options: Options, result: Path) -> None:
    """Time the chains; rank 0 writes the microseconds of a sum in each, by size."""
    import tensorflow as tf

    from bert.training.distributed import connect

    comm = connect(RunConfig(device="cpu"), ParallelConfig(tensor=options.tensor))

    @tf.function(autograph=False)
    def chain(x: tf.Tensor) -> tf.Tensor:
        for number in range(CHAIN):
            x = comm.parts.sum(x, f"link_{number}") * (1 / options.tensor)
        return x

    found = {}
    for size, count in SIZES.items():
        ones, times = tf.ones([count]), []
        for turn in range(options.turns + 2):
            comm.all_reduce([tf.zeros([])])  # begin together
            began = time.perf_counter()
            with comm.collective():
                total = chain(ones).numpy()
            if turn > 1:  # the first ones trace it and agree on names
                times.append(1e6 * (time.perf_counter() - began) / CHAIN)
            assert (total == 1).all()
        found[size] = times
    if comm.rank == 0:
        result.write_text(json.dumps(found), encoding="utf-8")


def start(options: Options, cycle_time: float, result: Path) -> dict[str, list[float]]:
    """Run the ranks; return the microseconds of a sum in each turn, by size."""
    launch = [str(ROOT / "scripts" / "launch.sh"), "-np", str(options.ranks), "--", sys.executable, "-m"]
    sizes = ["--tensor", str(options.tensor), "--turns", str(options.turns)]
    command = [*launch, "benchmarks.part_sums", "--result", str(result), *sizes]
    environment = os.environ | {"HOROVOD_CYCLE_TIME": f"{cycle_time:g}"}
    if status := subprocess.run(command, cwd=ROOT, env=environment).returncode:
        raise UserError(f"the ranks ended with exit code {status}; see their messages")
    found: dict[str, list[float]] = files.read_json(result)
    return found


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m benchmarks.part_sums", description=__doc__)
    if options.result is not None:
        measure_rank(options, options.result)
        return
    print(f"{options.ranks} ranks, {options.tensor} parts; microseconds of a sum: the best (the median)")
    print(f"| HOROVOD_CYCLE_TIME | {' | '.join(SIZES)} |\n|---|{'---|' * len(SIZES)}")
    with tempfile.TemporaryDirectory() as scratch:
        for cycle_time in options.cycle_time:
            found = start(options, cycle_time, Path(scratch, "result.json"))
            cells = [f"{min(times):,.0f} ({statistics.median(times):,.0f})" for times in found.values()]
            print(f"| {cycle_time:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    cli.main(main)
