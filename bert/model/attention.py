"""Scaled dot-product attention with dropout, and a gradient that passes over the weights only once.

softmax(q k' / sqrt(H) + mask) v, as published; dropout acts on the weights w. The gradient by a score is
w (dw - sum(w dw)), the sum over its row. With o = w v that sum is do . o, a product of short rows (Dao et al. 2022,
FlashAttention, appendix B.2). TensorFlow's own gradient passes over the weights several times.

Shapes: B batch, N heads, T tokens, H head width, D width.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from bert.model import fused_ops

SCORE_SCALE = 0.5  # part of 1 / sqrt(H) that multiplies the scores: a power of two, which rounds nothing


def scale(head_width: int) -> float:
    """Return the factor for the queries: 1 / sqrt(H), divided by `SCORE_SCALE`.

    Most of the scaling comes before the product with the keys. Otherwise sums in float16 could overflow.
    """
    return head_width**-0.5 / SCORE_SCALE


def split(y: tf.Tensor, tokens: tf.Tensor, heads: int) -> list[tf.Tensor]:
    """Split the joint product y [B*T, 3 D] into queries, keys and values [B, N, T, H]; `tokens` is T."""
    parts = tf.reshape(y, [-1, tokens, 3, heads, y.shape[-1] // (3 * heads)])
    return tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))


def heads(y: tf.Tensor, tokens: tf.Tensor, count: int) -> tf.Tensor:
    """Split queries, keys or values y [B*T, D] into heads [B, N, T, H]; `tokens` is T, `count` is N."""
    return exchange_heads_and_tokens(tf.reshape(y, [-1, tokens, count, y.shape[-1] // count]))


def merge(context: tf.Tensor, width: int) -> tf.Tensor:
    """Merge the heads of context [B, N, T, H] into [B*T, D]; `width` is D."""
    return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, width])


def attend(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, *bits: tf.Tensor, rate: float) -> tf.Tensor:
    """Return the attention of q (times `scale`), k and v [B, N, T, H] as [B, N, T, H]; all have one data type.

    mask [B, 1, 1 or T, T], float32, is added to the scores; it has no gradient. bits: random bytes that
    `DropoutRng.bits` returns for [B, N, T, T]; none: no dropout.
    """

    @tf.custom_gradient
    def differentiable(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        weights = _weights(q, k, mask)
        dropped = fused_ops.dropped(weights, *bits, rate=rate) if bits else weights
        output = tf.matmul(dropped, v)

        def gradients(upstream: tf.Tensor) -> list[tf.Tensor]:
            by_weights = tf.matmul(upstream, v, transpose_b=True)
            row_dots = fused_ops.row_products(output, upstream)
            by_scores = fused_ops.softmax_gradient(weights, row_dots, by_weights, *bits, rate=rate, factor=SCORE_SCALE)
            by_k = tf.matmul(by_scores, q, transpose_a=True)
            return [tf.matmul(by_scores, k), by_k, tf.matmul(dropped, upstream, transpose_a=True)]

        return output, gradients

    return differentiable(q, k, v)


def exchange_heads_and_tokens(x: tf.Tensor) -> tf.Tensor:
    """Transpose [B, N, T, H] to [B, T, N, H], or back. XLA removes two of these operations in a row."""
    return tf.transpose(x, [0, 2, 1, 3])


def _weights(q: tf.Tensor, k: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the softmax of the scores [B, N, T, T] in the type of q and k, computed in float32."""
    scores = tf.matmul(q, k, transpose_b=True)
    if not library_softmax(q.dtype):
        return fused_ops.softmax(scores, mask, factor=SCORE_SCALE)
    # oneDNN multiplies and adds while it stores the product, if both are asked for, and has the faster softmax.
    return tf.nn.softmax(scores * tf.constant(SCORE_SCALE, q.dtype) + tf.cast(mask, q.dtype))


def library_softmax(dtype: tf.DType) -> bool:
    """Return whether to use TensorFlow's softmax: on CPUs where oneDNN computes the softmax of `dtype` in float32."""
    return not fused_ops.has_gpu() and exact_softmax(dtype)


@functools.cache
def exact_softmax(dtype: tf.DType) -> bool:
    """Return whether TensorFlow computes the softmax of `dtype` in float32.

    oneDNN does. TensorFlow's other kernels do not.
    """
    if dtype == tf.float16:  # whose range has no room for the mask
        return False
    with tf.init_scope():  # run it now, also while a graph is traced
        x = tf.cast(tf.random.stateless_normal([8, 512], seed=(1, 2), stddev=3.0), dtype)
        exact = tf.cast(tf.nn.softmax(tf.cast(x, tf.float32)), dtype)
        return bool(tf.reduce_all(tf.abs(tf.nn.softmax(x) - exact) <= exact * tf.constant(2**-7, dtype)))
