"""Compare the speed of training steps and inference with other implementations, on a CPU or a GPU.

    make bench                        # installs the peers first; or, with another environment for them:
    python -m benchmarks.steps --peer_python PYTHON [--models small base] [--work pretrain] [--compute float32] ...

All contenders have the same weights, batches, data types and number of threads. Each is a process in its own
environment (benchmarks/adapter.py). First all must compute the same in float32 without dropout: the losses of three
updates, or the logits of every token. Then they run in turns, laps over the batches, one contender at a time; laps for
compilation and warm-up are not counted.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from benchmarks import cases, report
from benchmarks.cases import Case
from benchmarks.contender import ROOT, Contender, environment
from bert.core import cli, files, paths, ranges
from bert.core.errors import IntegrityError, UsageError
from bert.core.ranges import Range

TOLERANCE = {"pretrain": 1e-4, "finetune": 1e-4, "infer": 1e-3}  # relative, of losses; absolute, of logits
WARMUP_LAPS = 2  # a second batch length makes torch.compile start again
MAX_LAPS = 50  # per turn
PEERS = ("eager", "compile", "gathered", "gathered_compile", "padded")
UNSUPPORTED = {  # kinds of work and cases that a peer does not take part in
    "gathered": {"finetune", "infer"},
    "gathered_compile": {"finetune", "infer"},
    "padded": {"pretrain", "finetune_384", "infer_1", "infer_8"},  # the same as eager there
}

Commands = dict[str, list[str]]
Answers = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.steps`."""

    models: tuple[str, ...] = ("small",)
    """model sizes: tiny (2 layers x 128), small (6 x 384), base (12 x 768), large (24 x 1024)"""
    work: tuple[str, ...] = ("pretrain_128", "finetune_lengths", "infer_1", "infer_lengths")
    """names of cases in benchmarks/cases.py, or all cases of a kind: pretrain, finetune, infer"""
    compute: tuple[str, ...] = ("float32", "bfloat16")
    """data types of the matrix products: float32, bfloat16"""
    peers: tuple[str, ...] = ("eager", "compile")
    """ways to run transformers on PyTorch: eager, compile, gathered, gathered_compile, padded"""
    alone: cli.Switch = False
    """time ours only, without peers and without the comparison with them"""
    device: Literal["cpu", "gpu"] = "cpu"
    """device of all contenders; the memory in the table is then that of the GPU"""
    sequences: Annotated[int, Range(0, 65_536)] = 0
    """sequences in a step; 0: those of each case"""
    repeats: Annotated[int, Range(1, 10**9)] = 3
    """turns per contender"""
    seconds: Annotated[float, Range(0, 1e6)] = 2.0
    """approximate minimum length of a turn, in seconds; at least one lap"""
    threads: Annotated[int, Range(1, 1024)] = len(os.sched_getaffinity(0))
    """threads per contender"""
    peer_python: Path = ROOT / ".venv-parity/bin/python"
    """interpreter with transformers and PyTorch"""
    output: Path = dataclasses.field(default_factory=lambda: paths.workdir() / "bench")
    """output folder for the table, steps.md, and the figures, steps.jsonl"""

    def __post_init__(self) -> None:
        ranges.check(self)
        kinds = {case.work for case in cases.CASES} | {case.name for case in cases.CASES}
        choices = {"models": set(cases.MODELS), "work": kinds, "compute": {"float32", "bfloat16"}, "peers": set(PEERS)}
        for flag, names in choices.items():
            if wrong := [name for name in getattr(self, flag) if name not in names]:
                raise UsageError(f"--{flag} {wrong[0]}: one of {' '.join(sorted(names))}")


def commands(options: Options) -> Commands:
    """Return the command of each contender; ours is the first."""
    python, peers = options.peer_python, () if options.alone else options.peers
    if peers and not python.exists():
        raise UsageError(f"{python}: no such interpreter; `make bench` makes it")
    started = {"ours": [sys.executable, "-m", "benchmarks.ours_step", options.device]}
    for peer in peers:
        started[peer] = [str(python.absolute()), "-m", "benchmarks.peers.transformers_torch", peer, options.device]
    return started


