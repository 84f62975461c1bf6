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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from bert.core import cli, ending, files, ranges
from bert.core.errors import InputError, UsageError
from bert.core.progress import Progress
from bert.core.ranges import BatchSize, Range
from bert.encode import read_texts
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
    """Return the tokens of a text. The tokenizer's mask in it becomes the special token.

    where: the text's place, for messages. Raise InputError if there is no mask, or if the text is too long for the
    model.
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


def likeliest(model: MaskedWords, rows: Sequence[np.ndarray], top: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for each row of tokens, the best words of each mask and their log probabilities, both [masks, top]."""
    masks = [np.flatnonzero(row == model.tokenizer.mask_id).tolist() for row in rows]
    for log_probabilities in model.log_probabilities(rows, masks):
        best = model.likeliest(log_probabilities, top)
        yield best, np.take_along_axis(log_probabilities, best, axis=1)


def described(model: MaskedWords, best: np.ndarray, scores: np.ndarray) -> list[list[dict[str, Any]]]:
    """Return the words of each mask, as text, with probabilities. best, scores: what `likeliest` yields."""
    return [
        [
            {"word": model.tokenizer.word(word), "probability": float(np.exp(score))}
            for word, score in zip(*of_mask, strict=True)
        ]
        for of_mask in zip(best, scores, strict=True)
    ]


def fill(model: MaskedWords, texts: Iterable[str], top: int, where: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield each text with the most likely words of its masks, best first. At most `CHUNK` texts are in memory.

    where: the place of each text, for messages.
    """
    rest = zip(texts, where, strict=False)
    while chunk := list(itertools.islice(rest, CHUNK)):
        rows = [encode(model, *one) for one in chunk]
        for (text, _), found in zip(chunk, likeliest(model, rows, top), strict=True):
            yield {"text": text, "masks": described(model, *found)}


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.fill_mask", description=__doc__)
    from bert.hardware import devices
    from bert.masked_words import MaskedWords
    from bert.runs import Run

    devices.choose(options.device)
    model = MaskedWords(Run.open(options.run), options.compute, options.batch, options.engine)
    if options.input is None:
        (filled,) = fill(model, options.text, options.top, ["the text"])
        print(json.dumps(filled, ensure_ascii=False) if options.json else _shown(filled))
        return
    assert options.output is not None, "it is given with --input"
    total = sum(1 for _ in read_texts(options.input)) if options.input.is_file() else None
    where, count = (f"{options.input}: line {number}" for number in itertools.count(1)), 0
    with files.atomic_write(options.output) as stream, Progress("fill_mask", "texts", total) as progress:
        for filled in fill(model, read_texts(options.input), options.top, where):
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
