"""Plot the training curves of one or several runs and print their final figures as a table.

    python -m bert.report workdir/pretrain/bert_mini_phase1 workdir/other/bert_mini_phase1 --output workdir/report

Each argument before the flags is a run directory of bert.pretrain or squad.train. Writes curves.png and report.json.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bert import charts, cli
from bert.errors import InputError
from bert.inputs import rules
from bert.storage import files, journal

LARGEST_PLOTTED = 1e30
IN_TABLE = ("fed_samples", "fed_different", "fed_least", "fed_most")  # of what a run was fed; report.json has the rest
Lines = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert.report`."""

    runs: cli.Positional[tuple[Path, ...]]
    """run directories"""
    output: Path
    """folder for curves.png and report.json"""


class Curve(NamedTuple):
    """One run to plot."""

    name: str
    lines: Lines  # of its metrics.jsonl
    begin: int = 0  # updates of the runs that it continues
    colour: str = charts.COLOURS[0]


def read_metrics(run: Path) -> Lines:
    """Return the lines of a run's metrics.jsonl, without damaged ones, which are reported on stderr.

    Raises InputError if there are none.
    """
    path = run / journal.NAME
    if not path.exists():
        raise InputError(f"{path}: no such file; give a run directory")
    lines, damaged = journal.read(path)
    if not lines:
        reason = f"all {damaged} lines are damaged" if damaged else "empty: no update was logged"
        raise InputError(f"{path}: {reason}; give another run")
    if damaged:
        print(f"warning: {path}: {damaged} damaged lines left out", file=sys.stderr)
    return lines


def figures(lines: Lines) -> dict[str, Any]:
    """Return a run's updates, median speed, last training loss and last evaluation, as far as they were logged."""
    training = [line for line in lines if line["split"] == "train"]
    held_out = [line for line in lines if line["split"] == "heldout"]
    speeds = sorted(filter(math.isfinite, (line.get("tokens_per_second", math.nan) for line in training)))
    final: dict[str, Any] = {"steps": max(line["step"] for line in training or held_out or lines)}
    if speeds:
        final["tokens_per_second"] = round(speeds[len(speeds) // 2])
    if training and "loss" in training[-1]:
        final["train_loss"] = training[-1]["loss"]
    if held_out:
        final |= {key: value for key, value in held_out[-1].items() if key not in ("step", "split", "loss")}
        if "loss" in held_out[-1]:
            final["heldout_loss"] = held_out[-1]["loss"]
    fed = [line for line in lines if line["split"] == "fed"]
    if fed:
        final |= {f"fed_{key}": value for key, value in fed[-1].items() if key not in ("step", "split")}
    return final


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Plot losses (training pale, held-out dark), held-out accuracy of the first objective, and speed over updates."""
    with charts.plots(path, 3, width=14) as (loss, accuracy, speed):
        for curve in curves:
            dark: dict[str, Any] = {"color": curve.colour, "marker": "o", "markersize": 3}
            loss.plot(*_series(curve, "train", "loss"), color=curve.colour, alpha=0.35)
            loss.plot(*_series(curve, "heldout", "loss"), **dark)
            label = charts.plain(_shown(curve.name))
            accuracy.plot(*_series(curve, "heldout", _accuracy(curve.lines)), **dark, label=label)
            speed.plot(*_series(curve, "train", "tokens_per_second"), color=curve.colour)
        for axes, title in (
            (loss, "Loss (training pale, held-out dark)"),
            (accuracy, "Held-out accuracy"),
            (speed, "Tokens per second"),
        ):
            axes.set(title=title, xlabel="update", xlim=(0, None))
            axes.set_ylim(bottom=0)
        accuracy.yaxis.set_major_formatter("{x:.0%}")
        accuracy.legend(frameon=False, fontsize=8)


def _accuracy(lines: Lines) -> str:
    return next((key for line in lines for key in line if key.endswith("_accuracy")), "accuracy")


def _series(curve: Curve, split: str, key: str) -> tuple[list[int], list[float]]:
    chosen = [line for line in curve.lines if line["split"] == split and key in line]
    values = [float(line[key]) for line in chosen]
    plotted = [value if abs(value) < LARGEST_PLOTTED else math.nan for value in values]  # a gap in the curve
    return [curve.begin + line["step"] for line in chosen], plotted


def _shown(name: str) -> str:
    """Return a name without what no terminal and no font can show."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return figures with those that are not finite as words, because JSON has no such numbers."""
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
    lines = [read_metrics(run) for run in options.runs]
    for run in options.runs:
        if rules.of(run) < rules.RULES:
            print(f"note: {run} {rules.OLD}", file=sys.stderr)
    options.output.mkdir(parents=True, exist_ok=True)
    rows = {name: figures(metrics) for name, metrics in zip(names, lines, strict=True)}
    curves = [
        Curve(name, metrics, colour=charts.COLOURS[number % len(charts.COLOURS)])
        for number, (name, metrics) in enumerate(zip(names, lines, strict=True))
    ]
    draw(curves, options.output / "curves.png")
    files.write_json(options.output / "report.json", {name: as_json(row) for name, row in rows.items()})
    print(f"{table(rows)}\n\ncurves     {options.output / 'curves.png'}")


if __name__ == "__main__":
    cli.main(main)
