"""Dropout without state: every mask is a function of (seed, step, micro-batch, place in the model).

So a resumed run drops what the uninterrupted one would have dropped, and a micro-batch gets the same mask whichever
rank computes it.
"""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from bert.hardware.devices import has_gpu

PLACES = 64  # for dropout in one part of the model
LEVELS = 256  # eight random bits decide one element: a quarter of the generator's work for a 32-bit number each
ROUNDS, MULTIPLIER, WEYL = 7, 0xD256D193, 0x9E3779B9


class DropoutRng:
    """The dropout masks of one forward pass; each call of `bits` is the next place in the model."""

    def __init__(self, seed: tf.Tensor | None) -> None:
        """`seed`: [2] int64, unique to (run, step, micro-batch); None for inference, which drops nothing."""
        self.seed, self.place = seed, 0

    def branch(self, number: int) -> "DropoutRng":
        """The masks of part `number` of the model, from 1: the same however often that part is computed."""
        return DropoutRng(None if self.seed is None else self.seed + tf.constant([number * PLACES, 0], tf.int64))

    def bits(self, shape: tf.Tensor, rate: float) -> tuple[tf.Tensor, ...]:
        """Random bytes for `apply_dropout`: one uint8 tensor of this shape, or an empty tuple if nothing is dropped."""
        if self.seed is None or _dropped(rate) == 0:
            return ()
        self.place += 1
        size = tf.reduce_prod(shape)
        words = _words(self.seed + tf.constant([self.place, 0], tf.int64), (size + 7) // 8)
        each = tf.reshape(tf.bitcast(words, tf.uint8), [-1])
        return (tf.reshape((_written(each) if has_gpu() else each)[:size], shape),)


@tf.function(jit_compile=True)
def _words(seed: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """[count] uint64, random, a function of the seed [2] int64."""
    (a, b), (c, d) = (tf.unstack(half) for half in tf.unstack(tf.bitcast(seed, tf.uint32)))
    stream, key = philox(*philox(a, b, c), d)
    x, y = philox(tf.cast(tf.range(count), tf.uint32), tf.fill([count], stream), key)
    return tf.bitwise.left_shift(tf.cast(x, tf.uint64), tf.constant(32, tf.uint64)) + tf.cast(y, tf.uint64)


@tf.function(jit_compile=True)
def _written(x: tf.Tensor) -> tf.Tensor:
    """x as it is, but XLA writes it to memory first, where a program is compiled whole.

    Reading words as bytes is no part of XLA's fastest fusions for GPUs, and would keep its reader out of them too.
    """
    return gen_xla_ops.xla_optimization_barrier(input=[x])[0]


def philox(x: tf.Tensor, y: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Philox-2x32-7: counters x and y and a key, uint32, to two random words for each counter.

    Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3": seven rounds pass all tests of BigCrush.
    """
    for _ in range(ROUNDS):
        product = tf.cast(x, tf.uint64) * MULTIPLIER
        high = tf.cast(tf.bitwise.right_shift(product, tf.constant(32, tf.uint64)), tf.uint32)
        x, y = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(high, key), y), tf.cast(product, tf.uint32)
        key += tf.constant(WEYL, tf.uint32)
    return x, y


def apply_dropout(x: tf.Tensor, bits: tuple[tf.Tensor, ...], rate: float) -> tf.Tensor:
    """Zeroes elements of x with probability `rate`, rounded to 1/256, and scales the rest to keep the mean.

    bits: as `DropoutRng.bits` gives them for x's shape; with none, x is left as it is.
    """
    if not bits:
        return x
    dropped = _dropped(rate)
    scaled = x * tf.cast(LEVELS / (LEVELS - dropped), x.dtype)
    return tf.where(bits[0] >= tf.constant(dropped, tf.uint8), scaled, tf.zeros([], x.dtype))


def _dropped(rate: float) -> int:
    return round(rate * LEVELS)


def micro_batch_seed(seed: int, step: tf.Tensor, micro_batch: tf.Tensor) -> tf.Tensor:
    """[2] int64 for `DropoutRng`; `micro_batch` counts over all ranks. The first entry leaves room for 2**20 places."""
    first = tf.constant(seed * 2**20, tf.int64)
    return tf.stack([first, tf.cast(step, tf.int64) * 2**24 + tf.cast(micro_batch, tf.int64)])
