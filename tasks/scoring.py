"""Scores of a fine-tuned model, or of a file of predictions, on labelled examples."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.core import files
from bert.core.errors import InputError
from bert.runs import Run
from tasks import datasets, features, inputs, metrics, tables
from tasks.config import TaskData
from tasks.examples import Skipped
from tasks.loading import load
from tasks.model import FineTuned, Reader
from tasks.stored import ExampleKind

BATCH = 32  # sequences that are computed at once


def labelled_by(
    data: TaskData, text: tuple[str, ...] | None, label: str | None, label_columns: tuple[str, ...] | None
) -> TaskData:
    """Return the settings with the columns that a command line gives.

    Raise UsageError as `datasets.check` does, and for columns of files that have none to choose.
    """
    datasets.check_columns(data, text or label)
    each = data.label_columns if label_columns is None and label is None else label_columns or ()
    changed = dataclasses.replace(datasets.with_columns(data, text, label), label_columns=each)
    datasets.check(changed)
    return changed


def compare(kind: ExampleKind, path: Path, predictions: Path, skipped: Skipped) -> dict[str, Any]:
    """Return the number of examples and the metrics in percent of predictions that were written to a file."""
    if tables.kind_of(predictions) in (".csv", ".tsv", tables.PARQUET):
        raise InputError(f"{predictions}: only predictions in .jsonl are scored; give tasks.predict such an --output")
    examples = datasets.of(kind.data).read(kind.data, path, "dev", skipped)
    gold = [(example.id, example) for example in examples]
    with files.open_text(predictions) as stream:
        numbered = enumerate(files.read_lines(stream, predictions), 1)
        lines = [_parsed(line, number, predictions) for number, line in numbered]
    expected, predicted = metrics.by_id(gold, ((str(line.get("id")), line) for line in lines))
    return report(kind.compare(expected, predicted), len(expected))


def _parsed(text: str, number: int, path: Path) -> dict[str, Any]:
    try:
        line = files.parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: line {number}: not JSON ({error}); give an output of tasks.predict") from error
    if not isinstance(line, dict):
        raise InputError(f"{path}: line {number}: not a JSON object; give an output of tasks.predict")
    return line


def report(scores: metrics.Scores, count: int) -> dict[str, Any]:
    """Return the scores with the number of examples; name those that are not defined."""
    if note := scores.note():
        print(f"note: {note}", file=sys.stderr)
    return {"examples": count} | scores.values


def logits_and_gold(
    fine_tuned: FineTuned[ExampleKind], reader: Reader[ExampleKind], path: Path, skipped: Skipped, limit: int = 0
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the logits of all examples with labels, and their features without the inputs. All are held in memory.

    limit: number of examples, from the first on; 0: all.
    """
    kind = fine_tuned.kind
    parts: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
    examples = features.limited(datasets.of(kind.data).read(kind.data, path, "dev", skipped), limit)
    for chunk in features.chunks(examples, kind.at_once):
        arrays = kind.encode(chunk, fine_tuned.tokenizer)
        if "label" not in arrays:
            raise InputError(f"{path}: example {chunk[0].id} has no label; give labelled examples")
        parts.append(
            (reader.logits(arrays, len(chunk)), {name: arrays[name] for name in arrays if name not in inputs.NAMES})
        )
    skipped.report()
    kind.seen.report(path, kind.length)
    if not parts:
        raise InputError(f"{path}: no usable example; check the file and the names of its columns")
    gold = {name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]}
    return np.concatenate([logits for logits, _ in parts]), gold


def scores(run: Run, path: Path, outputs: Callable[..., Sequence[Any]]) -> dict[str, float]:
    """Return the metrics in percent from the logits that `outputs` computes for examples, as `HeadSpec.scores` says."""
    fine_tuned = load(run)
    kind, skipped = fine_tuned.kind, Skipped(strict=False)
    reader = Reader(fine_tuned, BATCH, outputs=outputs)
    with reader.counted("score", "examples", datasets.count(kind.data, path, "dev")):
        values = kind.scores(*logits_and_gold(fine_tuned, reader, path, skipped)).values
    return {name: values[name] for name in kind.metrics}


def evaluate(
    fine_tuned: FineTuned[ExampleKind], reader: Reader[ExampleKind], path: Path, skipped: Skipped, limit: int = 0
) -> dict[str, Any]:
    """Return the number of examples and the metrics in percent. limit: number of examples to score; 0: all."""
    logits, gold = logits_and_gold(fine_tuned, reader, path, skipped, limit)
    kind = fine_tuned.kind
    read = {} if kind.data.windows == "first" else {"windows": kind.data.windows}
    return report(kind.scores(logits, gold), kind.count(gold)) | read
