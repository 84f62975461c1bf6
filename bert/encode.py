"""Compute features of texts: the hidden states of chosen layers, pooled or for each token.

    python -m bert.encode --model RUN --input texts.txt --output features.jsonl [--layers -1 -2] [--pool mean]
    ... | python -m bert.encode --model RUN --input - --output features.npz

Each input line is one text; an empty line is an empty text. The output keeps the order.
.jsonl: one line per text with its line number, its tokens and its features, [layers, hidden size], or with --pool none
        [tokens, layers, hidden size]. Lines are written while texts are read.
.npz:   arrays `features`, `ids` (the token ids of all texts) and `row_splits`: text i has the tokens
        row_splits[i]:row_splits[i + 1]. With --pool none, `features` has one row per token, like `ids`.
RUN is a run directory of bert.pretrain or squad.train, or one created by bert.convert.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import numpy as np

from bert.core import cli, ending, files, ranges
from bert.core.errors import InputError, UsageError
from bert.core.ranges import BatchSize, Range
from bert.embedding import Pool
from bert.hardware.choices import DeviceName, EngineName
from bert.text.tokenization import Tokenizer

if TYPE_CHECKING:
    from bert.hidden_states import Encoded


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert.encode`."""

    model: cli.Run
    """run directory"""
    input: Path
    """texts, one per line, plain or compressed (.gz, .bz2, .xz); - reads standard input"""
    output: Path
    """output file, .jsonl or .npz"""
    layers: tuple[Annotated[int, Range(-1001, 1000)], ...] = (-1,)
    """layers whose states to return: 0 is the embeddings, 1 the first layer, -1 the last layer"""
    pool: Pool = "auto"
    """mean: average over all tokens, including [CLS] and [SEP]; cls: the state of [CLS]; max: the largest values; none:
    every token; auto: as the model says that was trained for embeddings, with its normalisation, or mean"""
    batch: BatchSize = 32
    """texts per batch"""
    length: Annotated[int, Range(3, 65_536)] | None = None
    """maximum tokens per text, including [CLS] and [SEP]; longer texts are truncated; none uses the model's maximum, or
    that of an import from sentence-transformers"""
    prompt: str | None = None
    """name of the model's prompt that stands before each text, such as query or document; none: its default prompt"""
    engine: EngineName = "tensorflow"
    """what computes the encoder: tensorflow; openvino or openvino_int8, on CPUs; auto: openvino if it can"""
    device: DeviceName = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.output.suffix not in (".jsonl", ".npz"):
            raise UsageError(f"--output {self.output}: the file name must end in .jsonl or .npz")


def read_texts(path: Path) -> Iterator[str]:
    """Yield the lines of a file or of standard input. Raise InputError if they are not UTF-8."""
    with files.open_text(path) as stream:
        yield from (line.removesuffix("\n") for line in files.read_lines(stream, path))


def write_lines(encoded: Iterator[Encoded], tokenizer: Tokenizer, stream: IO[str]) -> int:
    """Write one line of JSON per text; return the number of texts."""
    count = 0
    for count, (ids, features) in enumerate(encoded, start=1):
        tokens = [tokenizer.vocab[i] for i in ids]
        line = {"line": count, "tokens": tokens, "features": features.tolist()}
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    return count


def write_arrays(encoded: Iterator[Encoded], pooled: bool, stream: IO[bytes]) -> int:
    """Write the arrays of an .npz file; return the number of texts. All arrays are in memory until the last text."""
    texts = list(encoded)
    if not texts:
        raise InputError("the input has no lines; give at least one text")
    lengths = [len(text.ids) for text in texts]
    join = np.stack if pooled else np.concatenate
    np.savez(
        stream,
        features=join([text.features for text in texts]),
        ids=np.concatenate([text.ids for text in texts]),
        row_splits=np.cumsum([0, *lengths]),
    )
    return len(texts)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.encode", description=__doc__)
    from bert import resumable
    from bert.hardware import devices
    from bert.hidden_states import Reader
    from bert.runs import Run

    devices.choose(options.device)
    run, is_jsonl = Run.open(options.model), options.output.suffix == ".jsonl"
    encoder = run.encoder(engine=options.engine)
    reader = Reader(
        run,
        encoder,
        layers=options.layers,
        pool=options.pool,
        batch=options.batch,
        length=options.length,
        prompt=options.prompt,
    )
    encoded = reader.encode_all(read_texts(options.input))
    reader.progress.total = sum(1 for _ in read_texts(options.input)) if options.input.is_file() else None
    with (
        resumable.keep([options.output], options.input, options, reader.run) as reader.compute,
        reader.progress,
        files.room(options.output.parent),
        files.atomic_write(options.output, "w" if is_jsonl else "wb") as stream,
    ):
        if is_jsonl:
            count = write_lines(encoded, reader.tokenizer, stream)
        else:
            count = write_arrays(encoded, reader.pooled, stream)
    truncated = f", {reader.truncated} truncated to {reader.length} tokens" if reader.truncated else ""
    ending.print_next_command(options.output, f"{count:,} texts{truncated}")


if __name__ == "__main__":
    cli.main(main)
