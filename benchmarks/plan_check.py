"""Compare what the planner predicts with what was measured on this machine.

    python -m benchmarks.slow_network updates --models tiny small --sequences 2 --tokens 64 --ways summed overlap \\
        --updates 2 --turns 2 --output DIR/small
    python -m benchmarks.slow_network updates --models base --sequences 2 --tokens 64 --ways summed --updates 1 \\
        --turns 2 --output DIR/base
    cat DIR/small/updates.jsonl DIR/base/updates.jsonl > DIR/updates.jsonl
    python -m benchmarks.plan_check --updates DIR/updates.jsonl
    python -m benchmarks.plan_check --runs RUN=1 RUN=2 ...          # runs of bert.pretrain, with their ranks

One update gives the rate of each model: a rank for itself with the fewest micro-batches, or the first run of a model.
The others are predicted. The machine should do nothing else while they are measured. A CPU is no row of the planner's
GPUs, so its memory and its loopback device are given by flags.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from benchmarks.slow_network.__main__ import MODELS
from benchmarks.slow_network.work import WAYS
from bert import cli, ranges
from bert.config import ParallelConfig
from bert.errors import InputError, UsageError
from bert.plan import measurement, model_cost, update_time
from bert.plan.hardware import Cluster, Gpu
from bert.plan.update_time import CONSTANTS, Work
from bert.ranges import Range

GOAL = 0.10
MASKED = 0.15
# Ranks on a CPU measure their computing together, so that waiting is in it; nothing is launched on a device.
CPU = dataclasses.replace(CONSTANTS, launch=0.0, straggle_gpus=0.0, straggle_nodes=0.0, link_share=1.0)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.plan_check`."""

    updates: Path | None = None
    """updates.jsonl of benchmarks.slow_network"""
    runs: tuple[str, ...] = ()
    """runs as FOLDER=RANKS; the first of each model gives the rate"""
    memory_gigabytes: Annotated[float, Range(0.01, 1e5)] = 8.0
    """bandwidth of the memory in GB/s, for a rank"""
    loopback_gigabytes: Annotated[float, Range(0.01, 1e5)] = 1.0
    """bandwidth between two ranks of this machine in GB/s"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if not (self.updates or self.runs):
            raise UsageError("nothing to compare: give --updates or --runs")


@dataclass(frozen=True)
class Compared:
    """A prediction beside its measurement, in seconds of an update."""

    name: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def machine(options: Options, nodes: int, per_node: int, megabits: float = 0.0) -> Cluster:
    """Return ranks on CPUs as a cluster; peaks are not used, because the rate is measured."""
    core = Gpu("cpu", 1.0, 1.0, 1.0, 0.0, options.memory_gigabytes * 1e9, options.loopback_gigabytes * 1e9, 0.0, 0.0,
               per_node, 0.0)  # fmt: skip
    return Cluster(core, nodes, per_node, megabits * 1e6 / 8 or options.loopback_gigabytes * 1e9)


def from_updates(lines: list[dict[str, Any]], options: Options) -> Iterator[Compared]:
    """Yield the updates of benchmarks.slow_network, exchanged and alone, but the one of each model that gives its rate.

    That is the update of one rank for itself, with the fewest micro-batches.
    """
    rows = [line for line in lines if "way" in line and "model" in line]
    for key in dict.fromkeys((row["model"], row["sequences"], row["tokens"]) for row in rows):
        group = [row for row in rows if (row["model"], row["sequences"], row["tokens"]) == key]
        base = min(group, key=lambda row: (row["accumulation"], -row["megabits"]))
        alone = machine(options, 1, 1)
        rate = update_time.rate(_work(base, exchanged=False), alone, base["compute"], CPU)
        for row in group:
            cluster = machine(options, row["ranks"], 1, row["megabits"])
            predicted = update_time.times(_work(row), cluster, rate, CPU).total
            name = f"{row['model']} x {row['sequences']}, {row['megabits']:g} Mb/s, {row['accumulation']} micro-batches"
            yield Compared(f"{name}, {row['way']}", predicted, row["update"])
            if row["way"] == base["way"] and row is not base:  # computing is measured once for all ways
                predicted = update_time.times(_work(row, exchanged=False), alone, rate, CPU).total
                yield Compared(f"{name}, one rank", predicted, row["compute"])


def _work(row: dict[str, Any], exchanged: bool = True) -> Work:
    model = MODELS[row["model"]]
    overlap, compress, sharded = WAYS[row["way"]]
    scored, count = round(row["tokens"] * MASKED), model_cost.parameters(model)
    travels = 2.0 if compress else 4.0
    return Work(
        flops=model_cost.flops(model, row["tokens"], scored, model_cost.states_read(scored)),
        per_device=row["sequences"],
        accumulation=row["accumulation"],
        parameters=count / (row["ranks"] if sharded else 1),
        gradients=count * ((travels + 4.0) / 2 if sharded else travels) if exchanged else 0.0,
        overlap=overlap and exchanged,
        exposed=model_cost.exposed_share(model, ParallelConfig(overlap=overlap, shard_optimizer=sharded)),
    )


def from_runs(options: Options) -> Iterator[Compared]:
    """Yield each run but the first of each model."""
    rates: dict[float, float] = {}
    for text in options.runs:
        folder, _, number = text.rpartition("=")
        if not folder or not number.isdecimal() or not int(number):
            raise UsageError(f"--runs {text}: give FOLDER=RANKS, such as workdir/pretrain/demo_phase1=2")
        found = measurement.observe(Path(folder) / "metrics.jsonl", int(number))
        cluster, model = machine(options, 1, int(number)), found.work.parameters
        if model not in rates:
            rates[model] = update_time.rate(found.work, cluster, found.seconds, CPU)
            continue
        predicted = update_time.times(found.work, cluster, rates[model], CPU).total
        yield Compared(f"{folder} on {number} ranks", predicted, found.seconds)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of JSON lines. Raise InputError if it is not one."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; make it with python -m benchmarks.slow_network updates") from error
    except ValueError as error:
        raise InputError(f"{path}: not lines of JSON ({error}); measure again") from error
    return [line for line in lines if isinstance(line, dict)]


def main(argv: list[str]) -> None:
    """Run the command; exit with 1 if a prediction misses the goal."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.plan_check", description=__doc__)
    found = list(from_updates(read(options.updates), options)) if options.updates else []
    found += from_runs(options)
    print("| measured | predicted, s/update | measured, s/update | error |\n|---|---|---|---|")
    for row in found:
        print(f"| {row.name} | {row.predicted:.3f} | {row.measured:.3f} | {row.error:+.1%} |")
    missed = [row for row in found if abs(row.error) > GOAL]
    print(f"\n{len(found) - len(missed)} of {len(found)} within {GOAL:.0%}")
    if missed:
        sys.exit(1)


if __name__ == "__main__":
    cli.main(main)
