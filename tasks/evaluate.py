"""Score a fine-tuned model, or a file of predictions, on labelled examples.

    python -m tasks.evaluate --model RUN --input DEV.tsv
    python -m tasks.evaluate --model RUN --folder GLUE/MNLI [--split dev]
    python -m tasks.evaluate --model RUN --input DEV.tsv --predictions predictions.jsonl

RUN is the directory of a tasks.train run, or an import. The input has the layout that the model was trained on; the
folder is the data set as it is distributed. With --predictions a .jsonl of tasks.predict is scored instead of the
model; it must have one prediction for each example. A run without a head, of `embed` or of pretraining, is scored by
its embeddings: with --input on pairs of texts with a score, as STS-B has them, by the correlation of cosine and score;
with --folder on queries and documents in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), by NDCG@10,
MRR@10, MAP@100 and accuracy@k, or on the test sets of STS in the folder, by the Spearman correlation of each and their
mean. Prints one line of JSON: the number of examples, and the metrics of the task in percent. A metric that is not
defined, as the correlation of predictions that are all equal, is 0 and named in a note.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bert.core import cli, ending, ranges
from bert.core.config import CountOrNone, Size
from bert.core.errors import UsageError
from bert.core.ranges import BatchSize, Share
from bert.core.rows import Rows
from bert.hardware.choices import Compute, EngineName
from bert.hardware.choices import DeviceName as DeviceKind
from tasks.config import TaskData, Windows
from tasks.examples import Skipped

if TYPE_CHECKING:
    from bert.runs import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m tasks.evaluate`."""

    model: cli.Run
    """run directory of python -m tasks.train"""
    input: Path | None = None
    """labelled examples, in the layout that the model was trained on; plain or compressed (.gz, .bz2, .xz, .zst)"""
    folder: Path | None = None
    """folder of the data set, instead of --input"""
    split: Literal["train", "dev", "test"] = "dev"
    """part of the folder to score"""
    predictions: Path | None = None
    """output of tasks.predict in .jsonl for the same examples"""
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
    engine: EngineName = "tensorflow"
    """what computes the encoder: tensorflow; openvino or openvino_int8, on CPUs; auto: openvino if it can"""
    device: DeviceKind = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if (self.input is None) == (self.folder is None):
            raise UsageError("give either --input or --folder")
        if self.input is not None and self.split != "dev":
            raise UsageError("--split is for --folder; leave it out")
        for name in ("limit", "threshold", "windows", "stride"):
            if self.predictions is not None and getattr(self, name) not in (None, getattr(Options, name)):
                raise UsageError(f"--{name} has no effect with --predictions; leave it out")


HEADLESS: Rows[Callable[[Run, Options], dict[str, Any]]] = Rows({"scores": "extensions.embeddings.scores:of_options"})
"""what gives the scores of a run without a head, whose embeddings are compared"""


def inputs_of(options: Options, data: TaskData) -> dict[str, Path]:
    """Return the files to score, by the names of their scores."""
    if options.input is not None:
        return {"": options.input}
    assert options.folder is not None, "one of both is given"
    from tasks import datasets

    paths = datasets.files(data, options.folder, options.split)
    if not paths:
        raise UsageError(f"--split {options.split}: {data.task} has none")
    return paths


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m tasks.evaluate", description=__doc__)
    from bert.hardware import devices
    from bert.runs import Run
    from tasks import datasets, scoring
    from tasks.loading import load
    from tasks.model import Reader

    devices.choose(options.device)
    run = Run.open(options.model, "the run directory of a trained model")
    if run.head is None:
        print(json.dumps(HEADLESS["scores"](run, options)), flush=True)
        ending.print_next_command(f"evaluated {options.model} on {options.input or options.folder}")
        return
    fine_tuned = load(run, options.compute, options.threshold, options.engine)
    data = scoring.labelled_by(fine_tuned.kind.data, options.text, options.label, options.label_columns)
    fine_tuned.kind.data = datasets.in_windows(data, options.windows, options.stride)
    reader = Reader(fine_tuned, options.batch)
    result: dict[str, Any] = {}
    for name, path in inputs_of(options, fine_tuned.kind.data).items():
        skipped = Skipped(options.strict)
        if options.predictions is not None:
            scores = scoring.compare(fine_tuned.kind, path, options.predictions, skipped)
        else:
            count = datasets.count(fine_tuned.kind.data, path, "dev", options.limit)
            with reader.counted("evaluate", "examples", count):
                scores = scoring.evaluate(fine_tuned, reader, path, skipped, options.limit)
        result |= {f"{name}_{metric}" if name else metric: value for metric, value in scores.items()}
    print(json.dumps(result), flush=True)
    ending.print_next_command(f"evaluated {options.model} on {options.input or options.folder}")


if __name__ == "__main__":
    cli.main(main)
