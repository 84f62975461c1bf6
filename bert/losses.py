"""Cross-entropies as sums in float32: who knows the whole batch's weights divides, so that micro-batches add up."""

from typing import NamedTuple

import tensorflow as tf


class Measure(NamedTuple):
    """One objective over a micro-batch: its weighted loss and its weighted number of right answers, both summed."""

    loss: tf.Tensor
    correct: tf.Tensor


def classification(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Measure:
    """Cross-entropy of logits [..., C] float32 against labels [...] with weights [...]."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    right = tf.cast(tf.equal(tf.argmax(logits, -1, tf.int32), labels), tf.float32)
    return Measure(tf.reduce_sum(losses * weights), tf.reduce_sum(right * weights))


def span(start_logits: tf.Tensor, end_logits: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> Measure:
    """Mean of the two cross-entropies of logits [B, T] against positions [B]; right when both positions are."""
    losses = [
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        for labels, logits in ((starts, start_logits), (ends, end_logits))
    ]
    right = tf.equal(tf.argmax(start_logits, -1, tf.int32), starts) & tf.equal(
        tf.argmax(end_logits, -1, tf.int32), ends
    )
    return Measure(tf.reduce_sum(losses[0] + losses[1]) / 2, tf.reduce_sum(tf.cast(right, tf.float32)))
