"""Cross-entropies as float32 sums: the step divides them by the weights of the whole batch, over all micro-batches."""

from typing import NamedTuple

import tensorflow as tf

from bert.hardware.devices import has_gpu


class Measure(NamedTuple):
    """Sums over a micro-batch for one objective."""

    loss: tf.Tensor  # weighted
    correct: tf.Tensor  # weighted number of correct predictions


def classification(products: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Measure:
    """Return the cross-entropy of logits, `products` [..., C] of any type + `bias` [C], with labels and weights [...].

    XLA always compiles it: where C is the vocabulary, the logits are the largest tensor of the step, and TensorFlow's
    own kernels would read them many more times.
    """
    return _classification(products, bias, labels, weights, shape=tuple(products.shape))


@tf.function(jit_compile=True)
def _classification(
    products: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, shape: tuple[int | None, ...]
) -> Measure:
    """Do so for products of this static shape.

    The shape makes TensorFlow trace the function once for each. It would otherwise take an earlier trace with unknown
    dimensions for known ones too, whose gradient XLA cannot compile inside a loop.
    """
    scores = tf.reshape(tf.cast(products, tf.float32) + bias, [-1, tf.size(bias)])  # [M, C]
    labels, weights = tf.reshape(labels, [-1]), tf.reshape(weights, [-1])
    highest = tf.stop_gradient(tf.reduce_max(scores, axis=-1))
    total = tf.math.log(tf.reduce_sum(tf.exp(scores - highest[:, None]), axis=-1)) + highest
    label_scores = _label_scores(scores, labels)
    correct = tf.cast(label_scores >= highest, tf.float32)
    return Measure(tf.reduce_sum((total - label_scores) * weights), tf.reduce_sum(correct * weights))


def _label_scores(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the score of each row's label [M], from scores [M, C] and labels [M]."""
    if not has_gpu():
        return tf.gather_nd(scores, tf.stack([tf.range(tf.size(labels)), labels], axis=1))
    # The gradient of a gather is a scatter into a float32 tensor as large as the scores; this one is a comparison.
    is_label = tf.range(tf.shape(scores)[1]) == labels[:, None]
    return tf.reduce_sum(tf.where(is_label, scores, 0.0), axis=1)


def span(start_logits: tf.Tensor, end_logits: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> Measure:
    """Return the mean of the two cross-entropies of logits [B, T] with positions [B]; correct if both positions are."""
    losses = [
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        for labels, logits in ((starts, start_logits), (ends, end_logits))
    ]
    correct = tf.equal(tf.argmax(start_logits, -1, tf.int32), starts) & tf.equal(
        tf.argmax(end_logits, -1, tf.int32), ends
    )
    return Measure(tf.reduce_sum(losses[0] + losses[1]) / 2, tf.reduce_sum(tf.cast(correct, tf.float32)))
