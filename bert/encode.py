"""Features of texts: the hidden states of any layers, of each token or pooled.

    python -m bert.encode --model RUN --input texts.txt --output features.jsonl [--layers -1 -2] [--pool mean]
    ... | python -m bert.encode --model RUN --input - --output features.npz

Each line of the input is a text and is answered in its place, an empty one too. A line of a .jsonl holds the text's
number, its tokens and its features, [layers, D], or with --pool none [tokens, layers, D]; lines are written while texts
are read. An .npz holds the features of all texts as one array, and the ids of all their tokens, of which text i has
those from row_splits[i] to row_splits[i + 1]; with --pool none so do the features.
RUN is any run directory: of bert.pretrain, squad.train, or made by bert.convert.
"""

import io
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from bert import cli
from bert.config import ModelConfig
from bert.errors import InputError, IntegrityError, UsageError
from bert.hardware import devices
from bert.hardware.devices import Kind
from bert.inputs import sampler
from bert.inputs.tokenization import Tokenizer, tokenizer_for
from bert.model import inference
from bert.model.encoder import Encoder, variables
from bert.model.inference import InferenceEncoder
from bert.storage import files
from bert.training import checkpoint

CHUNK = 1024  # texts that are held at once


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert.encode`."""

    model: Path
    """run directory"""
    input: Path
    """texts, one a line, also compressed as .gz, .bz2, .xz; - reads standard input"""
    output: Path
    """features.jsonl or features.npz"""
    layers: tuple[int, ...] = (-1,)
    """0 is the embeddings, 1 the first layer; -1 the last one"""
    pool: Literal["mean", "cls", "none"] = "mean"
    """mean over a text's tokens, [CLS] and [SEP] included; the state of [CLS]; or every token's"""
    batch: int = 32
    """texts at once"""
    length: int | None = None
    """tokens after which a text is cut, [CLS] and [SEP] included; none is the model's longest"""
    device: Kind = "auto"
    """what to compute on; auto takes a GPU where there is one"""

    def __post_init__(self) -> None:
        if self.output.suffix not in (".jsonl", ".npz"):
            raise UsageError(f"--output {self.output}: the name must end in .jsonl or .npz")
        if self.batch < 1 or (self.length is not None and self.length < 3):
            raise UsageError("--batch must be positive, and --length 3 at least")


class Encoded(NamedTuple):
    """One text."""

    ids: np.ndarray  # [T]
    features: np.ndarray  # [L, D], or of each token [T, L, D]


class Reader:
    """Encodes texts in batches of like length; the model is traced once."""

    def __init__(self, options: Options) -> None:
        run, config = options.model, ModelConfig.load(options.model / "bert_config.json")
        self.tokenizer = tokenizer_for(run / "vocab.txt", config)
        self.length = options.length or config.max_position_embeddings
        _check(options, config)
        encoder = Encoder(config, seed=0)
        checkpoint.load_weights(run, variables(encoder))
        self.batch, self.pooled, self.cut = options.batch, options.pool != "none", 0
        self._encode = _compiled(InferenceEncoder(encoder, tf.float32), options)

    def encode(self, texts: list[str]) -> Iterator[Encoded]:
        """Each text, in order. Raises IntegrityError if a feature is not finite."""
        rows = self._tokens(texts)
        order = np.argsort([len(row) for row in rows], kind="stable")
        found: dict[int, np.ndarray] = {}
        for first in range(0, len(order), self.batch):
            chosen = order[first : first + self.batch]
            width = sampler.width(max(len(rows[row]) for row in chosen), inference.LENGTH_MULTIPLE, self.length)
            ids, mask = np.full((self.batch, width), self.tokenizer.pad_id, np.int32), np.zeros((self.batch, width))
            mask[:, 0] = 1  # a batch that is not full has rows of one token
            for place, row in enumerate(chosen):
                ids[place, : len(rows[row])], mask[place, : len(rows[row])] = rows[row], 1
            features = self._encode(tf.constant(ids), tf.constant(mask, tf.float32)).numpy()
            for place, row in enumerate(chosen):
                found[row] = features[place] if self.pooled else features[place, : len(rows[row])]
        for number, ids in enumerate(rows):
            if not np.isfinite(found[number]).all():
                raise IntegrityError("the model's states are not finite: its training failed; take another checkpoint")
            yield Encoded(ids, found[number])

    def _tokens(self, texts: list[str]) -> list[np.ndarray]:
        flat, splits = self.tokenizer.encode(texts)
        ends = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        self.cut += int((np.diff(splits) > self.length - 2).sum())
        rows = (flat[begin:end][: self.length - 2] for begin, end in itertools.pairwise(splits))
        return [np.concatenate([ends[0], row, ends[1]]).astype(np.int32) for row in rows]


def _check(options: Options, config: ModelConfig) -> None:
    deepest = config.num_hidden_layers
    if wrong := [layer for layer in options.layers if not -deepest - 1 <= layer <= deepest]:
        raise UsageError(f"--layers {wrong[0]}: the model has {deepest}; 0 to {deepest} or -1 to {-deepest - 1} exist")
    longest = config.max_position_embeddings
    if options.length and options.length > longest:
        raise UsageError(f"--length {options.length}: the model has {longest} positions; lower it")


def _compiled(encoder: InferenceEncoder, options: Options) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """ids and mask [B, T] to features [B, L, D], or without pooling [B, T, L, D]."""
    shape = [options.batch, None]

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.int32), tf.TensorSpec(shape, tf.float32)])
    def encode(ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        states = encoder.states(ids, mask, tf.zeros_like(ids))
        x = tf.stack([states[layer] for layer in options.layers], axis=2)  # [B, T, L, D]
        if options.pool == "cls":
            return x[:, 0]
        if options.pool == "mean":
            return tf.einsum("btld,bt->bld", x, mask / tf.reduce_sum(mask, axis=1, keepdims=True))
        return x

    return encode


def read(path: Path) -> Iterator[str]:
    """The lines of a file, or of standard input. Raises InputError if they are not UTF-8."""
    if str(path) != "-":
        with files.open_text(path) as stream:
            yield from (line.removesuffix("\n") for line in stream)
        return
    with io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8") as stream:
        try:
            yield from (line.removesuffix("\n") for line in stream)
        except UnicodeDecodeError as error:
            raise InputError(f"standard input: not UTF-8 (byte {error.start} of the block read)") from error


def write_lines(encoded: Iterator[Encoded], tokenizer: Tokenizer, stream: IO[str]) -> int:
    """A line of JSON for each text, as it comes; returns their number."""
    number = 0
    for number, (ids, features) in enumerate(encoded, start=1):
        tokens = [tokenizer.vocab[i] for i in ids]
        line = {"line": number, "tokens": tokens, "features": features.tolist()}
        stream.write(json.dumps(line, ensure_ascii=False) + "\n")
    return number


def write_arrays(encoded: Iterator[Encoded], pooled: bool, stream: IO[bytes]) -> int:
    """All texts as arrays, which have to be held until the last one; returns their number."""
    texts = list(encoded)
    if not texts:
        raise InputError("no texts: the input has no line")
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
    """Runs the command."""
    options = cli.parse(Options, argv, prog="python -m bert.encode", description=__doc__)
    devices.choose(options.device)
    reader, lines = Reader(options), options.output.suffix == ".jsonl"
    texts = read(options.input)
    chunks = iter(lambda: list(itertools.islice(texts, CHUNK)), [])
    encoded = (found for chunk in chunks for found in reader.encode(chunk))
    with files.room(options.output.parent), files.atomic_write(options.output, "w" if lines else "wb") as stream:
        if lines:
            count = write_lines(encoded, reader.tokenizer, stream)
        else:
            count = write_arrays(encoded, reader.pooled, stream)
    cut = f", {reader.cut} of them cut at {reader.length} tokens" if reader.cut else ""
    print(f"{options.output}: {count} texts{cut}", file=sys.stderr)


if __name__ == "__main__":
    cli.main(main)