class Bench:
    """Starts contenders, prepares their inputs, compares and times them."""

    def __init__(self, options: Options, commands: Commands, scratch: Path) -> None:
        self.options, self.commands, self.scratch = options, commands, scratch
        self.environment = environment(options.threads, options.output / "inductor", options.device == "gpu")

    def start(self, name: str) -> Contender:
        """Start a contender; its messages go to NAME.log in the output folder."""
        return Contender(name, self.commands[name], self.environment, self.options.output / f"{name}.log")

    def names(self, *needs: str) -> list[str]:
        """Return the contenders that support this work, case and data type."""
        return [name for name in self.commands if UNSUPPORTED.get(name, set()).isdisjoint(needs)]

    def prepare(self, model: str, work: str, chosen: Iterable[Case]) -> Path:
        """Write weights in all formats, and the batches of each case; return their folder."""
        folder = self.scratch / f"{model}-{work}"
        folder.mkdir()
        tell(f"{model} {work}: writing the weights")
        with self.start("ours") as ours:
            ours.ask("export", model=dataclasses.asdict(cases.MODELS[model]), work=work, weights=str(folder))
        for case in chosen:
            cases.save(case, folder / f"{case.name}.npz")
        return folder

    def setup(self, contender: Contender, folder: Path, case: Case, compute: str, dropout: float) -> dict[str, Any]:
        """Tell a contender its work."""
        inputs = str(folder / f"{case.name}.npz")
        return contender.ask(
            "setup", work=case.work, weights=str(folder), inputs=inputs, compute=compute, dropout=dropout
        )

    def check(self, folder: Path, case: Case) -> float:
        """Return the largest difference from ours: relative for losses, absolute for logits.

        Raises IntegrityError if it is above TOLERANCE: the contenders do not compute the same.
        """
        values_by_name: dict[str, np.ndarray] = {}
        for name in self.names(case.work):
            tell(f"{folder.name}: {name} computes {case.name} in float32 without dropout")
            with self.start(name) as contender:
                self.setup(contender, folder, case, "float32", dropout=0.0)
                values_by_name[name] = np.array(contender.ask("values")["values"])
        worst = 0.0
        for name, values in values_by_name.items():
            apart = difference(values_by_name["ours"], values, relative=case.work != "infer")
            if not apart <= TOLERANCE[case.work]:
                what = "losses differ, relatively," if case.work != "infer" else "logits differ"
                raise IntegrityError(
                    f"{folder.name}, {case.name}: the {what} by {apart:.2g} between ours and {name}, more than "
                    f"{TOLERANCE[case.work]:g}: they do not compute the same, so nothing was timed"
                )
            worst = max(worst, apart)
        return worst

    def time(self, folder: Path, case: Case, compute: str) -> Answers:
        """Return for each contender the seconds of all `laps`, the mean `seconds` per turn, and its own report."""
        options, answers = self.options, Answers()
        with contextlib.ExitStack() as stack:
            names = self.names(case.work, case.name, compute)
            running = {name: stack.enter_context(self.start(name)) for name in names}
            slowest = 0.0
            for name, contender in running.items():
                answers[name] = self.setup(contender, folder, case, compute, dropout=0.1) | {"seconds": [], "laps": []}
                laps = [contender.ask("lap", laps=1)["seconds"][0] for _ in range(WARMUP_LAPS)]
                answers[name]["first_lap"], slowest = laps[0], max(slowest, laps[-1])
                tell(f"{folder.name}: {case.name} {compute} {name}: first lap {laps[0]:.2f} s, then {laps[-1]:.2f} s")
            together = max(1, min(MAX_LAPS, round(options.seconds / slowest)))
            for _, (name, contender) in itertools.product(range(options.repeats), running.items()):
                answer = contender.ask("lap", laps=together)
                answers[name]["laps"] += answer["seconds"]
                answers[name]["seconds"].append(statistics.mean(answer["seconds"]))
                answers[name]["peak_mb"] = answer["peak_mb"]
            for name, contender in running.items():  # last, since its memory must not count for the step
                answers[name]["peak_flops"] = contender.ask("peak")["flops"]
        return answers


def difference(ours: np.ndarray, theirs: np.ndarray, relative: bool) -> float:
    """Return the largest difference; nan or infinity if shapes differ or values are not finite."""
    if ours.shape != theirs.shape or ours.size == 0:
        return float("inf")
    apart = np.abs(ours - theirs)
    return float(np.max(apart / np.abs(ours) if relative else apart))


def rows(options: Options, bench: Bench) -> Iterator[dict[str, Any]]:
    """Yield a row for each contender in each case, as soon as it is measured."""
    all_cases = [dataclasses.replace(case, batch=options.sequences or case.batch) for case in cases.CASES]
    chosen = [case for case in all_cases if {case.work, case.name} & set(options.work)]
    for model, work in itertools.product(options.models, dict.fromkeys(case.work for case in chosen)):
        of_work = [case for case in chosen if case.work == work]
        checked = next(case for case in all_cases if case.name == cases.CHECKED[work])
        folder = bench.prepare(model, work, {checked, *of_work})
        apart = None if options.alone else bench.check(folder, checked)
        for case, compute in itertools.product(of_work, options.compute):
            answers = bench.time(folder, case, compute)
            setting = {"model": model, "case": case.name, "batch": case.batch, "compute": compute, "apart": apart}
            yield from (setting | row for row in report.rows(cases.MODELS[model], case, answers))
        shutil.rmtree(folder)  # gigabytes, of larger models


def commit() -> str:
    """Return the commit of the code, marked as dirty if files other than results have changed."""
    if not (ROOT / ".git").exists():  # a folder around ours may have one
        return "unknown"
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    if head.returncode:  # not a repository of this user's, say
        return "unknown"
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ".", ":!benchmarks/results"]).returncode
    return head.stdout.strip() + ("-dirty" if changed else "")


def cpu() -> str:
    """Return the name of this machine's CPU."""
    cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    return next((line.split(": ", 1)[1] for line in cpus.splitlines() if line.startswith("model name")), "unknown")


def about(options: Options) -> dict[str, Any]:
    """Return machine, commit and flags without paths: the first line of steps.jsonl."""
    flags = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    plain = {name: value for name, value in flags.items() if value is not None and not isinstance(value, Path)}
    return {"commit": commit(), "cpu": cpu(), "date": time.strftime("%Y-%m-%d"), "options": plain}


def tell(what: str) -> None:
    """Print progress to standard error."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def run(options: Options, commands: Commands) -> list[dict[str, Any]]:
    """Measures, and writes steps.jsonl row by row, steps.md at the end; returns the rows."""
    options.output.mkdir(parents=True, exist_ok=True)
    head, measured = about(options), []
    with (
        tempfile.TemporaryDirectory(dir=options.output, prefix=".scratch-") as scratch,
        open(options.output / "steps.jsonl", "w", encoding="utf-8") as lines,
    ):
        print(json.dumps(head), file=lines, flush=True)
        for row in rows(options, Bench(options, commands, Path(scratch).absolute())):
            measured.append(row)
            print(json.dumps(row), file=lines, flush=True)
            tell(report.line(row))
    with files.atomic_write(options.output / "steps.md") as stream:
        stream.write(report.table(head, measured))
    return measured


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m benchmarks.steps", description=__doc__)
    run(options, commands(options))
    print((options.output / "steps.md").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    cli.main(main)
