"""The probabilities from which a model of several labels gives each label: as `thresholds.json` of a run has them.

python -m tasks.thresholds writes them, and tasks.train at its end. Without them a label is given from one half on.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bert.core import checked_json
from bert.core.errors import IntegrityError, UsageError

NAME = "thresholds.json"
DEFAULT = 0.5


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The content of `thresholds.json`."""

    thresholds: dict[str, float]
    """by label"""
    f1: dict[str, float]
    """of each label, in percent, with its threshold, on the examples that it was tuned on"""
    examples: int
    """number of these examples"""
    dataset: str
    """name of their file"""
    dataset_sha256: str
    weights: str
    """content hash of the checkpoint"""

    def __post_init__(self) -> None:
        if wrong := [name for name, value in self.thresholds.items() if not 0 <= value <= 1]:
            raise ValueError(f"the threshold of {wrong[0]!a} is no probability")


def write(run: Path, tuned: Tuned) -> None:
    """Write the thresholds of a run."""
    checked_json.write(run / NAME, asdict(tuned))


def read(run: Path, labels: Sequence[str], weights: str) -> tuple[float, ...] | None:
    """Return the threshold of each label of a run; None if the run has no file of thresholds.

    weights: content hash of the checkpoint. Raise IntegrityError if the file is damaged or names other labels,
    UsageError if it was written for another checkpoint.
    """
    path = run / NAME
    if not path.exists():
        return None
    remedy = "tune again: python -m tasks.thresholds"
    tuned: Tuned = checked_json.read(path, Tuned, what="thresholds of labels", remedy=remedy)
    if tuned.thresholds.keys() != set(labels):
        raise IntegrityError(f"{path}: not of the labels of this model; {remedy}")
    if tuned.weights != weights:
        raise UsageError(f"{path}: tuned for another checkpoint; {remedy}, or remove the file to take {DEFAULT}")
    return tuple(tuned.thresholds[name] for name in labels)
