"""Tune the threshold above which a model gives no answer, on a SQuAD 2.0 dataset with known answers.

    python -m squad.threshold --model RUN --dataset DEV.json

The null odds of a question are the score of no answer minus the score of the best answer. If they are above the
threshold, squad.predict answers "". The threshold with the highest F1 on DEV.json (the lowest one, if several are best)
is stored in RUN/null_threshold.json together with its scores, and printed as one line of JSON.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from bert.core import cli, ending, files, ranges, stores
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.ranges import BatchSize, Range
from bert.hardware.choices import Compute, DeviceName
from squad import examples, languages, metric
from squad.answers import MAX_ANSWER_LENGTH

NAME = "null_threshold.json"
KEYS = {"threshold", "exact", "f1", "total", "dataset", "dataset_sha256", "weights", "sha256"}
MARGIN = 1.0  # below the lowest and above the highest odds


@dataclass(frozen=True, kw_only=True)
class Options:
    model: cli.Run
    """run directory of python -m squad.train"""
    dataset: Path
    """dataset with impossible questions, in any format that squad.predict reads"""
    batch: BatchSize = 32
    """maximum windows per batch"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products; use the same one for squad.predict"""
    max_answer_length: Annotated[int, Range(1, 65_536)] = MAX_ANSWER_LENGTH
    """maximum length of an answer, in tokens"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)


class Outcome(NamedTuple):
    """The scores of one question, with its best answer and with no answer."""

    odds: float
    answered: tuple[float, float]  # exact match, F1
    none: bool  # score of no answer: whether the question is impossible


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A threshold, and the scores on the questions that it was tuned on, in percent."""

    threshold: float
    exact: float
    f1: float
    total: int


def tune(outcomes: Sequence[Outcome]) -> Tuned:
    """Return the threshold with the highest F1, the lowest of several. Questions with higher odds are not answered.

    It is half-way between the odds of two questions, so that rounding errors in scores do not matter.
    """
    ranked = sorted(outcomes, key=lambda outcome: outcome.odds)
    limits = [ranked[0].odds - MARGIN, *sorted({outcome.odds for outcome in outcomes}), ranked[-1].odds + MARGIN]
    between = [below if (mid := (below + above) / 2) == above else mid for below, above in itertools.pairwise(limits)]
    f1 = exact = sum(float(outcome.none) for outcome in outcomes)
    best = (f1, exact, between[0])  # below all odds: nothing is answered
    for (_, equal), limit in zip(itertools.groupby(ranked, key=lambda outcome: outcome.odds), between[1:], strict=True):
        for outcome in equal:
            exact += outcome.answered[0] - outcome.none
            f1 += outcome.answered[1] - outcome.none
        if f1 > best[0]:
            best = (f1, exact, limit)
    total = len(outcomes)
    return Tuned(threshold=best[2], exact=100 * best[1] / total, f1=100 * best[0] / total, total=total)


def load_threshold(run: Path, weights: str) -> float | None:
    """Return the threshold stored for the model in `run`, or None.

    weights: content hash of the model's checkpoint. Raises IntegrityError if the file is damaged, UsageError if it was
    tuned for other weights.
    """
    path = run / NAME
    try:
        stored = files.read_json(path)
        threshold, tuned_for = float(stored["threshold"]), stored["weights"]
        if stored.keys() - KEYS or stored.get("sha256", _digest(stored)) != _digest(
            stored
        ):  # earlier versions: no hash
            raise ValueError("its content has changed")
        if not math.isfinite(threshold):
            raise ValueError(threshold)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise IntegrityError(f"{path}: damaged ({error!r:.200}); tune again: python -m squad.threshold") from error
    if tuned_for != weights:
        raise UsageError(
            f"{path}: tuned for another checkpoint; tune again: python -m squad.threshold, or give --null_threshold"
        )
    return threshold


def store_threshold(run: Path, record: dict[str, Any]) -> None:
    """Write the threshold and what it was tuned on, with a hash of both."""
    files.write_json(run / NAME, record | {"sha256": _digest(record)})


def _digest(record: dict[str, Any]) -> str:
    hashed = {key: value for key, value in record.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m squad.threshold", description=__doc__)
    pieces = examples.read_pieces(options.dataset, strict=True)
    first = next(pieces)
    from bert.hardware import devices
    from squad.model import load
    from squad.reader import Reader

    devices.choose(options.device)
    fine_tuned = load(options.model, options.compute)
    length = options.max_answer_length
    reader = Reader(fine_tuned, batch=options.batch, limit=None, n_best=1, max_answer_length=length)
    with reader.counted("threshold", "questions", examples.count(options.dataset)):
        rules = languages.rules(fine_tuned.kind.language, first, options.dataset, "--data.language of squad.train")
        outcomes = [
            Outcome(
                answers.null_odds,
                metric.score_question_v2(answers.best(None).text, example, rules),
                not example.answers,
            )
            for piece in itertools.chain([first], pieces)
            for example, answers in reader.answer(piece)
        ]
    if not any(outcome.none for outcome in outcomes):
        raise InputError(f"{options.dataset}: every question has an answer; give a version 2.0 dataset")
    tuned: dict[str, Any] = asdict(tune(outcomes))
    about = {"dataset": options.dataset.name, "dataset_sha256": examples.content_hash(options.dataset)}
    store_threshold(options.model, tuned | about | {"weights": fine_tuned.run.weights})
    stores.send_run(options.model)
    print(json.dumps(tuned), flush=True)
    ending.print_next_command(options.model / NAME, "", "python", "-m", "squad.predict", "--model", options.model)


if __name__ == "__main__":
    cli.main(main)
