"""Score a fine-tuned model, or a file of predictions, on labelled examples.

    python -m tasks.evaluate --model RUN --input DEV.tsv [--predictions predictions.jsonl]

RUN is the directory of a tasks.train run, or an import. The input has the layout that the model was trained on. Without
--predictions the model predicts; with it, the output of tasks.predict is scored, and every example must have one
prediction. Prints one line of JSON: the number of examples, and the metrics of the task in percent. A metric that
is not defined, as the correlation of predictions that are all equal, is 0 and named in a note.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bert import cli, ranges
from bert.errors import InputError
from bert.hardware import devices
from bert.hardware.devices import Kind as DeviceKind
from bert.ranges import BatchSize
from tasks import datasets, features, inputs
from tasks.examples import Skipped
from tasks.model import Compute, FineTuned, Reader, load


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m tasks.evaluate`."""

    model: Path
    """run directory of python -m tasks.train"""
    input: Path
    """labelled examples, in the layout that the model was trained on; plain or compressed (.gz, .bz2, .xz)"""
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


def evaluate(fine_tuned: FineTuned, reader: Reader, path: Path, skipped: Skipped) -> dict[str, Any]:
    """Return the number of examples and the metrics in percent. The logits of all examples are held in memory."""
    kind = fine_tuned.kind
    data = kind.data
    parts: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
    count = 0
    for chunk in features.chunks(datasets.of(data).read(data, path, "dev", skipped)):
        arrays = kind.encode(chunk, fine_tuned.tokenizer)
        if "label" not in arrays:
            raise InputError(f"{path}: example {chunk[0].id} has no label; give labelled examples")
        gold = {name: values for name, values in arrays.items() if name not in inputs.NAMES}
        parts.append((reader.logits(arrays), gold))
        count += len(chunk)
    if not parts:
        raise InputError(f"{path}: no usable example; check the file and the names of its columns")
    skipped.report()
    gold = {name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]}
    scores = kind.scores(np.concatenate([logits for logits, _ in parts]), gold)
    if note := scores.note():
        print(f"note: {note}", file=sys.stderr)
    return {"examples": count} | {name: 100 * value for name, value in scores.values.items()}


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m tasks.evaluate", description=__doc__)
    devices.choose(options.device)
    fine_tuned = load(options.model, options.compute)
    reader = Reader(fine_tuned, options.batch)
    print(json.dumps(evaluate(fine_tuned, reader, options.input, Skipped(options.strict))))


if __name__ == "__main__":
    cli.main(main)
