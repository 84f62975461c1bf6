"""Attention of queries, keys and values, and its gradient with no more memory traffic than it needs.

softmax(q k' + mask) v, as published; dropout acts on the weights. The gradient by a score is w (dw - sum(w dw)), the
sum over its row. With o = w v that sum is do . o, a product of short rows, and w is exp(score - logarithm) again: so
one pass over the scores is enough (Dao et al. 2022, FlashAttention, appendix B.2), where TensorFlow's gradient takes
several.

Shapes: B batch, N heads, T tokens, H head width.
"""

from collections.abc import Callable

import tensorflow as tf

from bert import regions


def attend(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, *bits: tf.Tensor, rate: float) -> tf.Tensor:
    """q, already scaled, k and v [B, N, T, H] of one type, mask [B, 1, 1, T] float32 -> [B, N, T, H] in that type.

    bits: as `Noise.bits` gives them for [B, N, T, T]; or none. The mask has no gradient.
    """

    @tf.custom_gradient
    def differentiable(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        scores = tf.matmul(q, k, transpose_b=True)
        weights, logarithm = regions.softmax(scores, mask, *bits, rate=rate)
        output = tf.matmul(weights, v)

        def gradients(upstream: tf.Tensor) -> list[tf.Tensor]:
            by_weights = tf.matmul(upstream, v, transpose_b=True)
            share = regions.row_products(output, upstream)
            by_scores = regions.softmax_gradient(scores, mask, logarithm, share, by_weights, *bits, rate=rate)
            by_k = tf.matmul(by_scores, q, transpose_a=True)
            return [tf.matmul(by_scores, k), by_k, tf.matmul(weights, upstream, transpose_a=True)]

        return output, gradients

    return differentiable(q, k, v)


@tf.custom_gradient
def add_bias(y: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
    """y [M, D] + bias [D], in y's type; unlike that of tf.nn.bias_add the gradient is summed in float32."""
    return tf.nn.bias_add(y, tf.cast(bias, y.dtype)), lambda upstream: (upstream, regions.column_sums(upstream))
