"""The answer of `peak` for contenders that use TensorFlow, of any version; imports none of our code."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks import adapter


def peak(compute: str) -> adapter.Answer:
    """Return the FLOP/s of the fastest square matrix product in this data type."""
    multiply = tf.function(tf.matmul)

    def product(size: int) -> Callable[[], Any]:
        a, b = (tf.cast(tf.random.normal([size, size]), compute) for _ in range(2))
        return lambda: multiply(a, b)[0, 0].numpy()

    return adapter.fastest(product)
