"""Texts that are too long for the model, as overlapping windows, in a graph: what squad.features.cut does in NumPy.

B texts, W windows of all of them, t tokens of all of them.
"""

from typing import NamedTuple

import tensorflow as tf

from bert.export.graph import int32, over


class Windows(NamedTuple):
    """W windows in the order of their texts; all fields [W]."""

    text: tf.Tensor
    number: tf.Tensor  # index among the windows of its text
    skipped: tf.Tensor  # tokens of the text before it
    length: tf.Tensor  # number of tokens


def counts(tokens: tf.Tensor, room: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Return the number of windows of each text [B], of `room` tokens, which begin `step` tokens apart."""
    return over(tf.maximum(0, tokens - room), step) + 1


def cut(tokens: tf.Tensor, room: tf.Tensor, step: tf.Tensor, count: tf.Tensor) -> Windows:
    """Cut the windows of texts with so many tokens; all arguments [B], count: as of `counts`."""
    text, number = tf.repeat(tf.range(tf.size(count)), count), tf.ragged.range(count).flat_values
    skipped = number * tf.gather(step, text)
    return Windows(text, number, skipped, tf.minimum(tf.gather(room, text), tf.gather(tokens, text) - skipped))


def best(tokens: tf.Tensor, room: tf.Tensor, step: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return for each token the window of its text in which it has the most context [t], as features.best_window does.

    All arguments [B], as of `cut`.
    """
    text = tf.repeat(tf.range(tf.size(count)), tokens)  # [t]
    first = tf.cumsum(tokens, exclusive=True)
    reach = tf.reduce_max(tf.pad(over(room, step), [[0, 1]]))  # windows that may hold one token; 0 without texts
    room, step, last, tokens = (tf.gather(x, text)[:, None] for x in (room, step, count - 1, tokens))
    at = (tf.range(tf.size(text)) - tf.gather(first, text))[:, None]
    near = tf.maximum(tf.minimum(at // step, last) - tf.range(reach, -1, -1), 0)
    length = tf.minimum(room, tokens - near * step)
    context = tf.minimum(at - near * step, near * step + length - 1 - at)
    score = tf.cast(context, tf.float64) + 0.01 * tf.cast(length, tf.float64)
    chosen = tf.argmax(tf.where(context >= 0, score, -1), axis=1, output_type=tf.int32)
    return tf.gather(near, int32(chosen), batch_dims=1)
