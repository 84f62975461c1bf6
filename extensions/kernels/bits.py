"""Dropout's random bits as kernels read them: one bit for each element, from the bytes that the plain path compares."""

import tensorflow as tf

from bert.hardware import graphs
from bert.model.dropout import DropoutRng, dropped_levels, random_words, word_rows


def packed(
    dropout: DropoutRng, shape: tf.Tensor, rate: float, heads: tuple[int, int] | None = None
) -> tuple[tf.Tensor, ...]:
    """Return, as bits, which elements `apply_dropout` would keep by the bytes of `dropout.bits` with these arguments.

    The result is one uint8 tensor of this shape with an eighth of its columns, or an empty tuple. The lowest bit of a
    byte is for the first of eight elements. The number of columns is a multiple of 8.
    """
    seed = dropout.next_seed(rate)
    if seed is None:
        return ()
    shape = tf.concat([shape[:-1], shape[-1:] // 8], axis=0)
    if heads:
        (first, whole), (batch, count, rows, columns) = heads, tf.unstack(shape)
        words_of_head = rows * columns
        words = word_rows(seed, (tf.range(batch) * whole + first) * words_of_head, count * words_of_head)
    else:
        words = random_words(seed, tf.reduce_prod(shape), dropout.unfolded)
    return (tf.reshape(_kept_bits(words, dropped_levels(rate)), shape),)


@graphs.function(jit_compile=True)
def _kept_bits(words: tf.Tensor, dropped: int) -> tf.Tensor:
    """Return for each of the eight bytes of a random number whether it is at least `dropped`, as bits of one uint8."""
    kept = tf.zeros_like(words, tf.uint8)
    for place in range(8):
        byte = tf.cast(tf.bitwise.right_shift(words, tf.constant(8 * place, tf.uint64)), tf.uint8)
        kept += tf.cast(byte >= tf.constant(dropped, tf.uint8), tf.uint8) * tf.constant(1 << place, tf.uint8)
    return kept
