"""Measure how cost grows with the input, fit exponents, and fail where one exceeds its bound.

    python -m benchmarks.growth [--curves report vocab] [--page docs/results/2026-11-growth.md]
    python -m benchmarks.growth --list

Each curve is a command of the project at three sizes, and at a base size whose cost is subtracted. What counts is
processor time (of all processes that the command waits for), memory of the largest process, and calls to the system.
The exponent is that of a line through the logarithms. Exit code 1: a curve is beyond a bound, or could not be measured;
one line for each says which and why. Figures are stored after each curve in `growth.json` in the output folder; with
--curves, those of other curves stay as they are.

`--small` tries all commands at sizes that are too small to judge; only commands that fail count then.
"""

import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from benchmarks.growth import child, page
from benchmarks.growth.child import ROOT, Failed
from benchmarks.growth.curves import CURVES, Curve
from bert.core import cli, files, ranges
from bert.core.errors import UsageError, UserError
from bert.core.ranges import Range

STORED = "growth.json"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.growth`."""

    curves: tuple[str, ...] = ()
    """names of the curves to measure; all by default"""
    output: Path = Path("workdir/growth")
    """folder for inputs, logs and figures"""
    page: Path | None = None
    """page to write; none: page.md in the output folder"""
    limit: Annotated[float, Range(1, 86_400)] = 240.0
    """seconds after which a command is ended, and its curve left out"""
    small: cli.Switch = False
    """small sizes, which are not judged"""
    list: cli.Switch = False
    """list the curves and their commands, and measure nothing"""
    note: str = ""
    """a sentence for the page, such as what else the machine did"""

    def __post_init__(self) -> None:
        ranges.check(self)


class Exceeded(UserError):
    """A curve is beyond a bound or has no figures."""

    exit_code = 1


def choose(names: Sequence[str]) -> list[Curve]:
    """Return the curves of these names, all if there are none. Raise UsageError for a wrong name."""
    existing = [curve.name for curve in CURVES]
    if wrong := [name for name in names if name not in existing]:
        raise UsageError(f"--curves {wrong[0]}: one of {' '.join(existing)}")
    return [curve for curve in CURVES if not names or curve.name in names]


def command(curve: Curve, size: int, source: str, output: str, python: str = sys.executable) -> list[str]:
    """Return the command of a curve at a size."""
    words = [word.format(size=size, input=source, output=output, python=python) for word in curve.words]
    return words if "/" in curve.words[0] else [python, "-m", *words]


def measure(curve: Curve, folder: Path, small: bool, limit: float) -> page.Result:
    """Run a curve at its sizes; return its figures, or why there are none."""
    sizes = curve.sizes.small if small else curve.sizes.full
    base = None if small else curve.sizes.base
    result: page.Result = {"sizes": {}, "base": {}, "why": ""}
    for size in ([] if base is None else [base]) + list(sizes):
        shutil.rmtree(folder, ignore_errors=True)
        source, output = folder / "input", folder / "output"
        output.mkdir(parents=True)
        source.mkdir()
        make = [sys.executable, "-m", "benchmarks.growth.inputs", curve.input, str(size), str(source)]
        try:
            child.run(make, folder / "input.log", limit)
        except Failed as error:
            result["why"] = f"the input of size {size:,}: {error}"
            return result
        try:
            figures = child.run(command(curve, size, str(source), str(output)), folder / "log.log", limit, curve.trace)
        except Failed as error:
            result["why"] = f"at {size:,}: {error}"
            return result
        if size == base:
            result["base"] = figures
        else:
            result["sizes"][str(size)] = figures
        line = ", ".join(f"{value:,.4g} {name}" for name, value in figures.items())
        print(f"{curve.name} at {size:,}: {line}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return result


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.growth", description=__doc__)
    chosen = choose(options.curves)
    if options.list:
        for curve in chosen:
            print(f"{curve.name:<19} {curve.what}; N = {', '.join(f'{size:,}' for size in curve.sizes.full)}")
            print(f"{'':<19} {' '.join(command(curve, curve.sizes.full[-1], 'INPUT', 'OUTPUT', 'python'))}")
        return
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that the running command is ended too
        signal.signal(number, signal.default_int_handler)
    output = options.output.absolute()
    with files.exclusive(output):
        stored: dict[str, Any] = files.read_json(output / STORED) if (output / STORED).exists() else {}
        if stored.get("small", options.small) != options.small:
            raise UsageError(
                f"{output}: has figures of {'small' * stored['small'] or 'full'} sizes; give another --output"
            )
        stored = {"small": options.small, "curves": stored.get("curves", {})}
        for curve in chosen:
            begun = time.monotonic()
            result = measure(curve, output / curve.name, options.small, options.limit)
            stored["curves"][curve.name] = result | {"took": round(time.monotonic() - begun, 1)}
            files.write_json(output / STORED, stored)
    place = options.page or output / "page.md"
    page.write(place, CURVES, stored["curves"], page.About(small=options.small, note=options.note))
    for line in page.order(CURVES, stored["curves"]):
        print(line)
    failed = list(page.failures(chosen, stored["curves"], judged=not options.small))
    for line in failed:
        print(f"exceeded: {line}", file=sys.stderr)
    if failed:
        raise Exceeded(f"{len(failed)} bounds of {len(chosen)} curves do not hold; figures are in {place}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    cli.main(main)
