"""Choose the next token by a model's scores: the best one, or one at random from the likeliest.

Random numbers have no state: that of a token is a function of (seed, sample, place in the text). So a sample does not
depend on which others are generated beside it.

Shapes: B samples, V vocabulary, K tokens that may be chosen, in the order of their probabilities.
"""

from typing import NamedTuple

import tensorflow as tf

from bert.model.dropout import philox


class Choice(NamedTuple):
    """How the next token is chosen.

    Temperature divides the scores; 0 takes the best token. Of the others, only the `top_k` likeliest remain (0: all);
    of these, only as many of the likeliest as together have a probability of `top_p` at least (Holtzman et al. 2019).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def candidates(logits: tf.Tensor, choice: Choice) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the probabilities [B, K] float64, falling, and the ids [B, K] of the tokens that may be chosen.

    logits [B, V] float32. Of tokens with equal scores, the one with the lower id comes first. The probabilities of each
    row add up to 1; those that `top_p` excludes are 0.
    """
    size = logits.shape[1]
    scores, ids = tf.math.top_k(logits, 1 if choice.temperature == 0 else min(choice.top_k or size, size))
    scaled = tf.cast(scores, tf.float64) / (choice.temperature or 1.0)
    probabilities = tf.nn.softmax(scaled)
    before = tf.cumsum(probabilities, axis=1, exclusive=True)
    # The first token always remains: none stands before it.
    remaining = tf.where(before < choice.top_p, probabilities, tf.zeros_like(probabilities))
    return remaining / tf.reduce_sum(remaining, axis=1, keepdims=True), ids


def pick(logits: tf.Tensor, choice: Choice, uniforms: tf.Tensor) -> tf.Tensor:
    """Return a token [B] for each row of logits [B, V] float32; uniforms [B] float64 are random numbers in [0, 1)."""
    probabilities, ids = candidates(logits, choice)
    below = tf.cumsum(probabilities, axis=1) <= uniforms[:, None]
    # Rounding may leave the sum of all below 1; a token of probability 0 is not chosen then either.
    last = tf.math.count_nonzero(probabilities, axis=1, dtype=tf.int32) - 1
    place = tf.minimum(tf.math.count_nonzero(below, axis=1, dtype=tf.int32), last)
    return tf.gather(ids, place, batch_dims=1)


def uniforms(seed: int, samples: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Return a random number in [0, 1) [B] float64 for each sample and place in its text, both [B] int32."""
    high, low = philox(tf.cast(samples, tf.uint32), tf.cast(places, tf.uint32), tf.constant(seed, tf.uint32))
    words = tf.bitwise.left_shift(tf.cast(high, tf.uint64), tf.constant(32, tf.uint64)) + tf.cast(low, tf.uint64)
    return tf.cast(tf.bitwise.right_shift(words, tf.constant(11, tf.uint64)), tf.float64) * 2.0**-53
