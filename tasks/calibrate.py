"""Calibrate a classifier on a development set: its probabilities and, of two classes, the threshold between them.

    python -m tasks.calibrate --model RUN --input DEV.tsv [--metric f1]
    python -m tasks.predict --model RUN --calibrated ...

The temperature that makes the labels likeliest divides the logits (Guo et al. 2017). With two classes the second one is
predicted where its probability reaches the threshold with the best metric. Both are stored in RUN/calibration.json for
these weights, and used by tasks.predict --calibrated. Prints one line of JSON. Give other examples than those that the
model is scored on: a threshold fits the examples that it was tuned on.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Literal

from bert import cli, ranges
from bert.errors import InputError, UsageError
from bert.hardware import devices
from bert.hardware.devices import Kind as DeviceKind
from bert.ranges import BatchSize
from bert.storage import checked_json
from tasks import calibration
from tasks.classification import Classification, softmax
from tasks.evaluate import logits_and_gold
from tasks.examples import Skipped
from tasks.model import Compute, FineTuned, Reader, load

NAME = "calibration.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m tasks.calibrate`."""

    model: Path
    """run directory of python -m tasks.train"""
    input: Path
    """labelled examples, in the layout that the model was trained on; plain or compressed (.gz, .bz2, .xz)"""
    metric: Literal["f1", "accuracy", "matthews"] = "f1"
    """of two classes, what the threshold is to be best at; f1 is that of the second class"""
    batch: BatchSize = 32
    """maximum sequences per batch"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products"""
    device: DeviceKind = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """The content of `calibration.json`."""

    temperature: float
    """that logits are divided by"""
    threshold: float | None
    """probability from which the second of two classes is predicted; None: the likeliest class is"""
    error_before: float
    """expected calibration error without the temperature, a fraction"""
    error_after: float
    """the same with it"""
    examples: int
    """number of examples"""
    weights: str
    """content hash of the checkpoint"""


def calibrate(fine_tuned: FineTuned, options: Options) -> Calibration:
    """Return the calibration on labelled examples. Raise UsageError if the model is no classifier."""
    kind = fine_tuned.kind
    if not isinstance(kind, Classification) or kind.labels.regression:
        raise UsageError(f"{options.model}: only models of classes can be calibrated; this one has other outputs")
    reader = Reader(fine_tuned, options.batch)
    logits, gold = logits_and_gold(fine_tuned, reader, options.input, Skipped())
    labels = gold["label"][:, 0]
    fitted = calibration.fit_temperature(logits, labels)
    if fitted.at_limit:
        few = f"{options.input}: {len(labels)} examples"
        print(f"note: {few} tell no temperature but the limit {fitted.value:g}; give more examples", file=sys.stderr)
    before, after = softmax(logits), softmax(logits / fitted.value)
    threshold = None
    if len(kind.labels.names) == 2:
        threshold = calibration.tune_threshold(after[:, 1], labels, options.metric).value
    return Calibration(
        temperature=fitted.value,
        threshold=threshold,
        error_before=calibration.expected_calibration_error(before, labels),
        error_after=calibration.expected_calibration_error(after, labels),
        examples=len(labels),
        weights=fine_tuned.weights,
    )


def apply(fine_tuned: FineTuned, run: Path) -> None:
    """Let the model predict with the calibration that its run has. Raise UsageError if it has none for its weights."""
    path = run / NAME
    if not path.exists():
        raise UsageError(f"{path}: no such file; make it with python -m tasks.calibrate")
    stored: Calibration = checked_json.read(path, Calibration, what="a calibration of ours", remedy="calibrate again")
    if stored.weights != fine_tuned.weights:
        raise UsageError(f"{path}: made for another checkpoint; repeat python -m tasks.calibrate")
    if not isinstance(fine_tuned.kind, Classification):
        raise InputError(f"{path}: the model is no classifier; remove the file")
    fine_tuned.kind.temperature, fine_tuned.kind.threshold = stored.temperature, stored.threshold


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m tasks.calibrate", description=__doc__)
    devices.choose(options.device)
    found = dataclasses.asdict(calibrate(load(options.model, options.compute), options))
    checked_json.write(options.model / NAME, found)
    print(json.dumps(found))


if __name__ == "__main__":
    cli.main(main)
