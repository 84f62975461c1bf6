"""Exact match and F1 of predicted answers: the SQuAD v1.1 evaluation (Rajpurkar et al. 2016, section 6).

    python -m squad.metric DATASET.json PREDICTIONS.json        # {"exact_match": 81.25, "f1": 88.41, "total": 10570}

Both files may be compressed (.gz, .bz2, .xz). PREDICTIONS is one object {question id: answer}; a question without a
prediction scores 0 and a prediction without a question is ignored, each with a note on stderr.
"""

import json
import re
import string
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bert import cli, files
from bert.errors import InputError, UsageError
from squad import examples

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


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


def score(questions: Sequence[examples.Example], predictions: dict[str, str]) -> Score:
    """Each question takes the best of its gold answers; the mean is over all questions, answered or not."""
    matches, f1s = 0, 0.0
    for question in questions:
        if question.id in predictions:
            prediction = predictions[question.id]
            matches += max(exact_match(prediction, gold.text) for gold in question.answers)
            f1s += max(f1(prediction, gold.text) for gold in question.answers)
    total = len(questions)
    return Score(exact_match=100 * matches / total, f1=100 * f1s / total, total=total)


def read_predictions(path: Path) -> dict[str, str]:
    """Reads {question id: answer}; raises InputError, naming the id, for anything else."""
    with files.open_text(path) as stream:
        try:
            predictions = json.load(stream)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(predictions, dict):
        raise InputError(f"{path}: not an object; predictions are {{question id: answer}}")
    for identity, answer in predictions.items():
        if not isinstance(answer, str):
            raise InputError(f"{path}: the prediction of {identity!r} is {json.dumps(answer)[:40]}, not a string")
    return predictions


def main(argv: list[str]) -> None:
    if {"-h", "--help"} & set(argv):
        print(__doc__)
        return
    if len(argv) != 2:
        raise UsageError(f"squad.metric: needs DATASET and PREDICTIONS, got {len(argv)} arguments; see --help")
    dataset, predictions = examples.read(Path(argv[0])), read_predictions(Path(argv[1]))
    for question in dataset.examples:
        if not question.answers:
            raise InputError(f"{argv[0]}: question {question.id!r} has no gold answer; only SQuAD v1.1 is scored")
    known = {question.id for question in dataset.examples}
    if unanswered := known - predictions.keys():
        print(f"note: {len(unanswered)} questions without a prediction score 0: {_some(unanswered)}", file=sys.stderr)
    if unknown := predictions.keys() - known:
        print(f"note: {len(unknown)} predictions without a question are ignored: {_some(unknown)}", file=sys.stderr)
    print(json.dumps(asdict(score(dataset.examples, predictions))))


def _some(ids: set[str]) -> str:
    return ", ".join(sorted(ids)[:3]) + (" ..." if len(ids) > 3 else "")


if __name__ == "__main__":
    cli.main(main)
