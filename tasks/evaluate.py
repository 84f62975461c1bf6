"""Score a fine-tuned model, or a file of predictions, on labelled examples.

    python -m tasks.evaluate --model RUN --input DEV.tsv
    python -m tasks.evaluate --model RUN --folder GLUE/MNLI [--split dev]
    python -m tasks.evaluate --model RUN --input DEV.tsv --predictions predictions.jsonl

RUN is the directory of a tasks.train run, or an import. The input has the layout that the model was trained on; the
folder is the data set as it is distributed. With --predictions an output of tasks.predict is scored instead of the
model; it must have one prediction for each example. Prints one line of JSON: the number of examples, and the metrics of
the task in percent. A metric that is not defined, as the correlation of predictions that are all equal, is 0 and named
in a note.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bert.core import cli, files, ranges
from bert.core.config import CountOrNone, Size
from bert.core.errors import InputError, UsageError
from bert.core.ranges import BatchSize, Share
from bert.hardware import devices
from bert.hardware.devices import Kind as DeviceKind
from bert.runs import Compute
from tasks import datasets, features, inputs, metrics
from tasks.config import TaskData, Windows
from tasks.examples import Skipped
from tasks.kind import ExampleKind
from tasks.model import FineTuned, Reader, load


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m tasks.evaluate`."""

    model: Path
    """run directory of python -m tasks.train"""
    input: Path | None = None
    """labelled examples, in the layout that the model was trained on; plain or compressed (.gz, .bz2, .xz)"""
    folder: Path | None = None
    """folder of the data set, instead of --input"""
    split: Literal["train", "dev", "test"] = "dev"
    """part of the folder to score"""
    predictions: Path | None = None
    """output of tasks.predict for the same examples"""
    text: tuple[str, ...] | None = None
    """column of the text, or columns of the pair, if they have other names than in training"""
    label: str | None = None
    """column of the label, if it has another name than in training"""
    label_columns: tuple[str, ...] | None = None
    """of several labels: a column of 0 and 1 for each, if the file has these"""
    threshold: Share | None = None
    """of several labels: probability from which a label is given, instead of those stored with the model"""
    windows: Windows | None = None
    """what is done with a text that is too long: first cuts it, mean and max read all of it; default: as in training"""
    stride: Size | None = None
    """tokens between the starts of two windows, instead of that of training"""
    limit: CountOrNone = 0
    """number of examples to score, from the first on; 0: all"""
    strict: bool = False
    """fail at the first malformed example; false leaves malformed ones out, and reports them"""
    batch: BatchSize = 32
    """maximum sequences per batch"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products"""
    device: DeviceKind = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if (self.input is None) == (self.folder is None):
            raise UsageError("give either --input or --folder")
        if self.limit and self.predictions is not None:
            raise UsageError("--limit has no effect with --predictions; leave it out")


def labelled_by(
    data: TaskData, text: tuple[str, ...] | None, label: str | None, label_columns: tuple[str, ...] | None
) -> TaskData:
    """Return the settings with the columns that a command line gives. Raise UsageError as `datasets.check` does."""
    each = data.label_columns if label_columns is None and label is None else label_columns or ()
    changed = dataclasses.replace(datasets.with_columns(data, text, label), label_columns=each)
    datasets.check(changed)
    return changed


def inputs_of(options: Options, data: TaskData) -> dict[str, Path]:
    """Return the files to score, by the name that their scores have."""
    if options.input is not None:
        return {"": options.input}
    assert options.folder is not None, "one of both is given"
    paths = datasets.files(data, options.folder, options.split)
    if not paths:
        raise UsageError(f"--split {options.split}: {data.task} has none")
    return paths


def compare(kind: ExampleKind, path: Path, predictions: Path, skipped: Skipped) -> dict[str, Any]:
    """Return the number of examples and the metrics in percent of predictions that were written to a file."""
    examples = datasets.of(kind.data).read(kind.data, path, "dev", skipped)
    gold = [(example.id, example) for example in examples]
    with files.open_text(predictions) as stream:
        numbered = enumerate(files.read_lines(stream, predictions), 1)
        lines = [_parsed(line, number, predictions) for number, line in numbered]
    expected, predicted = metrics.by_id(gold, ((str(line.get("id")), line) for line in lines))
    return _report(kind.compare(expected, predicted), len(expected))


def _parsed(text: str, number: int, path: Path) -> dict[str, Any]:
    try:
        line = files.parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: line {number}: not JSON ({error}); give an output of tasks.predict") from error
    if not isinstance(line, dict):
        raise InputError(f"{path}: line {number}: not a JSON object; give an output of tasks.predict")
    return line


def _report(scores: metrics.Scores, count: int) -> dict[str, Any]:
    """Return the scores in percent with the number of examples; name those that are not defined."""
    if note := scores.note():
        print(f"note: {note}", file=sys.stderr)
    return {"examples": count} | {name: 100 * value for name, value in scores.values.items()}


def logits_and_gold(
    fine_tuned: FineTuned[ExampleKind], reader: Reader[ExampleKind], path: Path, skipped: Skipped, limit: int = 0
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the logits of all examples with labels, and their features but the inputs. All are held in memory.

    limit: number of examples, from the first on; 0: all.
    """
    kind = fine_tuned.kind
    parts: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
    examples = features.limited(datasets.of(kind.data).read(kind.data, path, "dev", skipped), limit)
    for chunk in features.chunks(examples, kind.at_once):
        arrays = kind.encode(chunk, fine_tuned.tokenizer)
        if "label" not in arrays:
            raise InputError(f"{path}: example {chunk[0].id} has no label; give labelled examples")
        parts.append((reader.logits(arrays), {name: arrays[name] for name in arrays if name not in inputs.NAMES}))
    skipped.report()
    kind.seen.report(path, kind.length)
    if not parts:
        raise InputError(f"{path}: no usable example; check the file and the names of its columns")
    gold = {name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]}
    return np.concatenate([logits for logits, _ in parts]), gold


def evaluate(
    fine_tuned: FineTuned[ExampleKind], reader: Reader[ExampleKind], path: Path, skipped: Skipped, limit: int = 0
) -> dict[str, Any]:
    """Return the number of examples and the metrics in percent. limit: number of examples to score; 0: all."""
    logits, gold = logits_and_gold(fine_tuned, reader, path, skipped, limit)
    kind = fine_tuned.kind
    read = {} if kind.data.windows == "first" else {"windows": kind.data.windows}
    return _report(kind.scores(logits, gold), kind.count(gold)) | read


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m tasks.evaluate", description=__doc__)
    devices.choose(options.device)
    fine_tuned = load(options.model, options.compute, options.threshold)
    data = labelled_by(fine_tuned.kind.data, options.text, options.label, options.label_columns)
    fine_tuned.kind.data = datasets.in_windows(data, options.windows, options.stride)
    reader = Reader(fine_tuned, options.batch)
    result: dict[str, Any] = {}
    for name, path in inputs_of(options, fine_tuned.kind.data).items():
        skipped = Skipped(options.strict)
        if options.predictions is not None:
            scores = compare(fine_tuned.kind, path, options.predictions, skipped)
        else:
            scores = evaluate(fine_tuned, reader, path, skipped, options.limit)
        result |= {f"{name}_{metric}" if name else metric: value for metric, value in scores.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    cli.main(main)
