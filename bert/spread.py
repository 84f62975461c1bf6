"""Compute mean and standard deviation of the scores of several runs, as one line of JSON.

    python -m bert.spread SCORES.json... [--picture spread.png]

Each file has the line that squad.metric or tasks.evaluate printed for one run. The deviation is that of a sample
(divided by n - 1); it is 0 for one run. The lowest and the highest value are given too, because a few seeds of a small
data set may fail to learn. The picture has a point for each run.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.core import charts, cli, files
from bert.core.charts import COLOURS
from bert.core.errors import InputError

LARGEST = 1e15  # score, threshold or number of questions; also false for NaN
WIDTH = 1.6  # inches of a score in the picture


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.spread`."""

    scores: cli.Positional[tuple[Path, ...]]
    """files with the line that squad.metric or tasks.evaluate prints"""
    picture: Path | None = None
    """PNG file with the scores of all runs"""


def values(scores: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Return the values of each score that all runs have, without the numbers of questions or examples."""
    counts = [key for key in scores[0] if key in ("total", "examples") or key.endswith(("_total", "_examples"))]
    common = [key for key in scores[0] if all(key in score for score in scores) and key not in counts]
    return {key: [score[key] for score in scores] for key in common}


def spread(scores: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return mean, deviation, lowest and highest value of the scores that all runs have."""
    summary: dict[str, Any] = {"runs": len(scores)}
    for key, of_score in values(scores).items():
        deviation = statistics.stdev(of_score) if len(of_score) > 1 else 0.0
        ends = {"lowest": min(of_score), "highest": max(of_score)}
        summary[key] = {"mean": statistics.fmean(of_score), "deviation": deviation} | ends
    return summary


def draw(scores: Sequence[dict[str, float]], path: Path) -> None:
    """Draw a point for each run and score, with the mean and one deviation to either side of it."""
    shown, summary = values(scores), spread(scores)
    with charts.plots(path, len(shown), width=1 + WIDTH * len(shown)) as row:
        for axes, (key, of_score) in zip(row, shown.items(), strict=True):
            mean, deviation = summary[key]["mean"], summary[key]["deviation"]
            places = [
                0.0 if len(of_score) == 1 else number / (len(of_score) - 1) - 0.5 for number in range(len(of_score))
            ]
            axes.axhspan(mean - deviation, mean + deviation, color=COLOURS[0], alpha=0.15, linewidth=0)
            axes.axhline(mean, color=COLOURS[0])
            axes.plot(places, of_score, "o", color=COLOURS[1], markersize=5)
            label = f"{mean:.2f} +- {deviation:.2f}"
            axes.set(title=charts.plain(key), xlabel=label, xlim=(-1, 1), xticks=[])
            axes.spines["bottom"].set_visible(False)


def read_scores(path: Path) -> dict[str, float]:
    """Read the scores of one run. Raise InputError if the file has none."""
    try:
        score = files.read_json(path)
        if not isinstance(score, dict) or not score or not all(map(_is_score, score.values())):
            raise ValueError("not an object of numbers")
    except ValueError as error:
        raise InputError(
            f"{path}: not the output of squad.metric or tasks.evaluate ({error}); score the run again"
        ) from error
    return score


def _is_score(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.spread", description=__doc__)
    scores = [read_scores(path) for path in options.scores]
    if options.picture is not None:
        if not values(scores):
            raise InputError(f"{options.scores[0]}: has no score that all runs have; give scores of the same task")
        draw(scores, options.picture)
    print(json.dumps(spread(scores)))


if __name__ == "__main__":
    cli.main(main)
