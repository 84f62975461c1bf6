"""Measure pretraining over a slow network on one machine: two hosts that are network namespaces, a rank on each.

    python -m benchmarks.slow_network [--models small base] [--megabits 1000 100] [--milliseconds 0 5] ...

It needs root. bert.pretrain trains with and without overlap and compression. Its ranks are started by scripts/launch.sh
as on two hosts, with a stand-in for ssh that enters the second namespace; each host has half of the cores. The figures
are those of metrics.jsonl and of the link's counters. The table is OUTPUT/updates.md, and all figures are in
updates.jsonl beside it.
"""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from benchmarks import cases, invented, steps
from benchmarks.contender import ROOT
from benchmarks.slow_network import link, updates
from benchmarks.slow_network.link import Link
from benchmarks.slow_network.updates import ALONE, RANKS, UNTIMED, WAYS, Setting, Turn
from bert.core import cli, files, paths, ranges
from bert.core.config import ParallelConfig
from bert.core.errors import UsageError, UserError
from bert.core.ranges import BatchSize, Range
from bert.model import cost

SETTINGS = ("OMP_", "TF_NUM_", "HOROVOD_")  # variables that would change what is measured
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.slow_network`."""

    models: tuple[str, ...] = ("small", "base")
    """model sizes: tiny (2 layers x 128), small (6 x 384), base (12 x 768), large (24 x 1024)"""
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
    bucket_megabytes: tuple[Annotated[float, Range(0, 1e6)], ...] = (0.0,)
    """sizes of a bucket with overlap or a sharded optimizer; 0: the trainer's default"""
    communicator: Literal["horovod", "tensorflow"] = "horovod"
    """what sums the gradients, as --run.communicator"""
    xla: cli.Switch = False
    """compile the step with XLA"""
    updates: Annotated[int, Range(1, 10_000)] = 3
    """updates that are timed in a turn, after two that are not"""
    turns: Annotated[int, Range(1, 10_000)] = 3
    """turns of each way"""
    output: Path = dataclasses.field(default_factory=lambda: paths.workdir() / "slow_network")
    """output folder"""

    def __post_init__(self) -> None:
        ranges.check(self)
        for flag, existing in (("models", cases.MODELS), ("ways", WAYS)):
            if wrong := [name for name in getattr(self, flag) if name not in existing]:
                raise UsageError(f"--{flag} {wrong[0]}: one of {' '.join(existing)}")


def halves() -> tuple[str, str]:
    """Return the cores of each host, for taskset. Raise UsageError if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < RANKS:
        raise UsageError("two ranks need two cores; this process may use one")
    middle = len(cores) // 2
    first, second = (",".join(map(str, part)) for part in (cores[:middle], cores[middle : 2 * middle]))
    return first, second


class Trainer:
    """Runs bert.pretrain over one link."""

    def __init__(self, options: Options, joined: Link, model: str, accumulation: int, scratch: Path) -> None:
        """scratch: an empty folder."""
        self.options, self.joined, self.scratch = options, joined, scratch
        self.model, self.rows = cases.MODELS[model], options.sequences * accumulation  # of a rank and update
        data, updated = scratch / "data", UNTIMED + options.updates
        invented.write(data, RANKS * self.rows * updated, options.tokens, max(1, round(0.15 * options.tokens)))
        self.words = [sys.executable, "-m", "bert.pretrain", "bert_base_phase1", "--data.train", str(data)]
        self.words += [word for name in SIZES for word in (f"--model.{name}", str(getattr(self.model, name)))]
        self.words += ["--run.device", "cpu", "--run.steps", str(updated), "--run.log_every", "1"]
        self.words += ["--run.evaluate_every", "0", "--optimizer.name", "adamw", "--optimizer.warmup_steps", "0"]
        self.words += ["--run.communicator", options.communicator]
        self.words += ["--batch.per_device", str(options.sequences), "--precision.xla", str(options.xla).lower()]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
        self.environment = inherited | {"PATH": f"{joined.write_ssh()}:{inherited['PATH']}", "PYTHONPATH": str(ROOT)}

    def turn(self, way: str) -> Turn:
        """Train once in this way, or on each host ALONE; return the figures."""
        if way == ALONE:
            runs = [self.scratch / f"alone-{host}" for host in range(RANKS)]
            self._train([self.joined.command(host, self._command(run, 1)) for host, run in enumerate(runs)])
            turn = updates.slower(*(updates.read(run, self.rows) for run in runs))
        else:
            runs = [self.scratch / "together"]
            hosts = ",".join(f"{name}:1" for name in link.HOSTS)
            launcher = [str(ROOT / "scripts/launch.sh"), "-np", str(RANKS), "-H", hosts]
            launcher += ["--network-interfaces", link.DEVICE, "--", *self._command(runs[0], RANKS, way)]
            before = self.joined.sent()
            self._train([self.joined.command(0, launcher)])
            turn = updates.read(runs[0], RANKS * self.rows, self.joined.sent() - before)
        for run in runs:
            shutil.rmtree(run)
        return turn

    def cannot_hide(self, megabytes: float) -> float:
        """Return the share of the gradients that overlap with buckets of this size cannot hide."""
        return cost.exposed_share(self.model, ParallelConfig(overlap=True, bucket_megabytes=megabytes))

    def _command(self, run: Path, ranks: int, way: str = "summed") -> list[str]:
        way, megabytes = updates.of_name(way)
        overlap, compress, sharded = (str(setting).lower() for setting in WAYS[way])
        words = [*self.words, "--run.directory", str(run), "--batch.total", str(ranks * self.rows)]
        words += [
            "--parallel.overlap",
            overlap,
            "--precision.compress",
            compress,
            "--parallel.shard_optimizer",
            sharded,
        ]
        if megabytes:
            words += ["--parallel.bucket_megabytes", str(megabytes)]
        return words

    def _train(self, commands: Sequence[Sequence[str]]) -> None:
        """Run commands at the same time. Raise UserError if one fails."""
        log = self.scratch / "log.txt"
        with open(log, "wb") as stream:
            common: dict[str, Any] = {"cwd": ROOT, "env": self.environment, "stdout": stream, "stderr": stream}
            processes = [subprocess.Popen(words, **common) for words in commands]
            try:
                codes = [process.wait() for process in processes]
            finally:
                for process in processes:
                    process.terminate()
                    process.wait()
        if any(codes):
            output = [text for text in log.read_text(encoding="utf-8", errors="replace").splitlines() if text.strip()]
            errors = [text for text in output if "error: " in text]
            raise UserError(
                f"bert.pretrain ended with exit code {max(codes)}: {(errors or output or ['no output'])[-1]}"
            )


def measure(options: Options, joined: Link, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of all models and accumulations over one link."""
    for model in options.models:
        for accumulation in options.accumulation:
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                trainer = Trainer(options, joined, model, accumulation, Path(folder))
                sizes = options.bucket_megabytes
                ways = [updates.named(way, size) for way in options.ways for size in sizes]
                turns: dict[str, list[Turn]] = {way: [] for way in (ALONE, *ways)}
                for _ in range(options.turns):
                    for way, done in turns.items():
                        done.append(trainer.turn(way))
                        steps.tell(f"{model}, {accumulation} micro-batches, {way}: {done[-1].seconds[-1]:.2f} s")
                setting = Setting(
                    model,
                    cost.parameters(trainer.model),
                    joined.megabits,
                    joined.milliseconds,
                    options.sequences,
                    options.tokens,
                    accumulation,
                )
                yield from updates.rows(setting, turns, trainer.cannot_hide)


def run(options: Options) -> Path:
    """Measure over every link; write the figures as they come, and the table; return its path."""
    options.output.mkdir(parents=True, exist_ok=True)
    table, cores = updates.HEADER, halves()
    head = steps.about(options)  # type: ignore[arg-type]
    with (
        tempfile.TemporaryDirectory(dir=options.output.absolute(), prefix=".scratch-") as scratch,
        open(options.output / "updates.jsonl", "w", encoding="utf-8") as lines,
    ):
        print(json.dumps(head), file=lines, flush=True)
        for megabits in options.megabits:
            for milliseconds in options.milliseconds:
                with Link(megabits, milliseconds, cores) as joined:
                    for row in measure(options, joined, Path(scratch)):
                        print(json.dumps(row), file=lines, flush=True)
                        table += f"{updates.line(row)}\n"
    path = options.output / "updates.md"
    with files.atomic_write(path) as stream:
        cpu = f"{head['cpu']}, {len(os.sched_getaffinity(0))} cores, {head['date']}, {head['commit']}"
        stream.write(f"{cpu}\n\n{table}")
    return path


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.slow_network", description=__doc__)
    link.check()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the namespaces are removed
    print(run(options).read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    cli.main(main)
