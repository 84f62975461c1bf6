"""Random inputs, and the gradients of functions of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Function = Callable[..., Any]


def normal(*shape: int, scale: float = 1.0) -> tf.Tensor:
    return tf.constant(np.random.default_rng(sum(shape)).normal(0.5, scale, shape), tf.float32)


def bits(*shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(sum(shape)).integers(0, 256, shape), tf.uint8)


def gradients(function: Function, *arguments: tf.Tensor) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the outputs, and the gradients of their sum with uneven weights by each floating-point argument."""
    varied = [tensor for tensor in arguments if tensor.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(varied)
        outputs = tf.nest.flatten(function(*arguments))
        weights = [tf.cos(tf.reshape(tf.range(tf.size(y), dtype=tf.float32), y.shape)) for y in outputs]
        total = tf.add_n([tf.reduce_sum(tf.cast(y, tf.float32) * w) for y, w in zip(outputs, weights, strict=True)])
    return [y.numpy() for y in outputs], [x.numpy() for x in tape.gradient(total, varied)]
