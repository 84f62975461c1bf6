"""Losses of embeddings of texts, float32: contrastive over a whole batch, and two for pairs of texts with a score.

Each returns values of every sample: its part of the loss, and whether it is right [N] (0 where that means nothing). The
mean over the batch is the published loss. The embeddings are those of all samples of an update, x [N, K, D]: K texts of
each sample. With `dimensions` the loss is the sum of those of the first d components, for each d of them (Matryoshka,
Kusupati et al. 2022).

N samples, K texts of a sample, D width, M = N (K - 1) candidates.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from bert.embedding import SHORTEST

Each = tuple[tf.Tensor, tf.Tensor]


def contrastive(x: tf.Tensor, texts: tf.Tensor, temperature: float, dimensions: Sequence[int], both: bool) -> Each:
    """Return the cross-entropy of finding the second text of a sample by its first, among all others of the batch.

    loss_i = -log(exp(cos(a_i, p_i) / t) / sum_j exp(cos(a_i, c_j) / t)), where a_i is the first text of sample i, p_i
    its second, and the candidates c are the texts of all samples but the first ones: the second, and the negatives from
    the third on (InfoNCE, van den Oord et al. 2018; SimCSE, Gao et al. 2021). both: take the mean with the loss of
    finding the first text by the second, among the first ones. Right: of all candidates the second text is the nearest.

    texts: numbers that are the same for equal texts only [N, K, C]. A candidate that equals the first or the second
    text of a sample, or is the second text to the same first one, is no candidate for it: it would be one to find.
    """
    copies = _copies(texts)

    def of(unit: tf.Tensor) -> Each:
        first, others = unit[:, 0], tf.reshape(tf.transpose(unit[:, 1:], [1, 0, 2]), [-1, tf.shape(unit)[2]])
        scores = tf.matmul(first, others, transpose_b=True) / temperature  # [N, M], the second texts first
        scores = tf.where(copies, scores.dtype.min, scores)
        places = tf.range(tf.shape(scores)[0])
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(places, scores)
        if both:
            back = tf.transpose(scores[:, : tf.shape(scores)[0]])
            loss = (loss + tf.nn.sparse_softmax_cross_entropy_with_logits(places, back)) / 2
        right = tf.argmax(scores, axis=1, output_type=tf.int32) == places
        return loss, tf.cast(right, tf.float32)

    return _summed(x, dimensions, of)


def _copies(texts: tf.Tensor) -> tf.Tensor:
    """Return which candidates are not negatives of a sample [N, M]; see `contrastive`."""
    first, second = texts[:, 0], texts[:, 1]
    others = tf.reshape(tf.transpose(texts[:, 1:], [1, 0, 2]), [-1, tf.shape(texts)[2]])

    def equal(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return functools.reduce(tf.logical_and, [x[:, None, c] == y[None, :, c] for c in range(x.shape[1])])

    count, rest = tf.shape(first)[0], tf.shape(others)[0] - tf.shape(first)[0]
    with_same_first = tf.pad(equal(first, first), [[0, 0], [0, rest]])
    own = tf.pad(tf.eye(count, dtype=tf.bool), [[0, 0], [0, rest]])
    return (equal(first, others) | equal(second, others) | with_same_first) & ~own


def cosine(x: tf.Tensor, scores: tf.Tensor, dimensions: Sequence[int]) -> Each:
    """Return the squared error of the cosine of both texts as a prediction of the scores [N] (Sentence-BERT)."""

    def of(unit: tf.Tensor) -> Each:
        error = (_cosines(unit) - scores) ** 2
        return error, tf.zeros_like(error)

    return _summed(x, dimensions, of)


def cosent(x: tf.Tensor, scores: tf.Tensor, temperature: float, dimensions: Sequence[int]) -> Each:
    """Return log(1 + sum exp((cos_i - cos_j) / t)) over all i, j of the batch where score i < score j, for each sample.

    Only the order of the scores counts. Source: Su 2022, "CoSENT".
    """

    def of(unit: tf.Tensor) -> Each:
        cosines = _cosines(unit) / temperature
        differences = cosines[:, None] - cosines[None, :]  # [N, N]
        chosen = tf.where(scores[:, None] < scores[None, :], differences, differences.dtype.min)
        loss = tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(chosen, [-1])], axis=0))
        return tf.fill(tf.shape(scores), loss), tf.zeros_like(scores)

    return _summed(x, dimensions, of)


def unit_length(x: tf.Tensor) -> tf.Tensor:
    """Return vectors [..., D] divided by their Euclidean length."""
    return x * tf.math.rsqrt(tf.maximum(tf.reduce_sum(x * x, axis=-1, keepdims=True), SHORTEST**2))


def _cosines(unit: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(unit[:, 0] * unit[:, 1], axis=-1)


def _summed(x: tf.Tensor, dimensions: Sequence[int], of: Callable[[tf.Tensor], Each]) -> Each:
    """Return the sum of the losses of the first d components, for each d, and the right answers of the largest d."""
    each = [of(unit_length(x[..., :size])) for size in sorted(dimensions) or [x.shape[-1]]]
    return tf.add_n([loss for loss, _ in each]), each[-1][1]
