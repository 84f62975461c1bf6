"""Features of texts: the hidden states of chosen layers, pooled or for each token."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert import embedding, resumable
from bert.core.config import ModelConfig
from bert.core.errors import IntegrityError, UsageError
from bert.core.progress import Progress
from bert.embedding import SHORTEST, Embedding, Pool
from bert.engines.engine import Engine
from bert.model.heads import pooled
from bert.runs import Run
from bert.text.batches import Batches, padded

FEWEST = 3  # tokens of a text that is cut: [CLS], one of the text, and [SEP]
CHUNK = 1024  # texts that are read and encoded at once


class Encoded(NamedTuple):
    """The tokens and features of one text."""

    ids: np.ndarray  # [T]
    features: np.ndarray  # [L, D], or unpooled [T, L, D]


class Reader:
    """Encodes texts in batches of similar length. The model is traced once."""

    def __init__(
        self,
        run: Run,
        encoder: Engine | None = None,
        *,
        layers: tuple[int, ...] = (-1,),
        pool: Pool = "auto",
        batch: int = 32,
        length: int | None = None,
        prompt: str | None = None,
        compiled: bool = True,
        features: Callable[..., Any] | None = None,
    ) -> None:
        """encoder: the run's; None: load it. Other arguments are flags of `python -m bert.encode`, except the last two.

        compiled: whether XLA compiles parts of the model for each shape. features: function of ids, mask and segments
        [B, T] that computes the features instead of the encoder. Raise UsageError for a layer, length or prompt that
        the model does not have.
        """
        self.run, self.tokenizer = run, run.tokenizer
        made = embedding.of(run.settings, run.settings_path)
        self.says = made or embedding.PLAIN  # of the embeddings of the run, whatever is asked for
        self.before = self.says.prompt(prompt)
        positions = run.config.max_position_embeddings
        self.length = length or min(positions, (made and made.length) or positions)
        _check(layers, length, run.config)
        if pool != "auto":
            made = Embedding(pool=pool)
        self.pooled, self.truncated = pool != "none", 0
        self._batches = Batches(batch, self.length)
        made = made or embedding.PLAIN
        self.width = made.width(run.config.hidden_size)
        self._encode = features or _features(encoder or run.encoder(), layers, made, compiled)
        self.compute: resumable.Compute = resumable.at_once
        self.progress = Progress("encode", "texts")

    def encode_all(self, texts: Iterable[str], prompt: str | None = None) -> Iterator[Encoded]:
        """Yield each text encoded, in order, for any number of texts. At most `CHUNK` texts are in memory.

        prompt: name of the prompt to put before each text; None: the reader's prompt.
        """
        rest, before = iter(texts), self.before if prompt is None else self.says.prompt(prompt)
        chunks = iter(lambda: [before + text for text in itertools.islice(rest, CHUNK)], [])
        return itertools.chain.from_iterable(map(self.encode, chunks))

    def encode(self, texts: list[str]) -> Iterator[Encoded]:
        """Yield each text encoded, in order, without a prompt. Raise IntegrityError if a feature is not finite."""
        rows, is_cut = self.prepare(texts)
        self.truncated += int(is_cut.sum())
        for ids, features in zip(rows, self.features(rows), strict=True):
            yield Encoded(ids, features)

    def prepare(self, texts: list[str]) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the tokens of each text, without a prompt, and whether the text was cut [n]."""
        flat, splits = self.tokenizer.encode(texts)
        rows = (flat[begin:end][: self.length - 2] for begin, end in itertools.pairwise(splits))
        return [self.tokenizer.row(row).ids for row in rows], np.diff(splits) > self.length - 2

    def features(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the features of each row of tokens. Raise IntegrityError if one is not finite."""
        features: list[Any] = [None] * len(rows)
        for chosen, width in self._batches(np.array([len(row) for row in rows])):
            ids, mask = padded([rows[row] for row in chosen], width, self.tokenizer.pad_id)
            [encoded] = self.compute(len(chosen), functools.partial(self._batch, ids, mask))
            self.progress.add(len(chosen))
            for place, row in enumerate(chosen):
                features[row] = encoded[place] if self.pooled else encoded[place, : len(rows[row])]
        if not all(np.isfinite(one).all() for one in features):
            raise IntegrityError("the model's features are not finite: its training failed; use another checkpoint")
        return features

    def _batch(self, ids: np.ndarray, mask: np.ndarray) -> resumable.Results:
        return [np.asarray(self._encode(*(tf.constant(x, tf.int32) for x in (ids, mask, np.zeros_like(ids)))))]


def _check(layers: tuple[int, ...], length: int | None, config: ModelConfig) -> None:
    depth, positions = config.num_hidden_layers, config.max_position_embeddings
    if invalid := [layer for layer in layers if not -depth - 1 <= layer <= depth]:
        raise UsageError(f"--layers {invalid[0]}: not a layer of the model; give 0 to {depth} or -1 to {-depth - 1}")
    if length is not None and length < FEWEST:
        raise UsageError(f"--length {length}: give {FEWEST} at least, [CLS] and [SEP] included")
    if length and length > positions:
        raise UsageError(f"--length {length}: the model has only {positions} positions; give a smaller value")


def _features(encoder: Engine, layers: tuple[int, ...], made: Embedding, compiled: bool) -> Callable[..., tf.Tensor]:
    """Return a function of ids, mask, segments [B, T] for features [B, L, D] or, without pooling, [B, T, L, D]."""

    def features(states: list[tf.Tensor], mask: tf.Tensor) -> tf.Tensor:
        return embedded(tf.stack(states, axis=2), mask, made)

    return encoder.function(features, layers=layers, compiled=compiled)


def embedded(x: tf.Tensor, mask: tf.Tensor, made: Embedding) -> tf.Tensor:
    """Return the embedding of the states x [B, T, ..., D] that `made` describes: [B, ..., D] if it pools, else as x."""
    x = x if made.pool == "none" else pooled(x, mask, made.pool)
    x = x / tf.maximum(tf.norm(x, axis=-1, keepdims=True), SHORTEST) if made.normalize else x
    return x if made.dimensions is None else x[..., : made.dimensions]
