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
