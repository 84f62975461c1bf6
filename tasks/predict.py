"""Predict with a fine-tuned model: classes, numbers, choices or tags, with their probabilities.

    python -m tasks.predict --model RUN --input TEST.tsv --output predictions.jsonl
    python -m tasks.predict --model RUN --input GLUE/CoLA/test.tsv --submission CoLA.tsv
    python -m tasks.predict --model RUN --folder GLUE --submission FOLDER
    python -m tasks.predict --model RUN "A text." ["The second text of a pair."]

RUN is the directory of a tasks.train run, or an import. The input has the layout that the model was trained on, or for
an import that of the recipes classify, regress, choose and tag; it may have any length. Labels in it are ignored. The
output has one line for each example, in order: {"id", "label", "probabilities"}, {"id", "value"} for a number, or
{"id", "words", "tags", "probabilities"}. Nothing is written if an example is malformed. With --folder, the folder of
GLUE or of the task, all test sets of the task are predicted, and FOLDER gets their submissions under the names that
GLUE demands: for MNLI both test sets and, if it is there, the diagnostic set AX.
"""

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bert import cli, ranges
from bert.errors import UsageError
from bert.hardware import devices
from bert.hardware.devices import Kind as DeviceKind
from bert.ranges import BatchSize
from bert.storage import files
from tasks import datasets, features, submission
from tasks.examples import Skipped, TextExample
from tasks.model import Compute, FineTuned, Reader, load


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m tasks.predict`."""

    model: Path
    """run directory of python -m tasks.train"""
    texts: cli.Positional[tuple[str, ...]] = ()
    """a text, or the two texts of a pair, instead of --input"""
    input: Path | None = None
    """examples, in the layout that the model was trained on; plain or compressed (.gz, .bz2, .xz)"""
    folder: Path | None = None
    """folder of GLUE, or of the task in it, instead of --input"""
    output: Path | None = None
    """output file, one line of JSON for each example"""
    submission: Path | None = None
    """output file as the GLUE server takes it, for its tasks; with --folder the folder for all of them"""
    text: tuple[str, ...] | None = None
    """column of the text, or columns of the pair, if they have other names than in training"""
    batch: BatchSize = 32
    """maximum sequences per batch"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products"""
    device: DeviceKind = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if [self.input is not None, self.folder is not None, bool(self.texts)].count(True) != 1:
            raise UsageError("give either --input, or --folder, or one or two texts")
        if self.input is not None and self.output is None and self.submission is None:
            raise UsageError("--input needs --output or --submission")
        if self.input is None and self.output is not None:
            raise UsageError("--output needs --input")
        if self.folder is not None and self.submission is None:
            raise UsageError("--folder needs --submission")
        if self.texts and self.submission is not None:
            raise UsageError("--submission needs --input or --folder")


def predictions(fine_tuned: FineTuned, reader: Reader, examples: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the prediction of each example, in order; as many as are encoded at once are held in memory."""
    for chunk in features.chunks(examples):
        arrays = fine_tuned.kind.encode(chunk, fine_tuned.tokenizer)
        yield from fine_tuned.kind.predictions(chunk, arrays, reader.logits(arrays))


def write(found: Iterable[dict[str, Any]], output: Path | None, submitted: Path | None, task: str) -> int:
    """Write predictions, as lines of JSON and as a submission; return the number of examples."""
    count = 0
    with contextlib.ExitStack() as stack:  # both files are opened first: a bad path fails at once
        stream = stack.enter_context(files.atomic_write(output)) if output else None
        add = stack.enter_context(submission.writer(task, submitted)) if submitted else None
        for prediction in found:
            if stream:
                stream.write(json.dumps(prediction, ensure_ascii=False) + "\n")
            if add:
                add(prediction["id"], prediction.get("label", prediction.get("value")))
            count += 1
    return count


def answer(fine_tuned: FineTuned, reader: Reader, texts: Sequence[str]) -> str:
    """Return the prediction for a text or a pair of texts, as JSON."""
    first, second, *rest = (*texts, None)
    if (rest and rest != [None]) or fine_tuned.kind.head != "classifier":
        raise UsageError("texts on the command line are for models of one text or of a pair; give --input")
    example = TextExample(id="text", first=str(first), second=second)
    return json.dumps(next(predictions(fine_tuned, reader, [example])), ensure_ascii=False)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m tasks.predict", description=__doc__)
    devices.choose(options.device)
    fine_tuned = load(options.model, options.compute)
    reader, data = Reader(fine_tuned, options.batch), fine_tuned.kind.data
    if options.texts:
        print(answer(fine_tuned, reader, options.texts))
        return
    if options.text:
        data = dataclasses.replace(data, text=options.text)
    todo: list[tuple[str, Path, Path | None, Path | None]]  # task, input, output and submission
    if options.folder is not None:
        assert options.submission is not None, "the options are checked"
        found = submission.test_sets(data.task, options.folder)
        todo = [(task, path, None, options.submission / f"{name}.tsv") for name, (task, path) in found.items()]
    else:
        assert options.input is not None, "the options are checked"
        todo = [(data.task, options.input, options.output, options.submission)]
    for task, path, output, submitted in todo:
        begun = time.perf_counter()
        of_task = dataclasses.replace(data, task=task)
        examples = datasets.of(of_task).read(of_task, path, "test", Skipped(strict=True))
        count = write(predictions(fine_tuned, reader, examples), output, submitted, task)
        seconds = time.perf_counter() - begun
        speed = f"{count} examples in {seconds:.1f} s ({count / seconds:.1f}/s)"
        print(f"{output or submitted}: {speed}", file=sys.stderr)


if __name__ == "__main__":
    cli.main(main)
