"""Predict with a fine-tuned model: classes, numbers, choices or tags, with their probabilities.

    python -m tasks.predict --model RUN --input TEST.tsv --output predictions.jsonl
    python -m tasks.predict --model RUN --input GLUE/CoLA/test.tsv --submission CoLA.tsv
    python -m tasks.predict --model RUN --folder GLUE --submission FOLDER
    python -m tasks.predict --model RUN "A text." ["The second text of a pair."]

RUN is the directory of a tasks.train run, or an import. The input has the layout that the model was trained on, or for
an import that of the recipes classify, multilabel, regress, choose and tag; it may have any length. Labels in it are
ignored. The output has one row for each example, in order: {"id", "label", "probabilities"}, for several labels {"id",
"labels", "probabilities"}, for a number {"id", "value"}, or {"id", "words", "tags", "probabilities"}. Where windows are
read, `windows` is their number. The suffix of the output says its format, as that of the input does: .jsonl, .tsv, .csv
or .parquet. In .tsv and .csv, the probability of class NAME is the column `probabilities.NAME`. Nothing is written if
an example is malformed. With --folder, the folder of GLUE or of the task, all test sets of the task are predicted, and
FOLDER gets their submissions under the names that GLUE demands: for MNLI both test sets and, if it is there, the
diagnostic set AX.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bert.core import cli, ending, ranges
from bert.core.config import Size
from bert.core.errors import UsageError
from bert.core.ranges import BatchSize, Range, Share
from bert.hardware.choices import Compute, EngineName
from bert.hardware.choices import DeviceName as DeviceKind
from tasks import glue, tables
from tasks.config import TaskData, Windows
from tasks.examples import Skipped, TextExample

if TYPE_CHECKING:
    from tasks.model import FineTuned, Reader
    from tasks.stored import ExampleKind


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m tasks.predict`."""

    model: cli.Run
    """run directory of python -m tasks.train"""
    texts: cli.Positional[tuple[str, ...]] = ()
    """a text, or the two texts of a pair, instead of --input"""
    input: Path | None = None
    """examples, in the layout that the model was trained on; plain or compressed (.gz, .bz2, .xz, .zst)"""
    folder: Path | None = None
    """folder of GLUE, or of the task in it, instead of --input"""
    output: Path | None = None
    """output file with a row for each example: .jsonl, .tsv, .csv or .parquet; "-" prints lines of JSON"""
    submission: Path | None = None
    """output file as the GLUE server takes it, for its tasks; with --folder the folder for all of them"""
    text: tuple[str, ...] | None = None
    """column of the text, or columns of the pair, if they have other names than in training; with a model of GLUE, the
    input is then a table of your own"""
    n_best: Annotated[int, Range(0, 10_000)] = 0
    """write the most probable classes or choices, best first, this many at most; 0: the probabilities of all"""
    threshold: Share | None = None
    """of several labels: probability from which a label is given, instead of those stored with the model"""
    windows: Windows | None = None
    """what is done with a text that is too long: first cuts it, mean and max read all of it; default: as in training"""
    stride: Size | None = None
    """tokens between the starts of two windows, instead of that of training"""
    batch: BatchSize = 32
    """maximum sequences per batch"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products"""
    engine: EngineName = "tensorflow"
    """what computes the encoder: tensorflow; openvino or openvino_int8, on CPUs; auto: openvino if it can"""
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
        if self.n_best and self.output is None:
            raise UsageError("--n_best needs --output")
        if self.texts and self.text:
            raise UsageError("--text names columns of --input; leave it out")
        if self.texts and self.submission is not None:
            raise UsageError("--submission needs --input or --folder")


