"""Replaced-token detection: a small generator fills masked words, and the model finds those that it got wrong.

Source: Clark et al. 2020, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators". The generator
learns masked words. At each masked position a word is drawn from its probabilities and put into the text. The encoder,
called the discriminator there, says for each token whether it is another one than in the text before masking; a draw
of the right word is no replacement. The draws have no gradient: both models learn by their own losses, and from each
other through the embeddings, which they share.

If several devices hold the models (model_shard.py), both are divided, and all devices of a group draw the same words.

B texts, T tokens, M masked positions, U scores of the vocabulary, D width.
"""

from typing import NamedTuple

import tensorflow as tf

from bert import heads
from bert.core.config import ModelConfig
from bert.hardware import graphs
from bert.model import losses
from bert.model.dropout import DropoutRng, philox
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.model.heads import MaskedLM, ReplacedToken
from bert.model.losses import Detection, Measure
from bert.model.model_shard import UNSHARDED, Parts

BLOCK = 128  # scores of the vocabulary that are added at once


class Masked(NamedTuple):
    """The masked positions of a batch."""

    places: tf.Tensor  # [M] in the flattened batch [B*T]
    words: tf.Tensor  # [M] that are there in the text
    weights: tf.Tensor  # [M] 1, or 0 for positions that fill up a row


class ReplacedTokensModel(tf.Module):
    """The encoder with the head of the detection, and the generator, which shares the encoder's embeddings."""

    def __init__(
        self,
        config: ModelConfig,
        generator: ModelConfig,
        seed: int,
        parts: Parts = UNSHARDED,
    ) -> None:
        super().__init__()
        prefix = f"{heads.GENERATOR}/"
        self.encoder = Encoder(config, seed, parts)
        self.replaced_token = ReplacedToken(config, seed)
        self.generator = Encoder(generator, seed, parts, shared=self.encoder.embeddings, prefix=prefix)
        self.masked_lm = MaskedLM(generator, seed, parts, prefix=prefix)
        self.parts, self.vocab_size = parts, config.vocab_size

    def measure(self, tokens: TokenBatch, masked: Masked, mode: Mode) -> tuple[Measure, Detection]:
        """Return the measures of the generator's predictions, and of the detection in all tokens of the texts."""
        other = mode.branch(len(self.encoder.layers) + 2)._replace(groups=None)  # the encoder has the branches before
        hidden = self.generator(tokens, other, masked.places)
        scores = self.masked_lm(hidden, self.encoder.embeddings.word, mode.dtype)
        words = self.masked_lm.measure(scores, masked.words, masked.weights)
        numbers = uniforms(other.dropout, tokens, masked)
        given = tf.stop_gradient(scores), self.masked_lm.biases(), numbers
        drawn = draw(*given) if self.parts.count == 1 else divided_draw(*given, self.vocab_size, self.parts)
        text, corrupted = (replaced(tokens.ids, masked, chosen) for chosen in (masked.words, drawn))
        states = self.encoder(tokens._replace(ids=corrupted), mode)
        logits = self.replaced_token(tf.reshape(states, [-1, states.shape[2]]), mode.dtype)
        labels, real = tf.not_equal(corrupted, text), tf.ones_like(text) if tokens.mask is None else tokens.mask
        flags = (tf.cast(tf.reshape(x, [-1]), tf.float32) for x in (labels, real > 0))
        return words, losses.detection(logits, *flags)


def replaced(ids: tf.Tensor, masked: Masked, words: tf.Tensor) -> tf.Tensor:
    """Return ids [B, T] with `words` [M] at the masked positions."""
    flat = tf.reshape(ids, [-1])
    changes = (words - tf.gather(flat, masked.places)) * tf.cast(masked.weights > 0, tf.int32)  # a sum has no order
    return tf.reshape(tf.tensor_scatter_nd_add(flat, masked.places[:, None], changes), tf.shape(ids))


