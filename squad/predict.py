"""Answer questions with a fine-tuned model.

    python -m squad.predict --model RUN --dataset DEV.json --output predictions.json [--nbest nbest.json]
    python -m squad.predict --model RUN --question "Who ...?" --context "Once upon a time ..."

RUN is the directory of a squad.train run. The output is {question id: answer}; every answer is a part of its passage.
Gold answers in the file are not read, whatever their form. A malformed question is reported and, if it has an id, gets
the answer "". The answer is also "" (no answer) if the null odds, which are the score of no answer minus the score of
the best answer, are above a threshold: --null_threshold, or the one stored by squad.threshold, or 0 if the model was
trained on impossible questions. Otherwise every question gets an answer. Output files appear only when complete. A
JSONL dataset is read in pieces, so it may have any length.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bert.core import cli, ending, files, ranges
from bert.core.errors import UsageError
from bert.core.ranges import AnyNumber, BatchSize, Range
from bert.hardware.choices import Compute, DeviceName, EngineName
from squad import examples, threshold
from squad.answers import MAX_ANSWER_LENGTH, N_BEST, NO_ANSWER, Answers, Candidate
from squad.examples import Dataset, Example, Fault

if TYPE_CHECKING:
    from squad.model import AnswerSpans
    from squad.reader import Reader
    from tasks.model import FineTuned

MAX_REPORTED = 5  # malformed questions that are reported, one per line


@dataclass(frozen=True, kw_only=True)
class Options:
    model: cli.Run
    """run directory of python -m squad.train"""
    dataset: Path | None = None
    """questions in SQuAD format (.json) or one per line (.jsonl), plain or compressed (.gz, .bz2, .xz), or .parquet"""
    output: Path | None = None
    """output file for the answers, {id: text}"""
    nbest: Path | None = None
    """output file for the n best answers of each question, with probabilities"""
    null_odds: Path | None = None
    """output file for the null odds, {id: number}, for squad.metric --na_prob"""
    null_threshold: AnyNumber | None = None
    """null odds above which the answer is "", instead of the threshold stored with the model"""
    strict: bool = False
    """stop with an error at the first malformed question"""
    question: str | None = None
    """a single question about --context"""
    context: str | None = None
    """the passage for --question"""
    batch: BatchSize = 32
    """maximum windows per batch"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products"""
    n_best: Annotated[int, Range(1, 10_000)] = N_BEST
    """answers per question in --nbest"""
    max_answer_length: Annotated[int, Range(1, 65_536)] = MAX_ANSWER_LENGTH
    """maximum length of an answer, in tokens"""
    engine: EngineName = "tensorflow"
    """what computes the encoder: tensorflow; openvino or openvino_int8, on CPUs; auto: openvino if it can"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if (self.dataset is None) != (self.output is None) or (self.question is None) != (self.context is None):
            raise UsageError("--dataset needs --output, and --question needs --context")
        if (self.dataset is None) == (self.question is None):
            raise UsageError("give either --dataset and --output, or --question and --context")
        for name in ("nbest", "null_odds"):
            if self.question is not None and getattr(self, name) is not None:
                raise UsageError(f"--{name} is for --dataset: the answer to --question is printed; leave it out")
        outputs = [path for path in (self.output, self.nbest, self.null_odds) if path]
        if len(set(outputs)) < len(outputs):
            raise UsageError("--output, --nbest and --null_odds must be different files")


def null_threshold(fine_tuned: FineTuned[AnswerSpans], run: Path, requested: float | None) -> float | None:
    """Return the null odds above which there is no answer: requested, stored, or the published default 0.

    None means that every question gets an answer.
    """
    if requested is not None:
        return requested
    stored = threshold.load_threshold(run, fine_tuned.run.weights)
    if stored is None and fine_tuned.kind.impossible:
        print(f"note: {run}: no stored threshold; using 0 (see python -m squad.threshold)", file=sys.stderr)
        return 0.0
    return stored


def highlight(passage: str, answer: Candidate) -> str:
    """Return the passage with the answer between >>> and <<<."""
    return f"{passage[: answer.start]}>>>{answer.text}<<<{passage[answer.end :]}"


def write(reader: Reader, pieces: Iterable[Dataset], options: Options) -> tuple[int, int]:
    """Write the requested files, a piece at a time; return the numbers of answers and of malformed items.

    A malformed item has null odds 0 and an empty best answer.
    """
    count = faults = 0
    with contextlib.ExitStack() as stack:  # all files are opened first: a bad path fails at once
        outputs = (options.output, options.nbest, options.null_odds)
        add_text, add_nbest, add_odds = (stack.enter_context(_json_object(path)) for path in outputs)
        for piece in pieces:
            answered = ((example.id, answers) for example, answers in reader.answer(piece))
            for identity, answers in itertools.chain(_empty_answers(piece.faults, faults), answered):
                add_text(identity, answers.best(reader.limit).text)
                add_nbest(identity, [asdict(candidate) for candidate in answers.candidates])
                add_odds(identity, answers.null_odds)
                count += 1
            faults += len(piece.faults)
    return count, faults


def _empty_answers(faults: Iterable[Fault], before: int) -> Iterator[tuple[str, Answers]]:
    """Report malformed questions and yield an empty answer for those with an id. before: number reported earlier."""
    for number, fault in enumerate(faults, before):
        if number < MAX_REPORTED:
            outcome = 'answered with ""' if fault.id is not None else "not answered"
            print(f"warning: malformed question {outcome}: {fault.reason}", file=sys.stderr)
        if fault.id is not None:
            yield fault.id, Answers(candidates=[NO_ANSWER], null_odds=0.0)


@contextlib.contextmanager
def _json_object(path: Path | None) -> Iterator[Callable[[str, Any], None]]:
    """Yield a function that adds an entry to a JSON object in `path`, which appears at the end; None: no file."""
    if path is None:
        yield lambda key, value: None
        return
    with files.atomic_write(path) as stream:
        separator = "{"

        def add(key: str, value: Any) -> None:
            nonlocal separator
            stream.write(f"{separator}\n {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
            separator = ","

        yield add
        stream.write("\n}\n")


def answer_one(reader: Reader, options: Options) -> str:
    """Return the answer to the question on the command line, as text for the terminal."""
    question = Example(id="question", question=options.question or "", passage=0, answers=())
    dataset = Dataset(passages=[options.context or ""], examples=[question])
    ((_, answers),) = reader.answer(dataset)
    best, limit = answers.best(reader.limit), reader.limit
    odds = "" if limit is None else f", null odds {answers.null_odds:.2f}, threshold {limit:.2f}"
    if not best.text and odds:
        return f"no answer  ({odds[2:]})"
    return f"{best.text}  (probability {best.probability:.2f}{odds})\n{highlight(dataset.passages[0], best)}"


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m squad.predict", description=__doc__)
    pieces: Iterable[Dataset] = ()
    if options.dataset is not None:
        rest = examples.read_pieces(options.dataset, strict=options.strict, gold=False)
        pieces = itertools.chain([next(rest)], rest)  # the first is read before the model: a bad path fails at once
    from bert import resumable
    from bert.hardware import devices
    from squad.model import load
    from squad.reader import Reader

    devices.choose(options.device)
    fine_tuned = load(options.model, options.compute, options.engine)
    reader = Reader(
        fine_tuned,
        batch=options.batch,
        limit=null_threshold(fine_tuned, options.model, options.null_threshold),
        n_best=options.n_best,
        max_answer_length=options.max_answer_length,
    )
    if options.dataset is None:
        print(answer_one(reader, options))
        reader.report("the question")
        return
    begun = time.perf_counter()
    written = (options.output, options.nbest, options.null_odds)
    with (
        resumable.keep(written, options.dataset, options, fine_tuned.run) as reader.compute,
        reader.counted("predict", "questions", examples.count(options.dataset)),
    ):
        count, faults = write(reader, pieces, options)
    seconds = time.perf_counter() - begun
    if faults:
        print(
            f"warning: {options.dataset}: {faults} malformed items, the first {MAX_REPORTED} reported above",
            file=sys.stderr,
        )
    reader.report(options.dataset)
    assert options.output is not None, "it is given with --dataset"
    language = ("--language", fine_tuned.kind.language) if fine_tuned.kind.language else ()
    metric = ("python", "-m", "squad.metric", options.dataset, options.output, *language)
    ending.print_next_command(options.output, f"{count:,} answers ({count / seconds:.1f} questions/s)", *metric)


if __name__ == "__main__":
    cli.main(main)
