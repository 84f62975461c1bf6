"""Dropout without state: every mask is a function of (seed, step, micro-batch, place in the model).

So a resumed run drops what the uninterrupted one would have dropped, and a micro-batch gets the same mask whichever
rank computes it.
"""

import tensorflow as tf

PLACES = 64  # for dropout in one part of the model
LEVELS = 256  # eight random bits decide one element: a quarter of the generator's work for a 32-bit number each


class Noise:
    """The dropout masks of one forward pass; each call of `bits` is the next place in the model."""

    def __init__(self, seed: tf.Tensor | None) -> None:
        """`seed`: [2] int64, unique to (run, step, micro-batch); None for inference, which drops nothing."""
        self.seed, self.place = seed, 0

    def branch(self, number: int) -> "Noise":
        """The masks of part `number` of the model, from 1: the same however often that part is computed."""
        return Noise(None if self.seed is None else self.seed + tf.constant([number * PLACES, 0], tf.int64))

    def bits(self, shape: tf.Tensor, rate: float) -> tuple[tf.Tensor, ...]:
        """What `drop` needs for a tensor of this shape: one of uint8 with eight random bits an element; or nothing."""
        if self.seed is None or _dropped(rate) == 0:
            return ()
        self.place += 1
        size = tf.reduce_prod(shape)
        words = tf.random.stateless_uniform(
            [(size + 3) // 4], self.seed + tf.constant([self.place, 0], tf.int64), None, None, tf.uint32, alg="philox"
        )
        return (tf.reshape(tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size], shape),)


def drop(x: tf.Tensor, bits: tuple[tf.Tensor, ...], rate: float) -> tf.Tensor:
    """Zeroes elements of x with probability `rate`, rounded to 1/256, and scales the rest to keep the mean.

    bits: as `Noise.bits` gives them for x's shape; with none, x is left as it is.
    """
    if not bits:
        return x
    dropped = _dropped(rate)
    scaled = x * tf.cast(LEVELS / (LEVELS - dropped), x.dtype)
    return tf.where(bits[0] >= tf.constant(dropped, tf.uint8), scaled, tf.zeros([], x.dtype))


def _dropped(rate: float) -> int:
    return round(rate * LEVELS)


def micro_batch_seed(seed: int, step: tf.Tensor, micro_batch: tf.Tensor) -> tf.Tensor:
    """[2] int64 for `Noise`; `micro_batch` counts over all ranks. The first entry leaves room for 2**20 places."""
    first = tf.constant(seed * 2**20, tf.int64)
    return tf.stack([first, tf.cast(step, tf.int64) * 2**24 + tf.cast(micro_batch, tf.int64)])
