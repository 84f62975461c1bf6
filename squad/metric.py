"""Compute exact match and F1 of predicted answers, as the official evaluations of SQuAD 1.1 and 2.0 do.

    python -m squad.metric DATASET.json PREDICTIONS.json        # {"exact_match": 81.25, "f1": 88.41, "total": 10570}
    python -m squad.metric DATASET.json PREDICTIONS.json --na_prob null_odds.json
    python -m squad.metric test-context-de-question-de.json PREDICTIONS.json --language de      # as MLQA's evaluation

Prints one line of JSON. A dataset is scored as version 2.0 if it says so or has an impossible question. Version 2.0 has
exact, f1 and total, the same for questions with an answer (HasAns_*) and without (NoAns_*), and with --na_prob, a file
{question id: score}, the best result that a threshold on these scores can reach (best_*). A question without a
prediction scores 0 in version 1.1 and is left out in 2.0. A prediction without a question is ignored. Both are
reported. Without --language answers are compared by SQuAD's rules, which are for English; a set in another language is
reported (squad/languages.py). Files may be compressed (.gz, .bz2, .xz).
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bert.core import cli, files, ranges
from bert.core.errors import InputError, UsageError
from bert.core.ranges import AnyNumber
from squad import examples, languages
from squad.examples import Example
from squad.languages import SQUAD, Language, Rules


@dataclass(frozen=True, kw_only=True)
class Options:
    dataset: cli.Positional[Path]
    """SQuAD file with the questions and their gold answers"""
    predictions: cli.Positional[Path]
    """JSON object: the id of each question and its predicted answer"""
    na_prob: Path | None = None
    """file of scores or probabilities that there is no answer, {id: number}; version 2.0 only"""
    na_prob_thresh: AnyNumber = 1.0
    """score above which a prediction counts as no answer"""
    language: Language | None = None
    """compare answers by the rules of MLQA for this language; auto finds it; default: SQuAD's rules"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.na_prob is None and 0 <= self.na_prob_thresh != 1:  # all have 0
            raise UsageError("--na_prob_thresh has no effect without --na_prob; give the scores that it is for")


@dataclass(frozen=True, kw_only=True)
class Score:
    """Mean scores over `total` questions, in percent (Rajpurkar et al. 2016, section 6)."""

    exact_match: float
    f1: float
    total: int


def normalize(text: str, rules: Rules = SQUAD) -> str:
    """Return the words of an answer that are compared, with a space between two."""
    return " ".join(rules.words(text))


def exact_match(prediction: str, gold: str, rules: Rules = SQUAD) -> bool:
    """Return whether two answers are equal after normalisation."""
    return rules.words(prediction) == rules.words(gold)


