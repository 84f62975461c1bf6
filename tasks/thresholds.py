"""Choose the probability from which each label is given, on labelled examples that the model was not trained on.

    python -m tasks.thresholds --model RUN --input DEV.jsonl

For each label it is the threshold with the highest F1 on DEV.jsonl. The thresholds are stored in RUN/thresholds.json,
and every command that uses the run takes them. tasks.train does so at its end with --data.dev. A label that no text of
the file has keeps 0.5. Prints one line of JSON. The scores on the same file are better than those on other texts.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert import thresholds
from bert.core import cli, ending, files, ranges, stores
from bert.core.errors import UsageError
from bert.core.ranges import BatchSize
from bert.hardware.choices import Compute
from bert.hardware.choices import DeviceName as DeviceKind
from bert.thresholds import Tuned
from tasks import label_metrics
from tasks.examples import Skipped

if TYPE_CHECKING:
    from tasks.model import FineTuned


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m tasks.thresholds`."""

    model: cli.Run
    """run directory of python -m tasks.train multilabel, or an import with such a head"""
    input: Path
    """labelled examples, in the layout that the model was trained on"""
    text: tuple[str, ...] | None = None
    """column of the text, or columns of the pair, if they have other names than in training"""
    label: str | None = None
    """column of the labels, if it has another name than in training"""
    label_columns: tuple[str, ...] | None = None
    """a column of 0 and 1 for each label, if the file has these"""
    batch: BatchSize = 32
    """maximum sequences per batch"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products; use the same one for tasks.predict"""
    device: DeviceKind = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)


def tune(fine_tuned: FineTuned[Any], path: Path, batch: int) -> Tuned:
    """Return the best thresholds on a file, and store them in the run.

    Raise UsageError unless the model can give a text several labels.
    """
    from tasks.model import Reader
    from tasks.multilabel import MultiLabel, sigmoid
    from tasks.scoring import logits_and_gold

    kind = fine_tuned.kind
    if not isinstance(kind, MultiLabel):
        raise UsageError(f"{fine_tuned.run.path}: not a model of several labels; thresholds are for multilabel")
    logits, features = logits_and_gold(fine_tuned, Reader(fine_tuned, batch), path, Skipped())
    gold, probabilities = kind.label_of_text(features), sigmoid(kind.of_text(features, logits))
    names = kind.labels.names
    best = [label_metrics.best_threshold(gold[:, n], probabilities[:, n]) for n in range(len(names))]
    tuned = Tuned(
        thresholds={name: threshold for name, (threshold, _) in zip(names, best, strict=True)},
        f1={name: 100 * f1 for name, (_, f1) in zip(names, best, strict=True)},
        examples=len(gold),
        dataset=path.name,
        dataset_sha256=files.sha256(path),
        weights=fine_tuned.run.weights,
    )
    thresholds.write(fine_tuned.run.path, tuned)
    if absent := [names[n] for n in np.flatnonzero((gold <= 0).all(axis=0))]:
        listed = label_metrics.listed("no text has", absent, [True] * len(absent))
        print(f"note: {path}: {listed}; the threshold stays {thresholds.DEFAULT}", file=sys.stderr)
    return tuned


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m tasks.thresholds", description=__doc__)
    from bert.hardware import devices
    from tasks.loading import load
    from tasks.scoring import labelled_by

    devices.choose(options.device)
    fine_tuned = load(options.model, options.compute, threshold=thresholds.DEFAULT)
    fine_tuned.kind.data = labelled_by(fine_tuned.kind.data, options.text, options.label, options.label_columns)
    tuned = tune(fine_tuned, options.input, options.batch)
    stores.send_run(options.model)
    print(
        json.dumps({name: value for name, value in asdict(tuned).items() if name in ("thresholds", "f1", "examples")}),
        flush=True,
    )
    ending.print_next_command(
        options.model / thresholds.NAME, "", "python", "-m", "tasks.predict", "--model", options.model
    )


if __name__ == "__main__":
    cli.main(main)
