"""Choose the next token by a model's scores: the best one, or one at random from the likeliest.

Random numbers have no state: that of a token is a function of (seed, sample, place in the text). So a sample does not
depend on which others are generated beside it.

Shapes: B samples, V vocabulary, K tokens that may be chosen.
"""

from typing import NamedTuple

import tensorflow as tf

from bert.model.dropout import philox


class Choice(NamedTuple):
    """How the next token is chosen.

    Temperature divides the scores; 0 takes the best token. Otherwise only the `top_k` likeliest tokens remain (0: all).
    Of these remain only as many of the likeliest as have a probability of at least `top_p` together (Holtzman et al.
    2019).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def candidates(logits: tf.Tensor, choice: Choice) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the probabilities [B, K] float64 and the ids [B, K] of the tokens that may be chosen.

    logits [B, V] float32. If any tokens are excluded, the others are in the order of their probabilities; if two have
    equal scores, the one with the lower id comes first. The probabilities of each row add up to 1. Tokens that `top_p`
    excludes have the probability 0.
    """
    scores, ids = _likeliest(logits, choice)
    probabilities = tf.nn.softmax(tf.cast(scores, tf.float64) / (choice.temperature or 1.0))
    if choice.top_p < 1:
        before = tf.cumsum(probabilities, axis=1, exclusive=True)  # 0 for the first token, which always remains
        probabilities = tf.where(before < choice.top_p, probabilities, tf.zeros_like(probabilities))
    return probabilities / tf.reduce_sum(probabilities, axis=1, keepdims=True), ids


def _likeliest(logits: tf.Tensor, choice: Choice) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the scores [B, K] and the ids [B, K] of the likeliest tokens, or of all in the order of their ids."""
    size = logits.shape[1]
    if choice.temperature and not choice.top_k and choice.top_p == 1:  # sorting would take longer than a small model
        return logits, tf.broadcast_to(tf.range(size), tf.shape(logits))
    return tf.math.top_k(logits, min(choice.top_k or size, size) if choice.temperature else 1)


def pick(logits: tf.Tensor, choice: Choice, uniforms: tf.Tensor) -> tf.Tensor:
    """Return a token [B] for each row of logits [B, V] float32; uniforms [B] float64 are random numbers in [0, 1)."""
    probabilities, ids = candidates(logits, choice)
    sums = tf.cumsum(probabilities, axis=1)
    # The last sum is not 1 after rounding. Divided by itself it is, and above every uniform number.
    below = sums / sums[:, -1:] <= uniforms[:, None]
    return tf.gather(ids, tf.math.count_nonzero(below, axis=1, dtype=tf.int32), batch_dims=1)


def uniforms(seed: int, samples: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Return a random number in [0, 1) [B] float64 for each sample and place in its text, both [B] int32."""
    high, low = philox(tf.cast(samples, tf.uint32), tf.cast(places, tf.uint32), tf.constant(seed, tf.uint32))
    words = tf.bitwise.left_shift(tf.cast(high, tf.uint64), tf.constant(32, tf.uint64)) + tf.cast(low, tf.uint64)
    return tf.cast(tf.bitwise.right_shift(words, tf.constant(11, tf.uint64)), tf.float64) * 2.0**-53
