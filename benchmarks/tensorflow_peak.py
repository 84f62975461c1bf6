"""The answer of `peak` for contenders that run TensorFlow, of whichever version; imports nothing of ours."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks import adapter


def peak(compute: str) -> adapter.Answer:
    """FLOP/s of the fastest square product in that type."""
    multiply = tf.function(tf.matmul)

    def product(size: int) -> Callable[[], Any]:
        a, b = (tf.cast(tf.random.normal([size, size]), compute) for _ in range(2))
        return lambda: multiply(a, b)[0, 0].numpy()

    return adapter.fastest(product)
