"""Finds how sure a model must be that a question has no answer before it says so, on questions with known answers.

    python -m squad.threshold --model RUN --dataset DEV.json

Null odds are the score of no answer minus that of the best answer; above the threshold the answer is none. The one with
the highest F1 on DEV, a version 2.0 set, is stored in RUN/null_threshold.json with what it reaches there, for
squad.predict to use; one JSON line says the same. Where several are best, the lowest is taken.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bert import cli
from bert.errors import InputError, IntegrityError, UsageError
from bert.hardware import devices
from bert.hardware.devices import Kind
from bert.storage import files
from squad import examples, metric
from squad.model import Compute, load
from squad.reader import Reader

NAME = "null_threshold.json"
MARGIN = 1.0  # beyond the lowest and the highest odds


@dataclass(frozen=True, kw_only=True)
class Options:
    model: Path
    """run directory of python -m squad.train"""
    dataset: Path
    """questions of which some are impossible, in any form that squad.predict reads"""
    batch: int = 32
    """windows at once, at most"""
    compute: Compute = "float32"
    """type of the encoder's matrix products: that which the questions will be answered in"""
    max_answer_length: int = 30
    """tokens of the longest answer"""
    device: Kind = "auto"
    """what to compute on; auto takes a GPU where there is one"""

    def __post_init__(self) -> None:
        if min(self.batch, self.max_answer_length) < 1:
            raise UsageError("--batch and --max_answer_length must be positive")


class Outcome(NamedTuple):
    """What one question scores if it is answered, and if the answer is none."""

    odds: float
    answered: tuple[float, float]  # exact match, F1
    none: bool


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A threshold, and what the questions it was tuned on score with it, in percent."""

    threshold: float
    exact: float
    f1: float
    total: int


def tune(outcomes: Sequence[Outcome]) -> Tuned:
    """The threshold with the highest F1, and of those the lowest; what has higher odds is not answered.

    It lies half-way between the odds of two questions: scores that are off in their last bits move none across.
    """
    ranked = sorted(outcomes, key=lambda outcome: outcome.odds)
    limits = [ranked[0].odds - MARGIN, *sorted({outcome.odds for outcome in outcomes}), ranked[-1].odds + MARGIN]
    between = [below if (mid := (below + above) / 2) == above else mid for below, above in itertools.pairwise(limits)]
    f1 = exact = sum(float(outcome.none) for outcome in outcomes)
    best = (f1, exact, between[0])  # below all: none is answered
    for (_, equal), limit in zip(itertools.groupby(ranked, key=lambda outcome: outcome.odds), between[1:], strict=True):
        for outcome in equal:
            exact += outcome.answered[0] - outcome.none
            f1 += outcome.answered[1] - outcome.none
        if f1 > best[0]:
            best = (f1, exact, limit)
    total = len(outcomes)
    return Tuned(threshold=best[2], exact=100 * best[1] / total, f1=100 * best[0] / total, total=total)


def stored(run: Path, weights: str) -> float | None:
    """The threshold tuned for the model in `run`, if one was.

    Raises IntegrityError if its file is damaged, UsageError if it was tuned for other weights.
    """
    path = run / NAME
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        threshold, tuned_for = float(facts["threshold"]), facts["weights"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path}: damaged ({error!r}); tune again: python -m squad.threshold") from error
    if tuned_for != weights:
        raise UsageError(
            f"{path}: tuned for another checkpoint; tune again: python -m squad.threshold, or give --null_threshold"
        )
    return threshold


def main(argv: list[str]) -> None:
    """Runs the command."""
    options = cli.parse(Options, argv, prog="python -m squad.threshold", description=__doc__)
    pieces = examples.pieces(options.dataset, strict=True)
    first = next(pieces)
    devices.choose(options.device)
    fine_tuned = load(options.model, options.compute)
    reader = Reader(
        fine_tuned,
        batch=options.batch,
        n_best=1,
        max_answer_length=options.max_answer_length,
        null=False,
    )
    outcomes = [
        Outcome(found.null_odds, metric.judge(found.best(None).text, question), not question.answers)
        for piece in itertools.chain([first], pieces)
        for question, found in reader.answer(piece)
    ]
    if not any(outcome.none for outcome in outcomes):
        raise InputError(f"{options.dataset}: every question has an answer; a threshold needs a version 2.0 set")
    facts: dict[str, Any] = asdict(tune(outcomes))
    about = {"dataset": options.dataset.name, "dataset_sha256": files.sha256(options.dataset)}
    files.write_json(options.model / NAME, facts | about | {"weights": fine_tuned.weights})
    print(json.dumps(facts))


if __name__ == "__main__":
    cli.main(main)
