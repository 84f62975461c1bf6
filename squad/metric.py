"""Exact match and F1 of predicted answers: the evaluations of SQuAD 1.1 (Rajpurkar et al. 2016, section 6) and of 2.0.

    python -m squad.metric DATASET.json PREDICTIONS.json        # {"exact_match": 81.25, "f1": 88.41, "total": 10570}
    python -m squad.metric DATASET.json PREDICTIONS.json --na_prob null_odds.json

The dataset says which: 2.0 where its version does or a question is impossible. Its line has exact, f1 and total, the
same of the questions with (HasAns_*) and without an answer (NoAns_*), and with --na_prob, {question id: score}, the
best that a threshold on these scores would reach (best_*). A question without a prediction scores 0 in 1.1 and is left
out in 2.0; a prediction without a question is ignored; each with a note on stderr. Files may be compressed (.gz, .bz2,
.xz).
"""

import json
import math
import re
import string
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bert import cli
from bert.errors import InputError, UsageError
from bert.storage import files
from squad import examples
from squad.examples import Example

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, kw_only=True)
class Options:
    dataset: cli.Positional[Path]
    """SQuAD file with the questions and their gold answers"""
    predictions: cli.Positional[Path]
    """JSON object: the id of each question and its predicted answer"""
    na_prob: Path | None = None
    """scores or probabilities of having no answer, {id: number}; of 2.0 only"""
    na_prob_thresh: float = 1.0
    """a prediction whose score is above this counts as none"""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Means over `total` questions, in percent."""

    exact_match: float
    f1: float
    total: int


def normalize(text: str) -> str:
    """Lower case, without ASCII punctuation, without articles, single spaces: in this order, as published."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> bool:
    """Whether two answers are equal once normalised."""
    return normalize(prediction) == normalize(gold)