def f1(prediction: str, gold: str, rules: Rules = SQUAD) -> float:
    """Return the harmonic mean of precision and recall over the bags of normalised words; 0 if they share none."""
    predicted, expected = rules.words(prediction), rules.words(gold)
    shared = (Counter(predicted) & Counter(expected)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def check_answers(questions: Sequence[Example], path: Path) -> None:
    """Raise InputError if a question of version 1.1 has no gold answer."""
    for question in questions:
        if not question.answers:
            raise InputError(f"{path}: question {question.id!r} has no gold answer; add one or remove the question")


def score(questions: Sequence[Example], predictions: Mapping[str, str], rules: Rules = SQUAD) -> Score:
    """Score as version 1.1: the best of the gold answers counts; the mean is over all questions, predicted or not."""
    matches, f1s = 0, 0.0
    for question in questions:
        if question.id in predictions:
            prediction = predictions[question.id]
            matches += max(exact_match(prediction, gold.text, rules) for gold in question.answers)
            f1s += max(f1(prediction, gold.text, rules) for gold in question.answers)
    total = len(questions)
    return Score(exact_match=100 * matches / total, f1=100 * f1s / total, total=total)


def score_question_v2(prediction: str, question: Example, rules: Rules = SQUAD) -> tuple[float, float]:
    """Return exact match and F1 of one prediction in version 2.0, where "" is correct for an impossible question."""
    golds = [gold.text for gold in question.answers if rules.words(gold.text)] or [""]
    matches = [int(exact_match(prediction, gold, rules)) for gold in golds]
    is_none = not rules.words(prediction)
    overlaps = [f1(prediction, gold, rules) or int(is_none and not rules.words(gold)) for gold in golds]
    return max(matches), max(overlaps)


def score_v2(
    questions: Sequence[Example],
    predictions: Mapping[str, str],
    na_prob: Mapping[str, float] | None = None,
    na_prob_thresh: float = 1.0,
    rules: Rules = SQUAD,
) -> dict[str, float]:
    """Score as version 2.0: the figures of the official script under its names, to the last digit.

    The official script fails if a question has no prediction; here such questions are left out.
    """
    predicted = [question for question in questions if question.id in predictions]
    raw = {question.id: score_question_v2(predictions[question.id], question, rules) for question in predicted}
    none = {question.id: not question.answers for question in predicted}
    odds = na_prob or dict.fromkeys(raw, 0.0)
    final = {
        key: (float(none[key]), float(none[key])) if odds[key] > na_prob_thresh else pair for key, pair in raw.items()
    }
    scores: dict[str, float] = {}
    groups = {"": list(none), "HasAns_": [k for k in none if not none[k]], "NoAns_": [k for k in none if none[k]]}
    for prefix, keys in groups.items():
        if keys:
            for place, name in enumerate(("exact", "f1")):  # sum(), as there: in Python 3.12 it rounds unlike +=
                scores[prefix + name] = 100.0 * sum(final[key][place] for key in keys) / len(keys)
            scores[prefix + "total"] = len(keys)
    if na_prob is not None:
        order = [key for key in sorted(na_prob, key=na_prob.__getitem__) if key in raw]
        for place, name in enumerate(("exact", "f1")):
            gains = [-bool(predictions[key]) if none[key] else raw[key][place] for key in order]  # against no answer
            best, threshold = _best(sum(none.values()), gains, [na_prob[key] for key in order])
            scores |= {f"best_{name}": 100.0 * best / len(raw), f"best_{name}_thresh": threshold}
    return scores


def _best(none: int, gains: Sequence[float], odds: Sequence[float]) -> tuple[float, float]:
    """Return the highest total score and its threshold: questions with odds up to the threshold are answered.

    none: the score if nothing is answered (threshold 0). Like the official script, this also splits questions with
    equal odds, which no threshold can do.
    """
    total: float = none
    best, threshold = total, 0.0
    for gain, odd in zip(gains, odds, strict=True):
        total += gain
        if total > best:
            best, threshold = total, odd
    return best, threshold


def _read_object(path: Path, kind: str, is_valid: Callable[[Any], bool]) -> dict[str, Any]:
    text = files.read_text(path, examples.MAX_JSON, "give the predictions of fewer questions")
    try:
        values = files.parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); it must be {{question id: {kind}}}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: not a JSON object; it must be {{question id: {kind}}}")
    for identity, value in values.items():
        if not is_valid(value):
            raise InputError(f"{path}: {identity[:100]!r} has {json.dumps(value)[:40]}, not a {kind}")
    return values


def read_predictions(path: Path) -> dict[str, str]:
    """Read {question id: answer}. Raises InputError, naming the id, for anything else."""
    return _read_object(path, "string", lambda value: isinstance(value, str))


def read_odds(path: Path) -> dict[str, float]:
    """Read {question id: finite number}. Raises InputError, naming the id, for anything else."""
    return _read_object(path, "finite number", lambda value: type(value) in (int, float) and abs(value) < math.inf)


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m squad.metric", description=__doc__)
    dataset, predictions = examples.read_dataset(options.dataset), read_predictions(options.predictions)
    ids = {question.id for question in dataset.examples}
    unanswered, unknown = ids - predictions.keys(), predictions.keys() - ids
    if unanswered:
        treatment = "are left out" if dataset.version == "2.0" else "score 0"
        print(
            f"note: {len(unanswered)} questions without a prediction {treatment}: {_some(unanswered)}", file=sys.stderr
        )
    if unknown:
        print(f"note: {len(unknown)} predictions without a question are ignored: {_some(unknown)}", file=sys.stderr)
    rules = languages.rules(options.language, dataset, options.dataset)
    if dataset.version == "2.0":
        print(json.dumps(_score_v2(options, dataset, predictions, ids - unanswered, rules)))
        return
    if options.na_prob:
        raise UsageError(
            f"--na_prob: {options.dataset} is version 1.1, in which every question has an answer; remove the flag"
        )
    check_answers(dataset.examples, options.dataset)
    print(json.dumps(asdict(score(dataset.examples, predictions, rules))))


def _score_v2(
    options: Options, dataset: examples.Dataset, predictions: dict[str, str], answered: set[str], rules: Rules
) -> dict[str, float]:
    if not answered:
        raise InputError(
            f"{options.predictions}: no predictions for the questions in {options.dataset}; check the paths"
        )
    odds = read_odds(options.na_prob) if options.na_prob else None
    if odds is not None and (missing := answered - odds.keys()):
        raise InputError(
            f"{options.na_prob}: no number for {len(missing)} questions with a prediction: {_some(missing)}"
        )
    return score_v2(dataset.examples, predictions, odds, options.na_prob_thresh, rules)


def _some(ids: set[str]) -> str:
    return ", ".join(identity[:100] for identity in sorted(ids)[:3]) + (" ..." if len(ids) > 3 else "")


if __name__ == "__main__":
    cli.main(main)
