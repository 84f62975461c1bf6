"""Score the tokens of many passages by a causal model: the loss of each, and whether it is the likeliest one.

Shapes: B passages, T tokens, D width, V vocabulary, M targets.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert.core.errors import IntegrityError
from bert.hardware import graphs
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, TokenBatch
from bert.text import sampler
from extensions.gpt.trained import Trained

LENGTH_MULTIPLE = 64  # tokens: passages of a text are padded to a multiple; for each length the model is compiled
TARGETS = 256  # whose scores of the vocabulary, 51 MB for GPT-2's, are in memory at once


class Passage(NamedTuple):
    """Consecutive tokens; those from place `first` + 1 on are scored, each as the successor of all before it."""

    ids: np.ndarray  # [T + 1]
    first: int = 0


class Scores(NamedTuple):
    """What the model makes of the scored tokens of one passage."""

    losses: np.ndarray  # [M] float64, in nats
    likeliest: np.ndarray  # [M] whether no other token is likelier


Score = Callable[[Iterable[Passage]], Iterator[Scores]]


class Scorer:
    """Score passages of at most the model's length, `batch` at once; padding behind a passage changes nothing.

    multiple: of the length, in tokens, to which passages are padded.
    """

    def __init__(self, trained: Trained, batch: int, multiple: int = LENGTH_MULTIPLE) -> None:
        self.encoder, self.batch, self.limit = trained.encoder, batch, trained.encoder.config.max_position_embeddings
        self.multiple = multiple
        self._hidden = graphs.function(self._hidden_states, input_signature=[tf.TensorSpec([None, None], tf.int32)])
        width = self.encoder.config.hidden_size
        signature = [tf.TensorSpec([TARGETS, width], tf.float32), tf.TensorSpec([TARGETS], tf.int32)]
        self._compare = graphs.function(self._compare_targets, input_signature=signature)

    def __call__(self, passages: Iterable[Passage]) -> Iterator[Scores]:
        """Yield the scores of each passage, in order. Raise IntegrityError if one is not finite."""
        passages = iter(passages)
        while group := list(itertools.islice(passages, self.batch)):
            yield from self._score(group)

    def _score(self, group: list[Passage]) -> list[Scores]:
        longest = max(len(passage.ids) for passage in group) - 1
        assert 0 < longest <= self.limit
        length = sampler.padded_length(longest, self.multiple, self.limit)
        ids = np.zeros([self.batch, length], np.int32)  # the last group has unused rows
        rows, labels = [], []
        for number, (tokens, first) in enumerate(group):
            ids[number, : len(tokens) - 1] = tokens[:-1]
            rows.append(number * length + np.arange(first, len(tokens) - 1))
            labels.append(tokens[first + 1 :])
        losses, likeliest = self._targets(self._hidden(tf.constant(ids)), np.concatenate(rows), np.concatenate(labels))
        if not np.isfinite(losses).all():
            raise IntegrityError("the model's scores are not finite: its training failed; use another checkpoint")
        ends = np.cumsum([len(targets) for targets in labels])[:-1]
        return [Scores(*pair) for pair in zip(np.split(losses, ends), np.split(likeliest, ends), strict=True)]

    def _hidden_states(self, ids: tf.Tensor) -> tf.Tensor:
        hidden = self.encoder(TokenBatch(ids), Mode(tf.float32, DropoutRng(None)))
        return tf.reshape(hidden, [-1, hidden.shape[-1]])  # [B*T, D]

    def _targets(self, hidden: tf.Tensor, rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return losses and whether they are the likeliest of `labels` [M], the targets of `rows` [M] of hidden."""
        losses, likeliest = [], []
        for begin in range(0, len(rows), TARGETS):
            chosen, targets = np.zeros([2, TARGETS], np.int32)
            count = len(rows[begin : begin + TARGETS])
            chosen[:count], targets[:count] = rows[begin : begin + TARGETS], labels[begin : begin + TARGETS]
            compared = self._compare(tf.gather(hidden, chosen), tf.constant(targets))
            losses.append(compared[0].numpy()[:count])
            likeliest.append(compared[1].numpy()[:count])
        return np.concatenate(losses).astype(np.float64), np.concatenate(likeliest)

    def _compare_targets(self, hidden: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the losses [M] of labels [M] after hidden states [M, D], and whether they are the likeliest."""
        logits = tf.matmul(hidden, self.encoder.embeddings.word, transpose_b=True)  # [M, V]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return losses, tf.argmax(logits, axis=1, output_type=tf.int32) == labels
