"""Measure on one GPU, the most important first, and write the results page.

    python -m benchmarks.gpu_day prepare --output DIR          # data and the losses on a CPU; needs no GPU
    python -m benchmarks.gpu_day run --output DIR [--minutes 40]
    python -m benchmarks.gpu_day page --output DIR             # write the page again from stored results
    python -m benchmarks.gpu_day list

The list is a list of commands, each with a time limit. Results and page are written after each command, and the same
call continues after an interruption. Exit code 75: there is more to measure than --minutes were enough for; 4: losses
or weights are not the same as they should be; 0: nothing of the list is left. A command that fails is on the page with
its last line, one that needs a package which is not installed as skipped; neither is repeated unless its result is
removed from DIR/state.json. --rehearse runs everything on a CPU
with tiny models.
"""

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from benchmarks.contender import ROOT
from benchmarks.gpu_day import page, runner
from benchmarks.gpu_day.items import Day, Item
from benchmarks.gpu_day.runner import Runner, State
from bert.core import cli, files, ranges
from bert.core.errors import IntegrityError, Stopped, UsageError, UserError
from bert.core.ranges import Range
from bert.hardware import nvidia

EXPECTED = re.compile(r"memory per rank +([\d.,]+) GiB")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.gpu_day`."""

    command: cli.Positional[Literal["prepare", "run", "page", "list"]]
    """what to do, as above"""
    rehearse: cli.Switch = False
    """try all of it on a CPU, with tiny models"""
    output: Path = Path("workdir/gpu_day")
    """folder for state, logs and data"""
    minutes: Annotated[float, Range(0, 1e6, above=True)] = 40.0
    """time of this call"""
    only: tuple[str, ...] = ()
    """names of the items to run; all by default"""
    page: Path | None = None
    """the results page; by default docs/results/YEAR-MONTH-gpu-NAME.md, with --rehearse DIR/page.md"""

    def __post_init__(self) -> None:
        ranges.check(self)


def choose(options: Options, day: Day) -> list[Item]:
    """Return the requested items in their order."""
    items = day.items()
    names = [item.name for item in items]
    if wrong := [name for name in options.only if name not in names]:
        raise UsageError(f"--only {wrong[0]}: one of {' '.join(names)}")
    return [item for item in items if not options.only or item.name in options.only]


def load(options: Options, day: Day) -> State:
    """Load the state of the folder. Raise UsageError if one is a rehearsal and the other is not."""
    state = State.load(day.output)
    if state.rehearse not in (None, options.rehearse):
        kind = "a rehearsal" if state.rehearse else "a real day"
        raise UsageError(f"{day.output} has results of {kind}; give another --output")
    state.rehearse = options.rehearse
    return state


def place(options: Options, state: State) -> Path:
    """Return the path of the page."""
    if options.page:
        return options.page
    if options.rehearse or not state.gpu:
        return options.output / "page.md"
    name = state.gpu.split(",")[0].lower().removeprefix("nvidia ")
    short = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    return ROOT / "docs" / "results" / f"{time.strftime('%Y-%m')}-gpu-{short}.md"


def show(options: Options, day: Day, state: State) -> Path:
    """Write the page; return its path."""
    where, small = place(options, state), " --rehearse" if options.rehearse else ""
    page.write(choose(options, day), state, where, f"python -m benchmarks.gpu_day run{small}")
    return where


def plan(items: list[Item], state: State) -> None:
    """Note the memory that each run is expected to need. Raise UserError for a command that cannot run."""
    for item in items:
        if item.is_run and item.name not in state.planned:
            words = [sys.executable, "-m", *item.words, "--print", "1"]
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
            memory = EXPECTED.search(done.stdout)
            if done.returncode or not memory:
                raise UserError(f"{item.name} cannot run: {runner.reason(done.stderr.splitlines())}")
            state.planned[item.name] = memory[1]


def prepare(options: Options, day: Day) -> None:
    """Write the data, check the commands of all runs, and run the items that need no GPU."""
    state, chosen = load(options, day), choose(options, day)
    day.write_data()
    plan(chosen, state)
    ready = [item for item in chosen if item.prepared]
    for item in Runner(day.output, state, float("inf")).run(ready):
        if state.results[item.name]["status"] != "done":
            raise UserError(f"{item.name}: {state.results[item.name]['why']}; see {day.output / item.name}")
    state.save(day.output)


def run(options: Options, day: Day) -> None:
    """Run the items that have no result, and write the page after each."""
    state, chosen = load(options, day), choose(options, day)
    output = nvidia.nvidia_smi("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    state.gpu = output.strip().split("\n")[0] or state.gpu
    day.write_data()
    for _ in Runner(day.output, state, options.minutes * 60).run(chosen):
        show(options, day, state)
    left = [item.name for item in chosen if item.name not in state.results]
    ended = Counter(state.results[item.name]["status"] for item in chosen if item.name in state.results)
    others = "".join(f", {ended[kind]} {kind}" for kind in ("failed", "skipped") if ended[kind])
    print(f"{ended['done']} of {len(chosen)} measured{others}; {show(options, day, state)}")
    if left:
        raise Stopped(f"stopped: the time is over, {len(left)} are left, first {left[0]}; the same command continues")
    if different := [check for check in page.checks(chosen, state) if check.item.required and not check.equal]:
        names = " and ".join(f"{check.item.name} ({check.difference})" for check in different)
        raise IntegrityError(f"not the same as they should be: {names}; see the page")


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.gpu_day", description=__doc__)
    day = Day(options.output.absolute(), options.rehearse)
    if options.command == "list":
        for item in choose(options, day):
            print(f"{item.name:<22} {item.least / 60:>4.1f} min  {item.what}")
            print(f"{'':<10}{' '.join(['python', *runner.command(item)[3:]])}")
        return
    if options.command == "page":
        print(show(options, day, load(options, day)))
        return
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that the running command is ended too
        signal.signal(number, signal.default_int_handler)
    with files.exclusive(day.output):
        (prepare if options.command == "prepare" else run)(options, day)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    cli.main(main)
