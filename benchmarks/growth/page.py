"""What was found: exponents in order, the bounds that do not hold, and the page."""

import os
import platform
import subprocess
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.growth.child import ROOT
from benchmarks.growth.curves import Curve
from benchmarks.growth.fit import FLOORS, UNITS, Bound, broken, fit
from bert.core import files, outputs

Result = dict[str, Any]
Results = Mapping[str, Result]
INTRODUCTION = (
    "Each curve is a command of this project at three sizes N. Seconds are processor seconds, user and system, of all "
    "processes of the command; MB are the most resident memory of its largest process; calls are calls to the system. "
    "The cost at the base size is subtracted, then the exponent is fitted to the logarithms by least squares: 1 is "
    'linear, 2 quadratic. A growth of less than {floors} is noise, and a curve without more is flat. "For each" is the '
    "growth at the largest size, divided by it."
)


@dataclass(frozen=True)
class About:
    """What the page says beside the figures."""

    small: bool
    note: str = ""


def values(result: Result, bound: Bound) -> tuple[dict[int, float], float]:
    """Return a measure at each size, and at the base size."""
    at = {int(size): figures[bound.measure] for size, figures in result["sizes"].items()}
    return dict(sorted(at.items())), result["base"].get(bound.measure, 0.0)


def failures(curves: Sequence[Curve], results: Results, judged: bool = True) -> Iterator[str]:
    """Yield a line for each bound that does not hold, and for each curve without figures. judged: also bounds."""
    for curve in curves:
        result = results.get(curve.name)
        if result is None or result["why"]:
            yield f"{curve.name}: not measured: {result['why'] if result else 'not reached'}"
            continue
        for bound in curve.bounds if judged else ():
            for failure in broken(bound, *values(result, bound)):
                yield f"{curve.name}: {failure}"


def order(curves: Sequence[Curve], results: Results) -> Iterator[str]:
    """Yield a line for each measure of each curve, the largest exponent first."""
    lines = []
    for curve in curves:
        result = results.get(curve.name)
        if result and not result["why"]:
            for bound in curve.bounds:
                one = fit(*values(result, bound), FLOORS[bound.measure])
                lines.append((one.exponent, f"{one.text():>7}  {bound.measure:<12} {curve.name}: {curve.what}"))
    yield from (line for _, line in sorted(lines, key=lambda pair: -pair[0]))


def write(path: Path, curves: Sequence[Curve], results: Results, about: About) -> None:
    """Write the page."""
    floors = ", ".join(f"{floor:g} {UNITS[name]}" for name, floor in FLOORS.items() if floor)
    machine = (
        f"{time.strftime('%B %Y')}, {len(os.sched_getaffinity(0))} cores, {platform.machine()}, commit {_commit()}, "
        f"{', '.join(f'{name} {number}' for name, number in outputs.versions().items())}. {about.note}"
    )
    parts = [
        "# What grows, and how fast",
        "```\npython -m benchmarks.growth --page docs/results/2026-11-growth.md\n```",
        _fill(machine.strip()),
        _fill("Sizes too small to judge: no figure here says anything." if about.small else ""),
        _fill(INTRODUCTION.format(floors=floors)),
        "\n".join(_table(curves, results)),
    ]
    if exceeded := list(failures(curves, results, judged=not about.small)):
        parts += ["## Beyond their bounds, or not measured", "\n".join(_item(line) for line in exceeded)]
    parts += ["## Commands", "\n".join(_commands(curves))]
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic_write(path) as stream:
        stream.write("\n\n".join(part for part in parts if part) + "\n")


def _table(curves: Sequence[Curve], results: Results) -> Iterator[str]:
    yield "| curve | N | measure | base | at each N | exponent | bound | for each | other bounds |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for curve in curves:
        result = results.get(curve.name)
        if result is None or not result["sizes"]:
            yield f"| {curve.name} | | not measured, see below | | | | | | |"
            continue
        for bound in curve.bounds:
            at, base = values(result, bound)
            fitted, last = fit(at, base, FLOORS[bound.measure]), max(at)
            exponent = f"{fitted.text()}, not at all N" if result["why"] else fitted.text()
            unit = UNITS[bound.measure]
            wrong = "**" if fitted.exponent > bound.exponent else ""
            cells = (
                curve.name,
                " / ".join(f"{size:,}" for size in at),
                unit,
                f"{base:.4g}" if curve.sizes.base is not None else "none",
                " / ".join(f"{value:.4g}" for value in at.values()),
                f"{wrong}{exponent}{wrong}",
                f"{bound.exponent:g}",
                f"{(at[last] - base) / last:.3g}" if fitted.above else "",
                "; ".join(_others(bound, min(at), last)),
            )
            yield f"| {' | '.join(cells)} |"


def _others(bound: Bound, first: int, last: int) -> Iterator[str]:
    if bound.each is not None:
        yield f"{bound.each:g} for each"
    for size, most in ((first, bound.first), (last, bound.most)):
        if most is not None:
            yield f"{most:g} at {size:,}"


def _commands(curves: Sequence[Curve]) -> Iterator[str]:
    for curve in curves:
        words = " ".join(curve.words).replace("{python}", "python").replace("{size}", "N")
        words = words.replace("{input}", "INPUT").replace("{output}", "OUTPUT")
        module = "" if "/" in curve.words[0] else "python -m "
        yield _item(f"{curve.name}: {curve.what}; input by `{curve.input}`. `{module}{words}`")


def _fill(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> str:
    return textwrap.fill(text, 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _commit() -> str:
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(git, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
