"""Attention of queries, keys and values, and its gradient with no more memory traffic than it needs.

softmax(q k' / sqrt(H) + mask) v, as published; dropout acts on the weights w. The gradient by a score is
w (dw - sum(w dw)), the sum over its row. With o = w v that sum is do . o, a product of short rows (Dao et al. 2022,
FlashAttention, appendix B.2): so one pass over the weights is enough, where TensorFlow's gradient takes several.

Shapes: B batch, N heads, T tokens, H head width.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from bert.model import cudnn, fused_ops

SCORE_SCALE = 0.5  # the part of the scale that is left to the scores, where a power of two rounds nothing


def scale(width: int) -> float:
    """What queries for heads of so many components are to be multiplied with: all but `SCORE_SCALE` of 1 / sqrt(H).

    Most is done before the product with the keys, whose sums float16 might not hold.
    """
    return width**-0.5 / SCORE_SCALE


def split(y: tf.Tensor, tokens: tf.Tensor, heads: int) -> list[tf.Tensor]:
    """Queries, keys and values [B, N, T, H] of their joined product y [B*T, 3 D]; tokens: T."""
    parts = tf.reshape(y, [-1, tokens, 3, heads, y.shape[-1] // (3 * heads)])
    return tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))


def heads(y: tf.Tensor, tokens: tf.Tensor, count: int) -> tf.Tensor:
    """Queries, keys or values [B, N, T, H] of their product y [B*T, D]; tokens: T, count: N."""
    return _exchanged(tf.reshape(y, [-1, tokens, count, y.shape[-1] // count]))


def merge(context: tf.Tensor, width: int) -> tf.Tensor:
    """What the heads give, [B, N, T, H] -> [B*T, D]; width: D."""
    return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, width])


def attend(
    q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, *bits: tf.Tensor, rate: float, fused: bool = False
) -> tf.Tensor:
    """q, times `scale`, k and v [B, N, T, H] of one type, mask [B, 1, 1 or T, T] float32 -> [B, N, T, H] in that type.

    bits: from `DropoutRng.bits` for [B, N, T, T], or none. The mask has no gradient. fused: by cuDNN, without bits.
    """
    if fused:
        return _exchanged(cudnn.attend(_exchanged(q), _exchanged(k), _exchanged(v), mask, SCORE_SCALE))

    @tf.custom_gradient
    def differentiable(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        weights = _weights(q, k, mask)
        dropped = fused_ops.dropped(weights, *bits, rate=rate) if bits else weights
        output = tf.matmul(dropped, v)

        def gradients(upstream: tf.Tensor) -> list[tf.Tensor]:
            by_weights = tf.matmul(upstream, v, transpose_b=True)
            share = fused_ops.row_products(output, upstream)
            by_scores = fused_ops.softmax_gradient(weights, share, by_weights, *bits, rate=rate, factor=SCORE_SCALE)
            by_k = tf.matmul(by_scores, q, transpose_a=True)
            return [tf.matmul(by_scores, k), by_k, tf.matmul(dropped, upstream, transpose_a=True)]

        return output, gradients

    return differentiable(q, k, v)


def _exchanged(x: tf.Tensor) -> tf.Tensor:
    """[B, N, T, H] to [B, T, N, H] and back; XLA leaves out two of them that meet."""
    return tf.transpose(x, [0, 2, 1, 3])


def _weights(q: tf.Tensor, k: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Softmax of the scores [B, N, T, T] in the type of q and k, computed in float32."""
    scores = tf.matmul(q, k, transpose_b=True)
    if not by_library(q.dtype):
        return fused_ops.softmax(scores, mask, factor=SCORE_SCALE)
    # On CPUs oneDNN multiplies and adds as it stores the product, if both are asked for, and has the faster softmax.
    return tf.nn.softmax(scores * tf.constant(SCORE_SCALE, q.dtype) + tf.cast(mask, q.dtype))


def by_library(dtype: tf.DType) -> bool:
    """Whether the softmax of that type is best left to the library, as on CPUs whose oneDNN computes it in float32."""
    return not fused_ops.has_gpu() and exact_softmax(dtype)


@functools.cache
def exact_softmax(dtype: tf.DType) -> bool:
    """Whether the softmax of that type is computed in float32: oneDNN's is, TensorFlow's own on processors without."""
    if dtype == tf.float16:  # whose range has no room for the mask
        return False
    with tf.init_scope():  # now, also while a graph is made
        x = tf.cast(tf.random.stateless_normal([8, 512], seed=(1, 2), stddev=3.0), dtype)
        exact = tf.cast(tf.nn.softmax(tf.cast(x, tf.float32)), dtype)
        return bool(tf.reduce_all(tf.abs(tf.nn.softmax(x) - exact) <= exact * tf.constant(2**-7, dtype)))