def predictions(reader: Reader[ExampleKind], examples: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the prediction of each example, in order. `at_once` examples of the kind are held in memory."""
    from tasks import features

    kind = reader.fine_tuned.kind
    for chunk in features.chunks(examples, kind.at_once):
        arrays = kind.encode(chunk, reader.fine_tuned.tokenizer)
        yield from kind.predictions(chunk, arrays, reader.logits(arrays, len(chunk)))


def with_told_ids(lines: Iterable[dict[str, Any]], path: Path) -> Iterator[dict[str, Any]]:
    """Yield the predictions for a file; at the end print a line if several have the same id."""
    from bert.text.contents import Distinct

    ids = Distinct()
    for count, line in enumerate(lines, 1):
        ids.note(str(line["id"]), count)
        yield line
    if repeated := ids.repeated():
        print(
            f"warning: {path}: examples {repeated[1]} and {repeated[0]} have the same id (the number of a row, from 0, "
            "where it has none); predictions are in the order of the examples",
            file=sys.stderr,
        )


def write(written_predictions: Iterable[dict[str, Any]], output: Path | None, submitted: Path | None, task: str) -> int:
    """Write predictions in the format of the output's suffix, and as a submission; return the number of examples."""
    from tasks import submission

    count = 0
    with contextlib.ExitStack() as stack:  # both files are opened first: a bad path fails at once
        written = stack.enter_context(tables.writer(output)) if output else None
        add = stack.enter_context(submission.writer(task, submitted)) if submitted else None
        for prediction in written_predictions:
            if written:
                written(prediction)
            if add:
                add(prediction["id"], prediction.get("label", prediction.get("value")))
            count += 1
    return count


def best(prediction: dict[str, Any], count: int) -> dict[str, Any]:
    """Return a prediction with its most probable classes or choices in place of all probabilities."""
    probabilities = prediction.get("probabilities")
    if "label" not in prediction or probabilities is None:
        raise UsageError("--n_best is for models of classes and of choices; leave it out")
    named = probabilities if isinstance(probabilities, dict) else dict(enumerate(probabilities))
    order = sorted(named.items(), key=lambda item: -item[1])[:count]
    rest = {key: value for key, value in prediction.items() if key != "probabilities"}
    return rest | {"n_best": [{"label": label, "probability": probability} for label, probability in order]}


def own_layout(fine_tuned: FineTuned[ExampleKind], data: TaskData) -> TaskData:
    """Return `data` with the layout of one's own files instead of GLUE's.

    Raise UsageError if the number of text columns does not fit the task.
    """
    is_pair = bool(glue.TASKS[data.task].second)
    if len(data.text) != 1 + is_pair:
        raise UsageError(f"--text: a model of {data.task} reads {'pairs: give two columns' if is_pair else 'one text'}")
    return dataclasses.replace(data, task="regress" if fine_tuned.kind.labels.regression else "classify")


def answer(reader: Reader[ExampleKind], texts: Sequence[str]) -> str:
    """Return the prediction for a text or a pair of texts, as JSON."""
    first, second, *rest = (*texts, None)
    if (rest and rest != [None]) or not reader.fine_tuned.kind.of_texts:
        raise UsageError("texts on the command line are for models of one text or of a pair; give --input")
    example = TextExample(id="text", first=str(first), second=second)
    return json.dumps(next(predictions(reader, [example])), ensure_ascii=False)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m tasks.predict", description=__doc__)
    from bert import resumable
    from bert.hardware import devices
    from tasks import datasets, inputs, submission
    from tasks.loading import load
    from tasks.model import Reader

    devices.choose(options.device)
    fine_tuned = load(options.model, options.compute, options.threshold, options.engine)
    data = datasets.in_windows(fine_tuned.kind.data, options.windows, options.stride)
    fine_tuned.kind.data, reader = data, Reader(fine_tuned, options.batch)
    if options.texts:
        print(answer(reader, options.texts))
        fine_tuned.kind.seen.report("the text", data.length)
        return
    data = datasets.with_columns(data, options.text, None)
    todo: list[tuple[str, Path, Path | None, Path | None]]  # task, input, output and submission
    if options.folder is not None:
        assert options.submission is not None, "the options are checked"
        sets = submission.test_sets(data.task, options.folder)
        todo = [(task, path, None, options.submission / f"{name}.tsv") for name, (task, path) in sets.items()]
    else:
        assert options.input is not None, "the options are checked"
        todo = [(data.task, options.input, options.output, options.submission)]
    with contextlib.ExitStack() as stack:  # what is kept of one set stays until all are written
        for task, path, output, submitted in todo:
            reader.compute = stack.enter_context(resumable.keep([output, submitted], path, options, fine_tuned.run))
            begun = time.perf_counter()
            of_task = dataclasses.replace(data, task=task)
            if options.text and task in glue.TASKS:
                of_task = own_layout(fine_tuned, of_task)
            examples = datasets.of(of_task).read(of_task, path, "test", Skipped(strict=True))
            lines = with_told_ids(predictions(reader, examples), path)
            if options.n_best:
                lines = (best(prediction, options.n_best) for prediction in lines)
            with reader.counted("predict", "examples", datasets.count(of_task, path, "test")):
                count = write(lines, output, submitted, task)
            seconds = time.perf_counter() - begun
            fine_tuned.kind.seen.report(path, data.length)
            fine_tuned.kind.seen = inputs.EncodingCounts()
            made = output or submitted
            assert made is not None, "the options are checked"
            ending.print_next_command(
                "standard output" if str(made) == "-" else made, f"{count:,} examples ({count / seconds:.1f}/s)"
            )


if __name__ == "__main__":
    cli.main(main)
