"""Predict with a fine-tuned model: classes, numbers, choices or tags, with their probabilities.

    python -m tasks.predict --model RUN --input TEST.tsv --output predictions.jsonl
    python -m tasks.predict --model RUN --input GLUE/CoLA/test.tsv --submission CoLA.tsv
    python -m tasks.predict --model RUN "A text." ["The second text of a pair."]

RUN is the directory of a tasks.train run, or an import. The input has the layout that the model was trained on, or for
an import that of the recipes classify, regress, choose and tag; it may have any length. Labels in it are ignored. The
output has one line for each example, in order: {"id", "label", "probabilities"}, {"id", "value"} for a number, or
{"id", "words", "tags", "probabilities"}. Nothing is written if an example is malformed.
"""

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bert import cli, ranges
from bert.errors import UsageError
from bert.hardware import devices
from bert.hardware.devices import Kind as DeviceKind
from bert.ranges import BatchSize
from bert.storage import files
from tasks import calibrate, datasets, features, submission
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
    output: Path | None = None
    """output file, one line of JSON for each example"""
    submission: Path | None = None
    """output file as the GLUE server takes it, for its tasks"""
    text: tuple[str, ...] | None = None
    """column of the text, or columns of the pair, if they have other names than in training"""
    calibrated: cli.Switch = False
    """predict with the temperature and the threshold of python -m tasks.calibrate"""
    batch: BatchSize = 32
    """maximum sequences per batch"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products"""
    device: DeviceKind = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if (self.input is None) == (not self.texts):
            raise UsageError("give either --input, or one or two texts")
        if self.input is not None and self.output is None and self.submission is None:
            raise UsageError("--input needs --output or --submission")
        if self.input is None and (self.output is not None or self.submission is not None):
            raise UsageError("--output and --submission need --input")


def predictions(fine_tuned: FineTuned, reader: Reader, examples: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the prediction of each example, in order; as many as are encoded at once are held in memory."""
    for chunk in features.chunks(examples):
        arrays = fine_tuned.kind.encode(chunk, fine_tuned.tokenizer)
        yield from fine_tuned.kind.predictions(chunk, arrays, reader.logits(arrays))


def write(found: Iterable[dict[str, Any]], options: Options, task: str) -> int:
    """Write the requested files; return the number of examples."""
    count = 0
    with contextlib.ExitStack() as stack:  # both files are opened first: a bad path fails at once
        stream = stack.enter_context(files.atomic_write(options.output)) if options.output else None
        add = stack.enter_context(submission.writer(task, options.submission)) if options.submission else None
        for prediction in found:
            if stream:
                stream.write(json.dumps(prediction, ensure_ascii=False) + "\n")
            if add:
                add(prediction["id"], prediction.get("label", prediction.get("value")))
            count += 1
    return count


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m tasks.predict", description=__doc__)
    devices.choose(options.device)
    fine_tuned = load(options.model, options.compute)
    if options.calibrated:
        calibrate.apply(fine_tuned, options.model)
    reader, data = Reader(fine_tuned, options.batch), fine_tuned.kind.data
    if options.input is None:
        first, second, *rest = (*options.texts, None)
        if (rest and rest != [None]) or fine_tuned.kind.head != "classifier":
            raise UsageError("texts on the command line are for models of one text or of a pair; give --input")
        example = TextExample(id="text", first=str(first), second=second)
        print(json.dumps(next(predictions(fine_tuned, reader, [example])), ensure_ascii=False))
        return
    begun = time.perf_counter()
    if options.text:
        data = dataclasses.replace(data, text=options.text)
    examples = datasets.of(data).read(data, options.input, "test", Skipped(strict=True))
    count = write(predictions(fine_tuned, reader, examples), options, data.task)
    seconds = time.perf_counter() - begun
    where = options.output or options.submission
    print(f"{where}: {count} examples in {seconds:.1f} s ({count / seconds:.1f}/s)", file=sys.stderr)


if __name__ == "__main__":
    cli.main(main)
