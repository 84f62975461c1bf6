"""Fill the masked words of a text.

    python -m bert.fill_mask RUN "Paris is the [MASK] of France." [--top 5]
    python -m bert.fill_mask RUN --input texts.txt --output words.jsonl

RUN is a run directory of bert.pretrain, or an import with a head for masked words. Each [MASK] of a text is filled for
itself; an imported RoBERTa has <mask>. Prints the likeliest words with their probabilities, or writes for each line of
the input a line {"text", "masks": [[{"word", "probability"}, ...], ...]}. A word piece within a word begins with ##;
of RoBERTa's tokens those that begin a word have a space before them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from bert.core import cli, ending, files, ranges
from bert.core.errors import InputError, UsageError
from bert.core.progress import Progress
from bert.core.ranges import BatchSize, Range
from bert.hardware.choices import Compute, DeviceName, EngineName

if TYPE_CHECKING:
    from bert.masked_words import MaskedWords

CHUNK = 1024  # texts that are read and encoded at once


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.fill_mask`."""

    run: cli.Run
    """run directory"""
    text: cli.Positional[tuple[str, ...]] = ()
    """a text with [MASK] in it"""
    input: Path | None = None
    """texts, one per line, plain or compressed (.gz, .bz2, .xz), instead of the text"""
    output: Path | None = None
    """output file for --input"""
    top: Annotated[int, Range(1, 100_000)] = 5
    """number of words for each mask"""
    json: cli.Switch = False
    """print one JSON object"""
    batch: BatchSize = 32
    """maximum texts per batch"""
    compute: Compute = "float32"
    """data type of matrix products"""
    engine: EngineName = "tensorflow"
    """what computes the encoder: tensorflow; openvino or openvino_int8, on CPUs; auto: openvino if it can"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if len(self.text) > 1:
            raise UsageError("give one text, in quotes")
        if (self.input is None) == (not self.text) or (self.input is None) != (self.output is None):
            raise UsageError("give either a text, or --input and --output")


def encode(model: MaskedWords, text: str, where: str) -> np.ndarray:
    """Return the tokens of a text, in which the tokenizer's mask is the special token.

    where: for messages. Raise InputError if there is no mask, or if the text does not fit the model.
    """
    tokenizer = model.tokenizer
    parts = tokenizer.split_at_masks(text)
    if len(parts) == 1:
        raise InputError(f"{where}: no {tokenizer.mask} in the text; write it where a word is to be filled in")
    ids, splits = tokenizer.encode(parts)
    pieces = [ids[begin:end] for begin, end in itertools.pairwise(splits)]
    between = [part for piece in pieces for part in (piece, [tokenizer.mask_id])][:-1]
    tokens = tokenizer.row(np.concatenate(between)).ids
    if len(tokens) > (longest := model.config.max_position_embeddings):
        raise InputError(f"{where}: {len(tokens)} tokens, but the model has {longest} positions; give a shorter text")
    return tokens


def fill(model: MaskedWords, texts: list[str], top: int, where: list[str]) -> Iterator[dict[str, Any]]:
    """Yield each text with the likeliest words of each of its masks, best first."""
    rows = [encode(model, text, place) for text, place in zip(texts, where, strict=True)]
    masks = [np.flatnonzero(row == model.tokenizer.mask_id).tolist() for row in rows]
    for text, log_probabilities in zip(texts, model.log_probabilities(rows, masks), strict=True):
        best = model.likeliest(log_probabilities, top)
        filled = [
            [{"word": model.tokenizer.word(word), "probability": float(np.exp(row[word]))} for word in chosen]
            for row, chosen in zip(log_probabilities, best, strict=True)
        ]
        yield {"text": text, "masks": filled}


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each line of a file, and where it is."""
    with files.open_text(path) as stream:
        for number, line in enumerate(files.read_lines(stream, path), 1):
            yield line.removesuffix("\n"), f"{path}: line {number}"


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.fill_mask", description=__doc__)
    from bert.hardware import devices
    from bert.masked_words import MaskedWords
    from bert.runs import Run

    devices.choose(options.device)
    model = MaskedWords(Run.open(options.run), options.compute, options.batch, options.engine)
    if options.input is None:
        (filled,) = fill(model, list(options.text), options.top, ["the text"])
        print(json.dumps(filled, ensure_ascii=False) if options.json else _shown(filled))
        return
    assert options.output is not None, "it is given with --input"
    total = sum(1 for _ in _lines(options.input)) if options.input.is_file() else None
    rest, count = _lines(options.input), 0
    with files.atomic_write(options.output) as stream, Progress("fill_mask", "texts", total) as progress:
        while chunk := list(itertools.islice(rest, CHUNK)):
            texts, where = map(list, zip(*chunk, strict=True))
            for filled in fill(model, texts, options.top, where):
                stream.write(json.dumps(filled, ensure_ascii=False) + "\n")
                count += 1
                progress.add()
    ending.print_next_command(options.output, f"{count:,} texts")


def _shown(filled: dict[str, Any]) -> str:
    blocks = [
        "\n".join(f"{choice['probability']:.4f}  {choice['word']}" for choice in choices) for choices in filled["masks"]
    ]
    return "\n\n".join(blocks)


if __name__ == "__main__":
    cli.main(main)
