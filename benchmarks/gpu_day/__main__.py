"""Run all measurements on one GPU, the most important first, and write the results page.

    python -m benchmarks.gpu_day prepare --output DIR          # data and the losses on a CPU; needs no GPU
    python -m benchmarks.gpu_day run --output DIR [--budget_minutes 40] [--session_minutes 9]
    python -m benchmarks.gpu_day page --output DIR             # write the page again from stored results
    python -m benchmarks.gpu_day list

Each measurement is a process with a time limit, and its result is stored at once. The same command continues after an
interruption. Exit code 75: there is more to measure and time left in the budget; 0: there is not. A failed measurement
is reported with its last line and not repeated, unless DIR/state.json is edited. --smoke runs everything on a CPU with
tiny models.
"""

import dataclasses
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from benchmarks.contender import ROOT
from benchmarks.gpu_day import inputs, measurements, page, runner
from benchmarks.gpu_day.measurements import Measurement
from benchmarks.gpu_day.runner import Day, Interrupted, State
from bert import cli, ranges
from bert.errors import Stopped, UsageError, UserError
from bert.ranges import Range
from bert.storage import files


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.gpu_day`."""

    command: cli.Positional[Literal["prepare", "run", "page", "list"]]
    """what to do, as above"""
    smoke: cli.Switch = False
    """try all of it on a CPU, with tiny models"""
    output: Path = Path("workdir/gpu_day")
    """folder for state, results, logs and data"""
    budget_minutes: Annotated[float, Range(0, 1e6, above=True)] = 40.0
    """total time for measurements, over all sessions"""
    session_minutes: Annotated[float, Range(0, 1e6)] = 0.0
    """time for this session; 0: the whole budget"""
    only: tuple[str, ...] = ()
    """names of the measurements to run; all by default"""
    page: Path | None = None
    """the results page; by default docs/results/YEAR-MONTH-gpu-NAME.md, with --smoke DIR/page.md"""

    def __post_init__(self) -> None:
        ranges.check(self)


def choose(options: Options, scale: str) -> list[Measurement]:
    """Return the requested measurements in their order."""
    known = measurements.order({"full": measurements.FULL, "smoke": measurements.SMOKE}[scale])
    names = [one.name for one in known]
    if wrong := [name for name in options.only if name not in names]:
        raise UsageError(f"--only {wrong[0]}: one of {' '.join(names)}")
    return [one for one in known if not options.only or one.name in options.only]


def place(options: Options, state: State) -> Path:
    """Return the path of the page."""
    if options.page:
        return options.page
    gpu = state.results.get("devices", {}).get("found", {}).get("gpu", "")
    if state.scale == "smoke" or not gpu:
        return options.output / "page.md"
    short = re.sub(r"[^a-z0-9]+", "-", gpu.lower().removeprefix("nvidia ")).strip("-")
    return ROOT / "docs" / "results" / f"{time.strftime('%Y-%m')}-gpu-{short}.md"


def load(options: Options, scale: str) -> State:
    """Load the state of the folder. Raises UsageError if it was measured with the other scale."""
    state = State.load(options.output)
    if state.scale not in ("", scale):
        raise UsageError(f"{options.output} has results of scale {state.scale}; give another --output")
    state.scale = scale
    return state


def show(options: Options, state: State, chosen: list[Measurement]) -> Path:
    """Write the page; return its path."""
    where, small = place(options, state), " --smoke" if state.scale == "smoke" else ""
    budget = f"--budget_minutes {options.budget_minutes:g}"
    page.write(chosen, state, where, f"python -m benchmarks.gpu_day run {budget}{small}")
    return where


def sit(options: Options, scale: str, prepared: bool) -> None:
    """Run the missing measurements and write the page. prepared: only those that need no GPU."""
    state = load(options, scale)
    chosen = [one for one in choose(options, scale) if one.prepared or not prepared]
    session = options.session_minutes * 60 or float("inf")
    budget = float("inf") if prepared else options.budget_minutes * 60
    day = Day(chosen, options.output, runner.command(options.output, scale), budget, session)
    spent = state.spent
    try:
        with runner.stoppable():
            left_out = day.run(state)
    except Interrupted as error:
        raise Stopped(f"stopped by {error}; run the same command to continue") from error
    finally:
        if prepared:
            state.spent = spent  # the budget is the GPU's
            state.save(options.output)
    if prepared:
        failed = [result["why"] for result in state.results.values() if result["status"] == "failed"]
        if failed:
            raise UserError(f"preparing failed: {failed[0]}; see {options.output}/logs")
        return
    where = show(options, state, chosen)
    done = sum(one.name in state.results for one in chosen)
    print(f"{done} of {len(chosen)} measured in {state.spent / 60:.1f} minutes; {where}")
    if left_out and state.spent + min(one.least for one in chosen if one.name in left_out) <= budget:
        raise Stopped(f"this session is over, {len(left_out)} measurements are left; run the same command to continue")
    if left_out:
        print(
            f"the budget is spent; give --budget_minutes {options.budget_minutes * 2:g} to continue with {left_out[0]}"
        )


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.gpu_day", description=__doc__)
    name, scale = options.command, "smoke" if options.smoke else "full"
    options = dataclasses.replace(options, output=options.output.absolute())
    if name == "list":
        print(*(f"{one.name:<22} {one.least / 60:>4.1f} min  {one.what}" for one in choose(options, scale)), sep="\n")
        return
    if name == "page":
        print(show(options, load(options, scale), choose(options, scale)))
        return
    with files.exclusive(options.output):
        if name == "prepare":
            inputs.records_folder(options.output / "data")
        sit(options, scale, prepared=name == "prepare")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    cli.main(main)