def uniforms(dropout: DropoutRng, tokens: TokenBatch, masked: Masked) -> tf.Tensor:
    """Return a random number in [0, 1) for each masked position [M].

    It is a function of the update, the word with those beside it, and its position. So it depends neither on the order
    of the texts in a batch nor on how they are divided into micro-batches, ranks or packed rows. Outside training it is
    a function of the text alone.
    """
    ids, length = tf.reshape(tokens.ids, [-1]), tf.shape(tokens.ids)[1]
    text = tf.reshape(tf.ones_like(tokens.ids) if tokens.mask is None else tokens.mask, [-1])
    position = (
        masked.places % length
        if tokens.positions is None
        else tf.gather(tf.reshape(tokens.positions, [-1]), masked.places)
    )

    def beside(step: int) -> tf.Tensor:
        """Return the words `step` places further on [M], or 0 where another text begins or a row ends."""
        there = tf.clip_by_value(masked.places + step, 0, tf.size(ids) - 1)
        same = (tf.gather(text, there) == tf.gather(text, masked.places)) & (there // length == masked.places // length)
        return tf.gather(ids, there) * tf.cast(same, tf.int32)

    before, after = beside(-1), beside(1)
    return _uniforms(dropout.update(), tf.stack([masked.words, before, after, position]))


@graphs.function(jit_compile=True)
def _uniforms(seed: tf.Tensor, content: tf.Tensor) -> tf.Tensor:
    """Return numbers [M] that are functions of the seed [2] int64 and of the columns of `content` [4, M] int32."""
    (a, b), (c, d) = (tf.unstack(half) for half in tf.unstack(tf.bitcast(seed, tf.uint32)))
    word, before, after, position = tf.unstack(tf.cast(content, tf.uint32))
    x, y = philox(*philox(word, before, a + b), c + d)
    x, _ = philox(*philox(x ^ after, y ^ position, b), d)
    return tf.cast(tf.bitwise.right_shift(x, tf.constant(8, tf.uint32)), tf.float32) * 2.0**-24


@graphs.function(jit_compile=True)
def draw(products: tf.Tensor, bias: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Return a word [M] int32 drawn from each softmax of products [M, U] of any type + bias [U].

    uniform: random numbers in [0, 1) [M]. The word is the one in whose part of the cumulated probabilities its number
    lies. They are cumulated in two steps, over blocks of the vocabulary and within one block, because one random number
    and two short sums are cheaper than a random number for each score.
    """
    scores = tf.cast(products, tf.float32) + bias
    shares = tf.exp(scores - tf.reduce_max(scores, axis=1, keepdims=True))
    count = -(-products.shape[1] // BLOCK)
    padded = tf.pad(shares, [[0, 0], [0, count * BLOCK - products.shape[1]]])
    blocks = tf.reshape(padded, [-1, count, BLOCK])
    sums = tf.reduce_sum(blocks, axis=2)  # [M, K]
    ends = tf.cumsum(sums, axis=1)
    target = uniform * ends[:, -1]
    block = _place(sums, ends, target)
    chosen = tf.gather(blocks, block, batch_dims=1)  # [M, BLOCK]
    rest = target - tf.gather(ends - sums, block, batch_dims=1)
    return block * BLOCK + _place(chosen, tf.cumsum(chosen, axis=1), rest)


def divided_draw(products: tf.Tensor, bias: tf.Tensor, uniform: tf.Tensor, size: int, parts: Parts) -> tf.Tensor:
    """Return the words that `draw` returns for all `size` words. Each part has the scores of only some words.

    Each random number first selects the part, by the sums of all parts, and then the word within that part. So all
    parts return the same words. Except for rounding, these are the words of the undivided model.
    """
    every = parts.gather(_sums(products, bias), "vocabulary/shares")  # [parts, 2, M]
    owner, within = _owner(every, uniform)
    own = parts.share(size)[0] + draw(products, bias, within)
    return tf.cast(parts.sum(tf.where(owner == parts.number, own, 0), "vocabulary/drawn"), tf.int32)


@graphs.function(jit_compile=True)
def _sums(products: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return the largest score of each row, and the sum of exp(score - largest), [2, M]."""
    scores = tf.cast(products, tf.float32) + bias
    highest = tf.reduce_max(scores, axis=1)
    return tf.stack([highest, tf.reduce_sum(tf.exp(scores - highest[:, None]), axis=1)])


@graphs.function(jit_compile=True)
def _owner(sums: tf.Tensor, uniform: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the part in whose share of the probabilities each number lies, and where within it, in [0, 1], both [M].

    sums: of all parts, as `_sums` has them, [parts, 2, M].
    """
    highest, exponentials = tf.unstack(tf.transpose(sums, [1, 2, 0]))  # [M, parts]
    shares = exponentials * tf.exp(highest - tf.reduce_max(highest, axis=1, keepdims=True))
    ends = tf.cumsum(shares, axis=1)
    target = uniform * ends[:, -1]
    owner = _place(shares, ends, target)
    share, end = (tf.gather(x, owner, batch_dims=1) for x in (shares, ends))
    return owner, tf.clip_by_value((target - end + share) / share, 0.0, 1.0)


def _place(shares: tf.Tensor, ends: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Return the first column [M] that ends beyond the target [M]; if rounding leaves none, the last that has a share.

    shares, ends: [M, K], a column without a share is never taken.
    """
    columns, count = tf.range(shares.shape[1]), shares.shape[1]
    first = tf.reduce_min(tf.where((ends > target[:, None]) & (shares > 0), columns, count), axis=1)
    return tf.minimum(first, tf.reduce_max(tf.where(shares > 0, columns, 0), axis=1))
