"""Cross-entropies as sums in float32: who knows the whole batch's weights divides, so that micro-batches add up."""

from typing import NamedTuple

import tensorflow as tf

from bert.hardware.devices import has_gpu


class Measure(NamedTuple):
    """One objective over a micro-batch: its weighted loss and its weighted number of right answers, both summed."""

    loss: tf.Tensor
    correct: tf.Tensor


@tf.function(jit_compile=True)
def classification(products: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Measure:
    """Cross-entropy of logits, `products` [..., C] of any type + `bias` [C], against labels [...] with weights [...].

    XLA compiles it in the plain path too: with C the vocabulary, the logits are the largest tensor of the step, and
    TensorFlow's own kernels would go through them many more times.
    """
    scores = tf.reshape(tf.cast(products, tf.float32) + bias, [-1, tf.size(bias)])  # [M, C]
    labels, weights = tf.reshape(labels, [-1]), tf.reshape(weights, [-1])
    highest = tf.stop_gradient(tf.reduce_max(scores, axis=-1))
    total = tf.math.log(tf.reduce_sum(tf.exp(scores - highest[:, None]), axis=-1)) + highest
    labelled = _labelled(scores, labels)
    right = tf.cast(labelled >= highest, tf.float32)
    return Measure(tf.reduce_sum((total - labelled) * weights), tf.reduce_sum(right * weights))


def _labelled(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Score of each row's label: of scores [M, C] and labels [M], [M]."""
    if not has_gpu():
        return tf.gather_nd(scores, tf.stack([tf.range(tf.size(labels)), labels], axis=1))
    # The gradient of gathering scatters into a tensor of float32 as large as the scores; this one's is a comparison.
    label = tf.range(tf.shape(scores)[1]) == labels[:, None]
    return tf.reduce_sum(tf.where(label, scores, 0.0), axis=1)


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
