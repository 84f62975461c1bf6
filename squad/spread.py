"""Compute mean and standard deviation of the scores of several runs, as one line of JSON.

    python -m squad.spread SCORES.json...        # {"runs": 5, "f1": {"mean": 90.94, "deviation": 0.11}, ...}

Each file has the line that squad.metric printed for one run. The deviation is that of a sample (divided by n - 1); it
is 0 for one run.
"""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert import cli
from bert.errors import InputError
from bert.storage import files

LARGEST = 1e15  # score, threshold or number of questions; also false for NaN


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m squad.spread`."""

    scores: cli.Positional[tuple[Path, ...]]
    """files with the line that squad.metric prints"""


def spread(scores: list[dict[str, float]]) -> dict[str, Any]:
    """Return mean and deviation of the scores that all runs have, without the numbers of questions."""
    summary: dict[str, Any] = {"runs": len(scores)}
    for key in scores[0]:
        if key != "total" and not key.endswith("_total") and all(key in score for score in scores):
            values = [score[key] for score in scores]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            summary[key] = {"mean": statistics.fmean(values), "deviation": deviation}
    return summary


def read_scores(path: Path) -> dict[str, float]:
    """Read the scores of one run. Raises InputError if the file has none."""
    try:
        score = files.read_json(path)
        if not isinstance(score, dict) or not all(map(_is_score, score.values())):
            raise ValueError("not an object of numbers")
    except ValueError as error:
        raise InputError(f"{path}: not the output of squad.metric ({error}); score the run again") from error
    return score


def _is_score(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m squad.spread", description=__doc__)
    print(json.dumps(spread([read_scores(path) for path in options.scores])))


if __name__ == "__main__":
    cli.main(main)
