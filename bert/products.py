"""A dense layer's product and bias, each with a gradient that is better than TensorFlow's own.

Shapes: M rows, I inputs, O outputs.
"""

from collections.abc import Callable

import tensorflow as tf

from bert import regions


@tf.custom_gradient
def product(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
    """x [M, I] times kernel [I, O], of one type."""

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        by_kernel = tf.matmul(x, upstream, transpose_a=True)
        if x.dtype != tf.float32 or regions.has_gpu():
            return tf.matmul(upstream, kernel, transpose_b=True), by_kernel
        # oneDNN's float32 products read a kernel across its rows a fifth slower and more; to turn it costs little. As
        # a batch of one, since TensorFlow's optimiser would make the turning of a matrix part of the product again.
        turned = tf.squeeze(tf.transpose(kernel[None], [0, 2, 1]), 0)
        return tf.matmul(upstream, turned), by_kernel

    return tf.matmul(x, kernel), gradients


@tf.custom_gradient
def add_bias(y: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
    """y [M, O] + bias [O], in y's type; unlike that of tf.nn.bias_add the gradient is summed in float32."""
    return tf.nn.bias_add(y, tf.cast(bias, y.dtype)), lambda upstream: (upstream, regions.column_sums(upstream))


def converted_product(x: tf.Tensor, kernel: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """x [M, I] times kernel [I, O], both float32, in `dtype`; for GPUs, where the gradient by x needs no conversion.

    cuBLAS writes it in float32, and adds what else x's gradient has as it writes.
    """

    @tf.custom_gradient
    def differentiable(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
        left, right = tf.cast(x, dtype), tf.cast(kernel, dtype)

        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return _wide(upstream, right), tf.cast(tf.matmul(left, upstream, transpose_a=True), tf.float32)

        return tf.matmul(left, right), gradients

    return differentiable(x, kernel)


@tf.function(jit_compile=True)
def _wide(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """x [M, O] times the transpose of y [I, O], of 16 bits -> [M, I] float32."""
    return tf.raw_ops.BatchMatMulV3(x=x, y=y, adj_y=True, Tout=tf.float32)


def copies(x: tf.Tensor, count: int) -> list[tf.Tensor]:
    """x so many times. Its gradient is summed from the last copy's to the first's.

    TensorFlow chooses its own order. XLA makes a sum part of the product that is its first term, so the order decides
    how many passes over memory it takes.
    """

    @tf.custom_gradient
    def differentiable(x: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., tf.Tensor]]:
        def gradient(*upstream: tf.Tensor) -> tf.Tensor:
            total = upstream[-1]
            for more in reversed(upstream[:-1]):
                total = more + total
            return total

        return [tf.identity(x) for _ in range(count)], gradient

    return differentiable(x)
