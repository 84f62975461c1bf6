"""Plot the training curves of one or several runs and print their final figures as a table.

    python -m bert.report RUN...
    python -m bert.report workdir/pretrain/bert_mini_phase1 workdir/other/bert_mini_phase1 --output workdir/report

Each argument before the flags is a run directory of bert.pretrain, tasks.train or squad.train. Writes curves.png and
report.json.
"""

import array
import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bert.core import charts, cli, ending, files, journal, paths
from bert.core.errors import InputError

LARGEST_PLOTTED = 1e30
GROUPS = 2048  # of a curve's points; a plot is about 500 pixels wide
OPEN_POINTS = 64  # held of a group that is not complete
IN_TABLE = ("fed_samples", "fed_different", "fed_least", "fed_most")  # of what a run was fed; report.json has the rest
SPLITS = ("train", "heldout", "fed")  # other lines count only for the number of updates
Point = tuple[int, float]  # update, value


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert.report`."""

    runs: cli.Positional[tuple[Path, ...]]
    """run directories"""
    output: Path | None = None
    """folder for curves.png and report.json; default: report in the work folder"""


class Curve:
    """A curve of any number of points, in bounded memory: it keeps at most 4 `GROUPS` + `OPEN_POINTS` points.

    Neighbouring points form groups of equal size. Of each group the first, lowest, highest and last point are kept. The
    drawn line does not change if no pixel is narrower than a group (M4; Jugel et al., 2014,
    doi:10.14778/2732951.2732953).
    """

    def __init__(self) -> None:
        self._groups: list[list[Point]] = []
        self._size = 1  # points of a group
        self._open: list[Point] = []  # of the group that is not complete
        self._seen = 0  # points of it

    def add(self, step: int, value: float) -> None:
        """Append a point. A point that is not finite, or too large to plot, makes a gap in the curve."""
        self._open.append((step, value if abs(value) < LARGEST_PLOTTED else math.nan))
        self._seen += 1
        if self._seen == self._size:
            self._groups.append(_extremes(self._open))
            self._open, self._seen = [], 0
            if len(self._groups) == GROUPS:
                pairs = zip(self._groups[::2], self._groups[1::2], strict=True)
                self._groups = [_extremes(first + second) for first, second in pairs]
                self._size *= 2
        elif len(self._open) == OPEN_POINTS:
            self._open = _extremes(self._open)

    def points(self) -> list[Point]:
        """Return the kept points in the order in which they were added."""
        return [*itertools.chain.from_iterable(self._groups), *self._open]


def _extremes(points: list[Point]) -> list[Point]:
    if len(points) < 3:
        return points
    numbers = [number for number, (_, value) in enumerate(points) if not math.isnan(value)] or [0]
    lowest, highest = (choose(numbers, key=lambda number: points[number][1]) for choose in (min, max))
    return [points[number] for number in sorted({0, lowest, highest, len(points) - 1})]


class Metrics:
    """What a report says about a run. Lines are added one by one. Memory: 8 bytes for each line of training."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}  # the largest of each split
        self.last: dict[str, dict[str, Any]] = {}  # the last line of each split
        self.last_step = 0
        self.loss, self.heldout_loss, self.accuracy, self.speed = Curve(), Curve(), Curve(), Curve()
        self._speeds = array.array("d")
        self._accuracy = ""  # the first objective's key, or "accuracy", once a line has one

    def add(self, line: dict[str, Any]) -> None:
        """Add the next line."""
        step, split = line["step"], line["split"]
        shown_split = split if split in SPLITS else "other"
        self.steps[shown_split] = max(step, self.steps.get(shown_split, 0))
        self.last[shown_split] = line
        self.last_step = step
        self._accuracy = self._accuracy or next((key for key in line if key.endswith("accuracy")), "")
        if split == "train":
            _add(self.loss, line, "loss")
            _add(self.speed, line, "tokens_per_second")
            if math.isfinite(speed := line.get("tokens_per_second", math.nan)):
                self._speeds.append(speed)
        elif split == "heldout":
            _add(self.heldout_loss, line, "loss")
            _add(self.accuracy, line, self._accuracy)

    def figures(self) -> dict[str, Any]:
        """Return a run's updates, median speed, last training loss and last evaluation, if they were logged."""
        train, heldout, fed = (self.last.get(split, {}) for split in SPLITS)
        steps = next((self.steps[split] for split in ("train", "heldout") if split in self.steps), None)
        final: dict[str, Any] = {"steps": max(self.steps.values()) if steps is None else steps}
        if self._speeds:
            final["tokens_per_second"] = round(sorted(self._speeds)[len(self._speeds) // 2])
        if "loss" in train:
            final["train_loss"] = train["loss"]
        final |= {key: value for key, value in heldout.items() if key not in ("step", "split", "loss")}
        if "loss" in heldout:
            final["heldout_loss"] = heldout["loss"]
        return final | {f"fed_{key}": value for key, value in fed.items() if key not in ("step", "split")}


def _add(curve: Curve, line: dict[str, Any], key: str) -> None:
    if key in line:
        curve.add(line["step"], float(line[key]))


class Plotted(NamedTuple):
    """A run to plot."""

    name: str
    metrics: Metrics
    begin: int = 0  # updates of the runs that it continues
    colour: str = charts.COLOURS[0]


def read_metrics(run: Path) -> Metrics:
    """Return the metrics in a run's metrics.jsonl. Skip damaged lines and report their number on stderr.

    Raise InputError if there are no other lines.
    """
    path = run / journal.NAME
    if not path.exists():
        raise InputError(f"{path}: no such file; give a run directory")
    metrics, damaged = Metrics(), 0
    for line in journal.lines(path):
        if line is None:
            damaged += 1
        else:
            metrics.add(line)
    if not metrics.steps:
        reason = f"all {damaged} lines are damaged" if damaged else "empty: no update was logged"
        raise InputError(f"{path}: {reason}; give another run")
    if damaged:
        print(f"warning: {path}: {damaged} damaged lines left out", file=sys.stderr)
    return metrics


def draw(runs: Sequence[Plotted], path: Path) -> None:
    """Plot loss (training pale, held-out dark), held-out accuracy of the first objective, and speed by update."""
    with charts.plots(path, 3, width=14) as (loss, accuracy, speed):
        for run in runs:
            dark: dict[str, Any] = {"color": run.colour, "marker": "o", "markersize": 3}
            loss.plot(*_series(run.metrics.loss, run.begin), color=run.colour, alpha=0.35)
            loss.plot(*_series(run.metrics.heldout_loss, run.begin), **dark)
            accuracy.plot(*_series(run.metrics.accuracy, run.begin), **dark, label=charts.plain(_shown(run.name)))
            speed.plot(*_series(run.metrics.speed, run.begin), color=run.colour)
        for axes, title in (
            (loss, "Loss (training pale, held-out dark)"),
            (accuracy, "Held-out accuracy in percent"),
            (speed, "Tokens per second"),
        ):
            axes.set(title=title, xlabel="update", xlim=(0, None))
            axes.set_ylim(bottom=0)
        accuracy.yaxis.set_major_formatter("{x:.0f}")
        accuracy.legend(frameon=False, fontsize=8)


def _series(curve: Curve, begin: int) -> tuple[list[int], list[float]]:
    points = curve.points()
    return [begin + step for step, _ in points], [value for _, value in points]


def _shown(name: str) -> str:
    """Return a name in which characters that cannot be printed are replaced."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return figures for JSON: numbers that are not finite become words, because JSON has no such numbers."""
    is_word = {key: isinstance(value, float) and not math.isfinite(value) for key, value in row.items()}
    return {key: str(value) if is_word[key] else value for key, value in row.items()}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the figures as text, one row per run."""
    rows = {
        _shown(name): {_shown(key): value for key, value in row.items() if key in IN_TABLE or key[:4] != "fed_"}
        for name, row in rows.items()
    }
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    width = max(map(len, rows)) + 2
    lines = [f"{'':<{width}}" + "".join(f"{key:>{len(key) + 2}}" for key in keys)]
    for name, row in rows.items():
        cells = (f"{row.get(key, ''):>{len(key) + 2}.6g}" if key in row else " " * (len(key) + 2) for key in keys)
        lines.append(f"{name:<{width}}" + "".join(cells))
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.report", description=__doc__)
    names = [str(run) for run in options.runs]
    metrics = [read_metrics(run) for run in options.runs]
    output = options.output or paths.workdir() / "report"
    output.mkdir(parents=True, exist_ok=True)
    rows = {name: of_run.figures() for name, of_run in zip(names, metrics, strict=True)}
    plotted = [
        Plotted(name, of_run, colour=charts.COLOURS[number % len(charts.COLOURS)])
        for number, (name, of_run) in enumerate(zip(names, metrics, strict=True))
    ]
    draw(plotted, output / "curves.png")
    files.write_json(output / "report.json", {name: as_json(row) for name, row in rows.items()})
    print(f"{table(rows)}\n\ncurves     {output / 'curves.png'}", flush=True)
    ending.print_next_command(output)


if __name__ == "__main__":
    cli.main(main)
