"""Answers questions with a fine-tuned model.

    python -m squad.predict --model RUN --dataset DEV.json --output predictions.json [--nbest nbest.json]
    python -m squad.predict --model RUN --question "Who ...?" --context "Once upon a time ..."

Every question of the file is answered, {id: text}, and every answer is cut from its passage as it stands there; one
that is malformed is named and, if it has an id, answered with nothing. RUN is the directory of a `squad.train` run. If
that learnt from impossible questions, the answer is "" where the null odds are above the threshold that squad.threshold
stored, or else above 0; other models answer none only if a threshold is tuned or given. Files are written as the
answers come and appear whole or not at all; of JSONL only some thousand questions and all ids are held in memory.
"""

import contextlib
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bert import cli
from bert.errors import UsageError
from bert.hardware import devices
from bert.hardware.devices import Kind
from bert.storage import files
from squad import examples, threshold
from squad.answers import NOTHING, Answers, Candidate
from squad.examples import Dataset, Example, Fault
from squad.model import Compute, FineTuned, load
from squad.reader import Reader

NAMED = 5  # malformed questions that are named, one a line


@dataclass(frozen=True, kw_only=True)
class Options:
    model: Path
    """run directory of python -m squad.train"""
    dataset: Path | None = None
    """questions in SQuAD format, .json, or one a line, .jsonl; or compressed as .gz, .bz2, .xz"""
    output: Path | None = None
    """where the answers go, {id: text}"""
    nbest: Path | None = None
    """where the best answers of each question go, with probabilities"""
    null_odds: Path | None = None
    """where the score of no answer minus that of the best answer goes, {id: number}, for squad.metric --na_prob"""
    null_threshold: float | None = None
    """null odds above which the answer is none, in place of the model's own"""
    strict: bool = False
    """fail at the first malformed question"""
    question: str | None = None
    """one question, asked of --context"""
    context: str | None = None
    """the passage of --question"""
    batch: int = 32
    """windows at once, at most"""
    compute: Compute = "float32"
    """type of the encoder's matrix products"""
    n_best: int = 20
    """answers in the list of a question"""
    max_answer_length: int = 30
    """tokens of the longest answer"""
    device: Kind = "auto"
    """what to compute on; auto takes a GPU where there is one"""

    def __post_init__(self) -> None:
        if (self.dataset is None) != (self.output is None) or (self.question is None) != (self.context is None):
            raise UsageError("--dataset needs --output, and --question needs --context")
        if (self.dataset is None) == (self.question is None):
            raise UsageError("give either --dataset and --output, or --question and --context")
        if min(self.batch, self.n_best, self.max_answer_length) < 1:
            raise UsageError("--batch, --n_best and --max_answer_length must be positive")
        if self.null_threshold is not None and math.isnan(self.null_threshold):
            raise UsageError("--null_threshold must be a number")
        given = [path for path in (self.output, self.nbest, self.null_odds) if path]
        if len(set(given)) < len(given):
            raise UsageError("--output, --nbest and --null_odds must be different files")


def null_threshold(fine_tuned: FineTuned, run: Path, given: float | None) -> float | None:
    """Null odds above which the answer is none: given, tuned, or the published default; None for never."""
    if given is not None:
        return given
    tuned = threshold.stored(run, fine_tuned.weights)
    if tuned is None and fine_tuned.impossible:
        print(f"note: {run}: no threshold is tuned; took 0 (see python -m squad.threshold)", file=sys.stderr)
        return 0.0
    return tuned


def mark(passage: str, found: Candidate) -> str:
    """The passage with the answer between >>> and <<<."""
    end = found.start + len(found.text)
    return f"{passage[: found.start]}>>>{found.text}<<<{passage[end:]}"


def write(reader: Reader, pieces: Iterable[Dataset], options: Options, limit: float | None) -> tuple[int, int]:
    """Writes what the options ask for, a piece at a time; returns the numbers of answers and of malformed items.

    Null odds above `limit` mean none. Of a malformed item they are 0, and its list holds nothing.
    """
    count = faults = 0
    with contextlib.ExitStack() as stack:  # all opened first: a bad path fails at once
        outputs = (options.output, options.nbest, options.null_odds)
        text, nbest, odds = (stack.enter_context(_json_object(path)) for path in outputs)
        for piece in pieces:
            for identity, found in itertools.chain(_broken(piece.faults, faults), _whole(reader.answer(piece))):
                text(identity, found.best(limit).text)
                nbest(identity, [asdict(candidate) for candidate in found.candidates])
                odds(identity, found.null_odds)
                count += 1
            faults += len(piece.faults)
    return count, faults


def _whole(answered: Iterable[tuple[Example, Answers]]) -> Iterator[tuple[str, Answers]]:
    return ((example.id, found) for example, found in answered)


def _broken(faults: Iterable[Fault], before: int) -> Iterator[tuple[str, Answers]]:
    for number, fault in enumerate(faults, before):
        if number < NAMED:
            fate = "answered with nothing" if fault.id is not None else "cannot be answered"
            print(f"warning: {fate}: {fault.reason}", file=sys.stderr)
        if fault.id is not None:
            yield fault.id, Answers(candidates=[NOTHING], null_odds=0.0)


@contextlib.contextmanager
def _json_object(path: Path | None) -> Iterator[Callable[[str, Any], None]]:
    """What adds one entry to the JSON object in `path`, which appears when the block ends; if None, does nothing."""
    if path is None:
        yield lambda key, value: None
        return
    with files.atomic_write(path) as stream:
        lead = "{"

        def add(key: str, value: Any) -> None:
            nonlocal lead
            stream.write(f"{lead}\n {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
            lead = ","

        yield add
        stream.write("\n}\n")


def one(reader: Reader, options: Options, limit: float | None) -> str:
    """The answer to the question on the command line, for a person."""
    question = Example(id="question", question=options.question or "", passage=0, answers=())
    dataset = Dataset(passages=[options.context or ""], examples=[question])
    ((_, found),) = reader.answer(dataset)
    best = found.best(limit)
    odds = "" if limit is None else f", null odds {found.null_odds:.2f}, threshold {limit:.2f}"
    if not best.text and odds:
        return f"no answer  ({odds[2:]})"
    return f"{best.text}  (probability {best.probability:.2f}{odds})\n{mark(dataset.passages[0], best)}"


def main(argv: list[str]) -> None:
    """Runs the command."""
    options = cli.parse(Options, argv, prog="python -m squad.predict", description=__doc__)
    pieces: Iterable[Dataset] = ()
    if options.dataset is not None:
        rest = examples.pieces(options.dataset, strict=options.strict)
        pieces = itertools.chain([next(rest)], rest)  # read before the model: a bad path fails at once
    devices.choose(options.device)
    fine_tuned = load(options.model, options.compute)
    limit = null_threshold(fine_tuned, options.model, options.null_threshold)
    reader = Reader(
        fine_tuned,
        batch=options.batch,
        n_best=options.n_best,
        max_answer_length=options.max_answer_length,
        null=limit is not None,
    )
    if options.dataset is None:
        print(one(reader, options, limit))
        return
    begun = time.perf_counter()
    count, faults = write(reader, pieces, options, limit)
    seconds = time.perf_counter() - begun
    if faults:
        print(f"warning: {options.dataset}: {faults} malformed items, the first {NAMED} named above", file=sys.stderr)
    print(f"{options.output}: {count} answers in {seconds:.1f} s ({count / seconds:.1f} questions/s)", file=sys.stderr)


if __name__ == "__main__":
    cli.main(main)
