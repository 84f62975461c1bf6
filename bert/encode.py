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

import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from bert import embedding, resumable
from bert.core import cli, files, ranges
from bert.core.config import ModelConfig
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.ranges import BatchSize, Range
from bert.embedding import Embedding
from bert.hardware import devices, graphs
from bert.hardware.devices import Kind
from bert.model.inference import InferenceEncoder
from bert.runs import Run
from bert.text.batches import Batches
from bert.text.tokenization import Tokenizer

CHUNK = 1024  # texts that are read and encoded at once
SHORTEST = 1e-12  # by which an embedding of length 0 is divided, as in PyTorch's normalize


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert.encode`."""

    model: Path
    """run directory"""
    input: Path
    """texts, one per line, plain or compressed (.gz, .bz2, .xz); - reads standard input"""
    output: Path
    """output file, .jsonl or .npz"""
    layers: tuple[Annotated[int, Range(-1001, 1000)], ...] = (-1,)
    """layers whose states to return: 0 is the embeddings, 1 the first layer, -1 the last layer"""
    pool: Literal["auto", "mean", "cls", "max", "none"] = "auto"
    """mean: average over all tokens, including [CLS] and [SEP]; cls: the state of [CLS]; max: the largest values; none:
    every token; auto: as the model says, of an import from sentence-transformers, with its normalisation, or mean"""
    batch: BatchSize = 32
    """texts per batch"""
    length: Annotated[int, Range(3, 65_536)] | None = None
    """maximum tokens per text, including [CLS] and [SEP]; longer texts are truncated; none uses the model's maximum, or
    that of an import from sentence-transformers"""
    device: Kind = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.output.suffix not in (".jsonl", ".npz"):
            raise UsageError(f"--output {self.output}: the file name must end in .jsonl or .npz")


class Encoded(NamedTuple):
    """The tokens and features of one text."""

    ids: np.ndarray  # [T]
    features: np.ndarray  # [L, D], or unpooled [T, L, D]


class Reader:
    """Encode texts in batches of similar length; the model is traced once."""

    def __init__(self, options: Options) -> None:
        self.run = run = Run.open(options.model)
        self.tokenizer = run.tokenizer
        made = embedding.of(run.settings, run.settings_path)
        positions = run.config.max_position_embeddings
        self.length = options.length or min(positions, (made and made.length) or positions)
        _check(options, run.config)
        if options.pool != "auto":
            made = Embedding(pool=options.pool)
        self.pooled, self.truncated = options.pool != "none", 0
        self._batches = Batches(options.batch, self.length)
        self._encode = _compiled(run.encoder(), options.layers, made or Embedding(pool="mean"))
        self.compute: Callable[[int, resumable.Batch], resumable.Results] = resumable.at_once

    def encode(self, texts: list[str]) -> Iterator[Encoded]:
        """Yield each text encoded, in order. Raises IntegrityError if a feature is not finite."""
        rows = self._token_ids(texts)
        features: dict[int, np.ndarray] = {}
        for chosen, width in self._batches(np.array([len(row) for row in rows])):
            ids, mask = np.full((len(chosen), width), self.tokenizer.pad_id, np.int32), np.zeros((len(chosen), width))
            for place, row in enumerate(chosen):
                ids[place, : len(rows[row])], mask[place, : len(rows[row])] = rows[row], 1
            [encoded] = self.compute(len(chosen), functools.partial(self._batch, ids, mask))
            for place, row in enumerate(chosen):
                features[row] = encoded[place] if self.pooled else encoded[place, : len(rows[row])]
        for number, ids in enumerate(rows):
            if not np.isfinite(features[number]).all():
                raise IntegrityError("the model's features are not finite: its training failed; use another checkpoint")
            yield Encoded(ids, features[number])

    def _batch(self, ids: np.ndarray, mask: np.ndarray) -> resumable.Results:
        return [self._encode(tf.constant(ids), tf.constant(mask, tf.float32)).numpy()]

    def _token_ids(self, texts: list[str]) -> list[np.ndarray]:
        flat, splits = self.tokenizer.encode(texts)
        self.truncated += int((np.diff(splits) > self.length - 2).sum())
        rows = (flat[begin:end][: self.length - 2] for begin, end in itertools.pairwise(splits))
        return [self.tokenizer.row(row).ids for row in rows]


def _check(options: Options, config: ModelConfig) -> None:
    depth, positions = config.num_hidden_layers, config.max_position_embeddings
    if invalid := [layer for layer in options.layers if not -depth - 1 <= layer <= depth]:
        raise UsageError(f"--layers {invalid[0]}: not a layer of the model; give 0 to {depth} or -1 to {-depth - 1}")
    if options.length and options.length > positions:
        raise UsageError(f"--length {options.length}: the model has only {positions} positions; give a smaller value")


def _compiled(
    encoder: InferenceEncoder, layers: tuple[int, ...], made: Embedding
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return a function of ids and mask [B, T] that gives features [B, L, D], or unpooled [B, T, L, D]."""
    shape = [None, None]

    @graphs.function(input_signature=[tf.TensorSpec(shape, tf.int32), tf.TensorSpec(shape, tf.float32)])
    def encode(ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        states = encoder.states(ids, mask, tf.zeros_like(ids))
        x = _pooled(tf.stack([states[layer] for layer in layers], axis=2), mask, made.pool)
        return x / tf.maximum(tf.norm(x, axis=-1, keepdims=True), SHORTEST) if made.normalize else x

    return encode


def _pooled(x: tf.Tensor, mask: tf.Tensor, pool: str) -> tf.Tensor:
    """Return states [B, T, L, D] pooled over the tokens of the mask [B, T]; "none" returns them all."""
    if pool == "cls":
        return x[:, 0]
    if pool == "max":
        return tf.reduce_max(tf.where(mask[:, :, None, None] > 0, x, x.dtype.min), axis=1)
    if pool == "mean":
        return tf.einsum("btld,bt->bld", x, mask / tf.reduce_sum(mask, axis=1, keepdims=True))
    return x


def read_texts(path: Path) -> Iterator[str]:
    """Yield the lines of a file or of standard input. Raises InputError if they are not UTF-8."""
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
    """Write the arrays of an .npz file, which are held in memory until the last text; return the number of texts."""
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
    devices.choose(options.device)
    reader, is_jsonl = Reader(options), options.output.suffix == ".jsonl"
    texts = read_texts(options.input)
    chunks = iter(lambda: list(itertools.islice(texts, CHUNK)), [])
    encoded = itertools.chain.from_iterable(map(reader.encode, chunks))
    with (
        resumable.keep([options.output], options.input, options, reader.run) as reader.compute,
        files.room(options.output.parent),
        files.atomic_write(options.output, "w" if is_jsonl else "wb") as stream,
    ):
        if is_jsonl:
            count = write_lines(encoded, reader.tokenizer, stream)
        else:
            count = write_arrays(encoded, reader.pooled, stream)
    truncated = f", {reader.truncated} truncated to {reader.length} tokens" if reader.truncated else ""
    print(f"{options.output}: {count} texts{truncated}", file=sys.stderr)


if __name__ == "__main__":
    cli.main(main)
