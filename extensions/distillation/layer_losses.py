"""Losses that compare the layers of a model and of its teacher, as float32 sums; padding counts for nothing.

The step divides them by the tokens of the whole batch, or by the pairs of tokens that may attend to each other.

Shapes: B batch, T tokens, D width, N attention heads, H head width, A relation heads.
"""

from collections.abc import Sequence

import tensorflow as tf

from bert.model import attention
from bert.model.losses import soft_labels


def tokens(mask: tf.Tensor) -> tf.Tensor:
    """Return 1 for each token and 0 for padding [..., T], float32; mask as in `encoder.TokenBatch`."""
    return tf.cast(mask > 0, tf.float32)


def pairs(mask: tf.Tensor) -> tf.Tensor:
    """Return 1 for each pair of tokens of one instance and 0 for others [..., T, T], float32; mask as above."""
    return tf.cast(mask[..., :, None] == mask[..., None, :], tf.float32) * tokens(mask)[..., None]


def cosine(own: tf.Tensor, taught: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return the sum over tokens of 1 - cos(own, taught) (Sanh et al. 2019, DistilBERT).

    own, taught: [M, D]. weights: [M].
    """
    own, taught = (tf.math.l2_normalize(x, axis=-1) for x in (own, taught))
    return tf.reduce_sum((1 - tf.reduce_sum(own * taught, axis=-1)) * weights)


def hidden(own: Sequence[tf.Tensor], taught: Sequence[tf.Tensor], weights: tf.Tensor) -> tf.Tensor:
    """Return the sum over tokens and layers of the mean square of own - taught (Jiao et al. 2020, TinyBERT, eq. 8, 9).

    own: projected, if its width was another one. own, taught: [M, D] of each layer. weights: [M].
    """
    return tf.add_n(
        [tf.reduce_sum(tf.reduce_mean(tf.square(x - y), axis=-1) * weights) for x, y in zip(own, taught, strict=True)]
    )


def attention_scores(q: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    """Return q k' / sqrt(H) [B, N, T, T], float32, of q (times `attention.scale`) and k [B, N, T, H]."""
    return tf.matmul(tf.cast(q, tf.float32), tf.cast(k, tf.float32), transpose_b=True) * attention.SCORE_SCALE


def scores(own: Sequence[tf.Tensor], taught: Sequence[tf.Tensor], weights: tf.Tensor) -> tf.Tensor:
    """Return the sum over pairs of tokens and layers of the mean square over heads of own - taught (TinyBERT, eq. 7).

    own, taught: [B, N, T, T] of each layer, before the softmax. weights: of `pairs` [B, T, T].
    """
    return tf.add_n(
        [tf.reduce_sum(tf.reduce_mean(tf.square(x - y), axis=1) * weights) for x, y in zip(own, taught, strict=True)]
    )


def relation_scores(x: tf.Tensor, heads: int) -> tf.Tensor:
    """Return x x' / sqrt(D / A) [B, A, T, T], float32, of queries, keys or values x [B, N, T, H]; heads is A.

    They are divided into relation heads anew: D = N H elements of a token into A times D / A.
    """
    batch, length, width = tf.shape(x)[0], tf.shape(x)[2], x.shape[1] * x.shape[3]
    merged = attention.merge(tf.cast(x, tf.float32), width)  # [B*T, D]
    parts = tf.transpose(tf.reshape(merged, [batch, length, heads, width // heads]), [0, 2, 1, 3])
    return tf.matmul(parts, parts, transpose_b=True) * (width // heads) ** -0.5


def relations(
    own: Sequence[tf.Tensor], taught: Sequence[tf.Tensor], heads: int, mask: tf.Tensor, weights: tf.Tensor
) -> tf.Tensor:
    """Return the sum over tokens, and over kinds of relations, of their divergence (Wang et al. 2021, MiniLMv2).

    Of each token it is KL(softmax(taught relations) || softmax(own relations)), a mean over the relation heads. own,
    taught: queries, keys and values [B, N, T, H], of any number and width of heads; queries as `attention.scale` says.
    mask: what is added to scores [B or 1, 1, 1 or T, T]. weights: [B, T].
    """
    of_heads = tf.repeat(weights[:, None] / heads, heads, axis=1)  # [B, A, T]
    losses = []
    for number, both in enumerate(zip(own, taught, strict=True)):
        x, y = (tf.cast(each, tf.float32) / (attention.scale(each.shape[3]) if number == 0 else 1.0) for each in both)
        losses.append(soft_labels(relation_scores(x, heads) + mask, relation_scores(y, heads) + mask, of_heads, 1.0))
    return tf.add_n(losses)