def f1(prediction: str, gold: str) -> float:
    """Harmonic mean of precision and recall over the bags of normalised words; 0 if they share none."""
    predicted, wanted = normalize(prediction).split(), normalize(gold).split()
    shared = (Counter(predicted) & Counter(wanted)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def score(questions: Sequence[Example], predictions: Mapping[str, str]) -> Score:
    """Version 1.1: each question takes the best of its gold answers; the mean is over all, answered or not."""
    matches, f1s = 0, 0.0
    for question in questions:
        if question.id in predictions:
            prediction = predictions[question.id]
            matches += max(exact_match(prediction, gold.text) for gold in question.answers)
            f1s += max(f1(prediction, gold.text) for gold in question.answers)
    total = len(questions)
    return Score(exact_match=100 * matches / total, f1=100 * f1s / total, total=total)


def judge(prediction: str, question: Example) -> tuple[float, float]:
    """Exact match and F1 of one prediction in version 2.0, where no words at all are right if none are wanted."""
    golds = [gold.text for gold in question.answers if normalize(gold.text)] or [""]
    matches = [int(exact_match(prediction, gold)) for gold in golds]
    overlaps = [f1(prediction, gold) or int(not normalize(prediction) and not normalize(gold)) for gold in golds]
    return max(matches), max(overlaps)


def score_v2(
    questions: Sequence[Example],
    predictions: Mapping[str, str],
    na_prob: Mapping[str, float] | None = None,
    na_prob_thresh: float = 1.0,
) -> dict[str, float]:
    """Version 2.0: the figures of the official script under its names, to the last digit.

    That script names questions without a prediction and then fails; here they are left out.
    """
    asked = [question for question in questions if question.id in predictions]
    raw = {question.id: judge(predictions[question.id], question) for question in asked}
    none = {question.id: not question.answers for question in asked}
    odds = na_prob or dict.fromkeys(raw, 0.0)
    final = {
        key: (float(none[key]), float(none[key])) if odds[key] > na_prob_thresh else pair for key, pair in raw.items()
    }
    found: dict[str, float] = {}
    groups = {"": list(none), "HasAns_": [k for k in none if not none[k]], "NoAns_": [k for k in none if none[k]]}
    for prefix, keys in groups.items():
        if keys:
            for place, name in enumerate(("exact", "f1")):  # sum(), as there: Python 3.12's rounds otherwise than +=
                found[prefix + name] = 100.0 * sum(final[key][place] for key in keys) / len(keys)
            found[prefix + "total"] = len(keys)
    if na_prob is not None:
        order = [key for key in sorted(na_prob, key=na_prob.__getitem__) if key in raw]
        for place, name in enumerate(("exact", "f1")):
            gains = [-bool(predictions[key]) if none[key] else raw[key][place] for key in order]  # over saying none
            best, threshold = _best(sum(none.values()), gains, [na_prob[key] for key in order])
            found |= {f"best_{name}": 100.0 * best / len(raw), f"best_{name}_thresh": threshold}
    return found


def _best(none: int, gains: Sequence[float], odds: Sequence[float]) -> tuple[float, float]:
    """The highest sum, and the odds up to which questions, in their order, are answered for it; 0 if none is.

    As the official script has it, also where equal odds are cut apart, which no threshold can do.
    """
    reached: float = none
    best, threshold = reached, 0.0
    for gain, odd in zip(gains, odds, strict=True):
        reached += gain
        if reached > best:
            best, threshold = reached, odd
    return best, threshold


def _read(path: Path, kind: str, right: Callable[[Any], bool]) -> dict[str, Any]:
    with files.open_text(path) as stream:
        text = stream.read()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: not an object; it must be {{question id: {kind}}}")
    for identity, value in found.items():
        if not right(value):
            raise InputError(f"{path}: {identity!r} has {json.dumps(value)[:40]}, not a {kind}")
    return found


def read_predictions(path: Path) -> dict[str, str]:
    """Reads {question id: answer}; raises InputError, naming the id, for anything else."""
    return _read(path, "string", lambda value: isinstance(value, str))


def read_odds(path: Path) -> dict[str, float]:
    """Reads {question id: finite number}; raises InputError, naming the id, for anything else."""
    return _read(path, "finite number", lambda value: type(value) in (int, float) and abs(value) < math.inf)


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m squad.metric", description=__doc__)
    dataset, predictions = examples.read(options.dataset), read_predictions(options.predictions)
    known = {question.id for question in dataset.examples}
    unanswered, unknown = known - predictions.keys(), predictions.keys() - known
    if unanswered:
        fate = "are left out" if dataset.version == "2.0" else "score 0"
        print(f"note: {len(unanswered)} questions without a prediction {fate}: {_some(unanswered)}", file=sys.stderr)
    if unknown:
        print(f"note: {len(unknown)} predictions without a question are ignored: {_some(unknown)}", file=sys.stderr)
    if dataset.version == "2.0":
        print(json.dumps(_score_v2(options, dataset, predictions, known - unanswered)))
        return
    if options.na_prob:
        raise UsageError(
            f"--na_prob: {options.dataset} is of version 1.1, where every question has an answer; leave it out"
        )
    for question in dataset.examples:
        if not question.answers:
            raise InputError(f"{options.dataset}: question {question.id!r} has no gold answer to be scored by")
    print(json.dumps(asdict(score(dataset.examples, predictions))))


def _score_v2(
    options: Options, dataset: examples.Dataset, predictions: dict[str, str], answered: set[str]
) -> dict[str, float]:
    if not answered:
        raise InputError(f"{options.predictions}: no prediction for any question of {options.dataset}; check the paths")
    odds = read_odds(options.na_prob) if options.na_prob else None
    if odds is not None and (lacking := answered - odds.keys()):
        raise InputError(f"{options.na_prob}: no number for {len(lacking)} answered questions: {_some(lacking)}")
    return score_v2(dataset.examples, predictions, odds, options.na_prob_thresh)


def _some(ids: set[str]) -> str:
    return ", ".join(sorted(ids)[:3]) + (" ..." if len(ids) > 3 else "")


if __name__ == "__main__":
    cli.main(main)
