"""Evaluate a causal model without training on the task.

    python -m bert.evaluate_lm RUN wikitext wiki.test.tokens      # adjusted word perplexity of WikiText-103
    python -m bert.evaluate_lm RUN lambada lambada_test.jsonl     # accuracy of the last word, in the strict form
    python -m bert.evaluate_lm RUN heldout FOLDER                 # perplexity and bits per byte of held-out tokens

RUN is a run directory of bert.pretrain with a recipe such as gpt2_117m, or one created by bert.convert. wikitext takes
the original file, with spaces around punctuation. lambada takes one JSON object for each line, with a passage in
"text". FOLDER was made by python -m data.tokens with the tokenizer of the run. The definitions of the first two are
those of Megatron-LM; the hash of the file is printed with the result, since other copies of it give other figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from bert.core import checked_json, cli, ending, files, manifest, ranges
from bert.core.errors import InputError, UsageError
from bert.core.ranges import BatchSize, Range
from bert.hardware.choices import DeviceName

if TYPE_CHECKING:
    from extensions.gpt.token_stream import TokenStream
    from extensions.gpt.trained import Trained

OVERLAPPING_STRIDE = 32  # tokens, of the published perplexities
MAX_CHARACTERS = 1 << 28  # of a test set; WikiText-103's has 1.3 million


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.evaluate_lm`."""

    run: cli.Run
    """run directory of a causal model"""
    task: cli.Positional[Literal["wikitext", "lambada", "heldout"]]
    """what to evaluate on"""
    data: cli.Positional[Path]
    """file of the test set, or folder of python -m data.tokens"""
    window: Annotated[int, Range(1, 65_536)] | None = None
    """tokens that the model sees at once; none uses all its positions"""
    stride: Annotated[int, Range(1, 65_536)] | None = None
    """tokens by which the window moves; none is 32 for wikitext, as published, and the window for heldout"""
    split: str = "heldout"
    """split of the folder"""
    batch: BatchSize = 8
    """windows that are computed at once"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""
    json: cli.Switch = False
    """print the result as one JSON object"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.task == "lambada" and self.stride:
            raise UsageError("--stride is for wikitext and heldout: of lambada each passage is a window; leave it out")
        if self.task != "heldout" and self.split != "heldout":
            raise UsageError(f"--split is for heldout: {self.task} has one file; leave it out")


def evaluate(model: Trained, options: Options) -> dict[str, Any]:
    """Return the figures of the task by name. Raise InputError if the data do not fit the task."""
    from extensions.gpt import evaluation
    from extensions.gpt.scoring import Scorer
    from extensions.gpt.token_stream import TokenStream

    window = _window(options, model.encoder.config.max_position_embeddings)
    score, what = Scorer(model, options.batch), str(options.data)
    if options.task == "heldout":
        stream = TokenStream(options.data, options.split, length=1)
        _check_tokenizer(model, stream)
        stride = _stride(options, window, window)
        scores = evaluation.heldout(score, stream.span, stream.tokens, stream.text_bytes, window, stride)
        return {"split": options.split, "content": manifest.content_hash(options.data)} | scores
    text = files.read_text(options.data, MAX_CHARACTERS, "give the test set")
    about = {"sha256": files.sha256(options.data)}
    if options.task == "lambada":
        return about | evaluation.lambada(score, model.tokenizer, passages(text, what), window, what)
    stride = _stride(options, window, min(window, OVERLAPPING_STRIDE))
    return about | evaluation.wikitext(score, model.tokenizer, text, window, stride, what)


def _window(options: Options, positions: int) -> int:
    window = options.window or positions
    if window > positions:
        raise UsageError(f"--window {window}: the model has only {positions} positions; give a smaller number")
    return window


def _stride(options: Options, window: int, default: int) -> int:
    stride = options.stride or default
    if stride > window:
        raise UsageError(f"--stride {stride}: tokens between windows of {window} would be lost; give a smaller number")
    return stride


def _check_tokenizer(model: Trained, stream: TokenStream) -> None:
    if files.sha256(stream.tokenizer) != files.sha256(model.tokenizer.path):
        raise InputError(f"{stream.tokenizer}: not the tokenizer of the run; make the tokens with that one")


def passages(text: str, what: str) -> Iterator[str]:
    """Yield the "text" of each line of JSON. Raise InputError, naming `what` and the line, if there is none."""
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        try:
            yield checked_json.take(str, checked_json.take(dict[str, Any], checked_json.parse(line.encode()))["text"])
        except (ValueError, KeyError, RecursionError) as error:
            raise InputError(
                f'{what}: line {number} is not a JSON object with "text"; give lambada_test.jsonl'
            ) from error


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.evaluate_lm", description=__doc__)
    from bert.hardware import devices
    from extensions.gpt import trained

    devices.choose(options.device)
    model = trained.load(options.run)
    report: dict[str, Any] = {"task": options.task, "data": str(options.data), "checkpoint": str(model.checkpoint)}
    report |= evaluate(model, options)
    if options.json:
        print(json.dumps(report, ensure_ascii=False), flush=True)
    else:
        for name, value in report.items():
            print(f"{name:<20} {value:,.4f}" if isinstance(value, float) else f"{name:<20} {value}", flush=True)
    ending.print_next_command(f"evaluated {options.run} on {options.data}")
