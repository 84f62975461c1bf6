"""Answers questions with a fine-tuned model.

    python -m squad.predict --model RUN --dataset DEV.json --output predictions.json [--nbest nbest.json]
    python -m squad.predict --model RUN --question "Who ...?" --context "Once upon a time ..."

Every question of the file is answered, {id: text}, and every answer is cut from its passage as it stands there. RUN is
the directory of a `squad.train` run. Both outputs are written whole or not at all.
"""

import contextlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from bert import cli, files
from bert.errors import IntegrityError, UsageError
from bert.noise import Noise
from squad import examples, features
from squad.answers import Candidate, n_best_answers
from squad.examples import Dataset, Example
from squad.features import Windows
from squad.model import FineTuned, load

QUESTIONS = 1024  # whose windows, logits and answers are held at once
WIDTH = 32  # batches are as long as their longest window, in multiples of this


@dataclass(frozen=True, kw_only=True)
class Options:
    model: Path
    """run directory of python -m squad.train"""
    dataset: Path | None = None
    """questions in SQuAD format, .json or compressed as .gz, .bz2, .xz"""
    output: Path | None = None
    """where the answers go, {id: text}"""
    nbest: Path | None = None
    """where the best answers of each question go, with probabilities"""
    question: str | None = None
    """one question, asked of --context"""
    context: str | None = None
    """the passage of --question"""
    batch: int = 32
    """windows at once"""
    n_best: int = 20
    """answers in the list of a question"""
    max_answer_length: int = 30
    """tokens of the longest answer"""

    def __post_init__(self) -> None:
        if (self.dataset is None) != (self.output is None) or (self.question is None) != (self.context is None):
            raise UsageError("--dataset needs --output, and --question needs --context")
        if (self.dataset is None) == (self.question is None):
            raise UsageError("give either --dataset and --output, or --question and --context")
        if min(self.batch, self.n_best, self.max_answer_length) < 1:
            raise UsageError("--batch, --n_best and --max_answer_length must be positive")


class Reader:
    """Scores windows in batches of equal size and like length; the model is traced once."""

    def __init__(self, fine_tuned: FineTuned, batch: int) -> None:
        self.batch = batch
        self._score = tf.function(
            lambda inputs: fine_tuned.model(inputs, Noise(None), tf.float32),
            input_signature=[dict.fromkeys(features.INPUTS, tf.TensorSpec([batch, None], tf.int32))],
        )

    def score(self, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
        """Start and end logits [B, S] of any number of windows; 0 beyond a batch's longest, where all is padding."""
        starts, ends = np.zeros((2, *windows.input_ids.shape), np.float32)
        lengths = windows.input_mask.sum(axis=1)
        order = np.argsort(lengths, kind="stable")
        for first in range(0, len(order), self.batch):
            rows = order[np.arange(first, first + self.batch).clip(max=len(order) - 1)]  # the last repeats a window
            width = min(-(-lengths[rows].max() // WIDTH) * WIDTH, starts.shape[1])
            inputs = {name: tf.constant(getattr(windows, name)[rows, :width]) for name in features.INPUTS}
            starts[rows, :width], ends[rows, :width] = self._score(inputs)
        if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
            raise IntegrityError("the model's scores are not finite: its training failed; take another checkpoint")
        return starts, ends


def answer(fine_tuned: FineTuned, dataset: Dataset, options: Options) -> Iterator[tuple[Example, list[Candidate]]]:
    """Each question of `dataset`, in order, with its best answers."""
    passages, reader = dataset.passages, None
    tokens = features.tokenize(fine_tuned.tokenizer, passages)
    for first in range(0, len(dataset.examples), QUESTIONS):
        questions = dataset.examples[first : first + QUESTIONS]
        windows = features.windows(fine_tuned.tokenizer, questions, tokens, fine_tuned.windowing)
        reader = reader or Reader(fine_tuned, min(options.batch, len(windows.question)))
        logits = reader.score(windows)
        limits = options.n_best, options.max_answer_length
        yield from zip(questions, n_best_answers(questions, passages, tokens, windows, logits, *limits), strict=True)


def mark(passage: str, found: Candidate) -> str:
    """The passage with the answer between >>> and <<<."""
    end = found.start + len(found.text)
    return f"{passage[: found.start]}>>>{found.text}<<<{passage[end:]}"


def write(answered: Iterable[tuple[Example, list[Candidate]]], output: Path, nbest: Path | None) -> int:
    """Writes the answers, and the lists as they come; returns the number of questions."""
    predictions: dict[str, str] = {}
    optional = files.atomic_write(nbest) if nbest else contextlib.nullcontext()
    with files.atomic_write(output) as stream, optional as lists:  # both opened first: a bad path fails at once
        for example, candidates in answered:
            if lists:
                line = json.dumps([asdict(candidate) for candidate in candidates], ensure_ascii=False)
                lists.write(f"{',' if predictions else '{'}\n{json.dumps(example.id)}: {line}")
            predictions[example.id] = candidates[0].text
        if lists:
            lists.write("\n}\n")
        stream.write(json.dumps(predictions, ensure_ascii=False, indent=1) + "\n")
    return len(predictions)


def main(argv: list[str]) -> None:
    """Runs the command."""
    options = cli.parse(Options, argv, prog="python -m squad.predict", description=__doc__)
    if options.dataset is None or options.output is None:
        question = Example(id="question", question=options.question or "", passage=0, answers=())
        dataset = Dataset(passages=[options.context or ""], examples=[question])
        ((_, candidates),) = answer(load(options.model), dataset, options)
        best = candidates[0]
        print(f"{best.text}  (probability {best.probability:.2f})\n{mark(dataset.passages[0], best)}")
        return
    dataset = examples.read(options.dataset)
    fine_tuned = load(options.model)
    begun = time.perf_counter()
    count = write(answer(fine_tuned, dataset, options), options.output, options.nbest)
    seconds = time.perf_counter() - begun
    print(f"{options.output}: {count} answers in {seconds:.1f} s ({count / seconds:.1f} questions/s)", file=sys.stderr)


if __name__ == "__main__":
    cli.main(main)
