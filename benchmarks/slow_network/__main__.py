"""Measure training over a slow network on one machine: two hosts that are network namespaces, a rank on each.

    python -m benchmarks.slow_network updates [--models small base] [--megabits 1000 100] [--milliseconds 0 5] ...
    python -m benchmarks.slow_network collectives [--megabits 1000 100] ...

`updates` measures the trainer's update with and without overlap and compression. `collectives` measures ways to sum
25 MB of gradients. It needs root. The link's rate and round trip are measured first, and the command ends if the rate
is not as asked. The ranks are started by scripts/launch.sh as on two hosts, with a stand-in for ssh that enters the
second namespace. Each host has half of the cores. The table is OUTPUT/updates.md or OUTPUT/collectives.md, and all
figures are in the .jsonl file beside it.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from benchmarks import cases, steps
from benchmarks.contender import ROOT
from benchmarks.slow_network import collectives, link, updates
from benchmarks.slow_network.link import Link
from benchmarks.slow_network.updates import Setting
from benchmarks.slow_network.work import WAYS, Work
from bert import cli, paths, ranges
from bert.errors import UsageError, UserError
from bert.ranges import BatchSize, Range
from bert.storage import files

SETTINGS = ("OMP_", "TF_NUM_", "HOROVOD_")  # variables that would change what is measured
TINY = dataclasses.replace(cases.MODELS["tiny"], vocab_size=4999)
MODELS = cases.MODELS | {"tiny": TINY}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.slow_network`."""

    what: cli.Positional[Literal["updates", "collectives"]]
    """what to measure, as above"""
    models: tuple[str, ...] = ("small", "base")
    """model sizes: tiny (2 layers x 128), small (6 x 384), base (12 x 768)"""
    megabits: tuple[Annotated[float, Range(1, 100_000)], ...] = (1000.0, 100.0)
    """rates of the link in Mb/s"""
    milliseconds: tuple[Annotated[float, Range(0, 1000)], ...] = (0.0,)
    """delays of the link in one direction"""
    accumulation: tuple[Annotated[int, Range(1, 10_000)], ...] = (1, 4, 16)
    """micro-batches in an update"""
    ways: tuple[str, ...] = ("summed", "overlap", "compress", "overlap+compress")
    """ways to exchange gradients; also: sharded, sharded+overlap"""
    sequences: BatchSize = 8
    """sequences in a micro-batch"""
    tokens: Annotated[int, Range(16, 512)] = 128
    """tokens of a sequence"""
    bucket_megabytes: Annotated[float, Range(0, 1e6)] = 0.0
    """size of a bucket with overlap; 0: the trainer's default"""
    xla: cli.Switch = False
    """compile the step with XLA"""
    updates: Annotated[int, Range(1, 10_000)] = 3
    """updates, or collectives, that are timed in a turn"""
    turns: Annotated[int, Range(1, 10_000)] = 3
    """turns of each way"""
    output: Path = dataclasses.field(default_factory=lambda: paths.workdir() / "slow_network")
    """output folder"""

    def __post_init__(self) -> None:
        ranges.check(self)
        for flag, known in (("models", MODELS), ("ways", WAYS)):
            if wrong := [name for name in getattr(self, flag) if name not in known]:
                raise UsageError(f"--{flag} {wrong[0]}: one of {' '.join(known)}")


def halves() -> tuple[str, str]:
    """Return the cores of each host, for taskset. Raise UsageError if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise UsageError("two ranks need two cores; this process may use one")
    middle = len(cores) // 2
    first, second = (",".join(map(str, part)) for part in (cores[:middle], cores[middle : 2 * middle]))
    return first, second


def launch(joined: Link, scratch: Path, module: str, task: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Run a module on both hosts; return the lines that each rank wrote."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    files.write_json(folder / "task.json", task | {"folder": str(folder)})
    hosts = ",".join(f"{name}:1" for name in link.HOSTS)
    launcher = [str(ROOT / "scripts" / "launch.sh"), "-np", "2", "-H", hosts, "--network-interfaces", link.DEVICE]
    command = [*launcher, "--", sys.executable, "-m", module, str(folder / "task.json")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    environment |= {"PATH": f"{joined.write_ssh()}:{environment['PATH']}", "PYTHONPATH": str(ROOT)}
    ranks = subprocess.Popen(joined.command(0, command), cwd=ROOT, env=environment)
    try:
        status = ranks.wait()
    except BaseException:
        ranks.terminate()
        ranks.wait()
        raise
    if status:
        raise UserError(f"the ranks ended with exit code {status}; see their messages")
    return [[json.loads(text) for text in open(folder / f"rank-{rank}.jsonl", encoding="utf-8")] for rank in (0, 1)]


def measure_updates(options: Options, joined: Link, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of all models over one link."""
    for model in options.models:
        work = Work(
            model=dataclasses.asdict(MODELS[model]),
            sequences=options.sequences,
            tokens=options.tokens,
            accumulation=list(options.accumulation),
            ways=list(options.ways),
            bucket_megabytes=options.bucket_megabytes,
            xla=options.xla,
            updates=options.updates,
            turns=options.turns,
            folder="",
        )
        setting = Setting(model, joined.megabits, joined.milliseconds, options.sequences, options.tokens)
        told = launch(joined, scratch, "benchmarks.slow_network.updates_rank", dataclasses.asdict(work))
        yield from updates.rows(setting, told)


def measure_collectives(options: Options, joined: Link, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of all ways to sum over one link."""
    task = {"repeats": options.updates, "turns": options.turns}
    told = launch(joined, scratch, "benchmarks.slow_network.collectives_rank", task)
    for row in collectives.rows(told):
        yield {"megabits": joined.megabits, "milliseconds": joined.milliseconds} | row


MEASURES = {
    "updates": (measure_updates, updates.HEADER, updates.line),
    "collectives": (measure_collectives, collectives.HEADER, collectives.line),
}


def run(options: Options) -> Path:
    """Measure over every link; write the figures as they come, and the table; return its path."""
    options.output.mkdir(parents=True, exist_ok=True)
    measure, header, line = MEASURES[options.what]
    table, cores = header, halves()
    head = steps.about(options)  # type: ignore[arg-type]
    with (
        tempfile.TemporaryDirectory(dir=options.output, prefix=".scratch-") as scratch,
        open(options.output / f"{options.what}.jsonl", "w", encoding="utf-8") as lines,
    ):
        print(json.dumps(head), file=lines, flush=True)
        for megabits in options.megabits:
            for milliseconds in options.milliseconds:
                with Link(megabits, milliseconds, cores) as joined:
                    measured = joined.measure()
                    print(json.dumps({"link": dataclasses.asdict(measured)}), file=lines, flush=True)
                    there, back = measured.megabits
                    steps.tell(
                        f"link of {megabits:g} Mb/s and {milliseconds:g} ms: {there:.0f} and {back:.0f} Mb/s of "
                        f"payload, round trip {measured.round_trip:.2f} ms"
                    )
                    for row in measure(options, joined, Path(scratch).absolute()):
                        print(json.dumps(row), file=lines, flush=True)
                        table += f"{line(row)}\n"
                    if milliseconds:
                        steps.tell(f"the delay took {joined.wire_seconds():.1f} CPU seconds of this machine")
    path = options.output / f"{options.what}.md"
    with files.atomic_write(path) as stream:
        stream.write(
            f"{head['cpu']}, {len(os.sched_getaffinity(0))} cores, {head['date']}, {head['commit']}\n\n{table}"
        )
    return path


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m benchmarks.slow_network", description=__doc__)
    link.check()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the namespaces are removed
    print(run(options).read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    cli.main(main)
