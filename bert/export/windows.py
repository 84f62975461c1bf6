"""Texts that are too long for the model, as overlapping windows, in a graph: as bert.text.windows has them in NumPy.

B texts, W windows of all of them, n spans of tokens.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from bert.export.graph import over


class Windows(NamedTuple):
    """W windows in the order of their texts; all fields [W]."""

    text: tf.Tensor
    number: tf.Tensor  # index among the windows of its text
    skipped: tf.Tensor  # tokens of the text before it
    length: tf.Tensor  # number of tokens


class Spans(NamedTuple):
    """Spans of tokens, half open; all fields [n]."""

    text: tf.Tensor
    begin: tf.Tensor  # index of a token in its text
    end: tf.Tensor


def counts(tokens: tf.Tensor, room: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Return the number of windows of each text [B], of `room` tokens, which begin `step` tokens apart."""
    return over(tf.maximum(0, tokens - room), step) + 1


def cut(tokens: tf.Tensor, room: tf.Tensor, step: tf.Tensor, count: tf.Tensor) -> Windows:
    """Cut the windows of texts with this many tokens; all arguments [B], count: as in `counts`."""
    text, number = tf.repeat(tf.range(tf.size(count)), count), tf.ragged.range(count).flat_values
    skipped = number * tf.gather(step, text)
    return Windows(text, number, skipped, tf.minimum(tf.gather(room, text), tf.gather(tokens, text) - skipped))


def joined(first: Windows, second: Windows) -> Windows:
    """Return the windows of both."""
    return Windows(*(tf.concat(pair, axis=0) for pair in zip(first, second, strict=True)))


def most_context(spans: Spans, tokens: tf.Tensor, room: tf.Tensor, step: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return for each span the window with the span's first token that gives it the most context [n].

    tokens, room, step, count: of the texts [B], as in `cut`. The context is the number of tokens to the left or to the
    right, whichever is less, + 0.01 * the length of the window. Of several windows with equal context, take the first.
    """
    reach = tf.reduce_max(tf.pad(over(room, step), [[0, 1]]))  # windows that may hold one token; 0 without texts
    room, step, last, tokens = (tf.gather(x, spans.text)[:, None] for x in (room, step, count - 1, tokens))
    begin, end = spans.begin[:, None], spans.end[:, None]
    near = tf.maximum(tf.minimum(begin // step, last) - tf.range(reach, -1, -1), 0)
    length = tf.minimum(room, tokens - near * step)
    stop = near * step + length
    context = tf.cast(tf.minimum(begin - near * step, stop - end), tf.float64) + 0.01 * tf.cast(length, tf.float64)
    best = tf.argmax(tf.where(begin < stop, context, -math.inf), axis=1, output_type=tf.int32)
    return tf.gather(near, best, batch_dims=1)
