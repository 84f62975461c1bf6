"""The decoder of TSDAE: it writes a text from its embedding, and shares the encoder's layers.

Source: Wang et al. 2021, "TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised Sentence
Embedding Learning". A text from which words were deleted is encoded; the decoder predicts each token of the whole text
from those before it and the embedding. Its layers are the encoder's with a causal mask and, between both sub-layers,
attention to the embedding. A softmax over one vector is 1, whatever queries and keys are. So this attention is a linear
map of the embedding s, the same for all tokens of a text: x = norm(x + dropout(W_o (W_v s + b_v) + b_o)).

The weight 1 has no dropout here, which other programs have. B texts, T tokens, D width.
"""

import functools
from collections.abc import Mapping

import tensorflow as tf

from bert import heads
from bert.core.config import ModelConfig
from bert.model import fused_ops
from bert.model.dense import Dense, LayerNorm
from bert.model.encoder import AttentionScope, Encoder, Mode, TokenBatch
from bert.model.heads import INPUTS, MaskedLM
from bert.model.initializers import Initializer
from bert.model.losses import Measure
from extensions.embeddings.model import EmbeddingModel


class ToEmbedding(tf.Module):
    """Attention to one vector for each text, with its residual sum and layer norm."""

    def __init__(self, init: Initializer, name: str, config: ModelConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.value, self.output = (Dense(init, f"{name}/{part}", width, width) for part in ("value", "output"))
        self.norm = LayerNorm(init, f"{name}/layer_norm", width)
        self.rate = config.hidden_dropout_prob

    def __call__(self, x: tf.Tensor, embedding: tf.Tensor, mode: Mode) -> tf.Tensor:
        """Add what embeddings [B, D] give to x [B*T, D]."""
        values = tf.cast(self.value.product(embedding, mode.dtype), tf.float32) + self.value.bias
        y = tf.repeat(self.output.product(values, mode.dtype), tf.shape(x)[0] // tf.shape(embedding)[0], axis=0)
        bits, norm = mode.dropout.bits(tf.shape(x), self.rate), self.norm
        return fused_ops.add_dropout_norm(
            x, y, self.output.bias, norm.gamma, norm.beta, *bits, rate=self.rate, epsilon=norm.epsilon
        )


class Decoder(tf.Module):
    """What the decoder has beside the encoder: attention to the embedding in each layer, and the head of masked LM."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        assert config.norm_placement == "post", "it is checked before"
        init, name = Initializer(config, seed), f"{heads.EMBEDDING.name}/decoder"
        self.to_embedding = [ToEmbedding(init, f"{name}/layer_{n}", config) for n in range(config.num_hidden_layers)]
        self.masked_lm = MaskedLM(config, seed)

    def measure(self, encoder: Encoder, embedding: tf.Tensor, ids: tf.Tensor, mask: tf.Tensor, mode: Mode) -> Measure:
        """Return the summed loss of all tokens but the first of the texts [B, T], given their embeddings [B, D].

        Padding follows the tokens, which with a causal mask do not attend to it.
        """
        inputs, labels = ids[:, :-1], ids[:, 1:]
        tokens = TokenBatch(inputs, None, tf.zeros_like(inputs))
        causal, first = tokens.attention_mask(causal=True), len(encoder.layers) + 1  # of the dropout masks
        x = tf.cast(encoder.embeddings(tokens, mode.dropout.branch(first)), mode.residual)
        for number, (layer, to_embedding) in enumerate(zip(encoder.layers, self.to_embedding, strict=True), 1):
            of_layer = mode.branch(first + number)
            x = layer(
                x,
                of_layer,
                AttentionScope(causal),
                between=functools.partial(to_embedding, embedding=embedding, mode=of_layer),
            )
        scores = self.masked_lm(tf.cast(x, tf.float32), encoder.embeddings.word, mode.dtype)
        scores = tf.reshape(scores, [*tf.unstack(tf.shape(labels)), scores.shape[1]])
        return self.masked_lm.measure(scores, labels, tf.cast(mask[:, 1:], tf.float32))


class DenoisingModel(EmbeddingModel):
    """The encoder with pooling, and the decoder that writes the whole texts."""

    def __init__(self, config: ModelConfig, seed: int, pool: str) -> None:
        super().__init__(config, seed, pool, projected=False)
        self.decoder = Decoder(config, seed)

    def denoise(self, batch: Mapping[str, tf.Tensor], mode: Mode) -> Measure:
        """Return the loss of samples [B, 2, T]: of each a text without some words, and the text."""
        embedding = self({name: batch[name][:, :1] for name in INPUTS}, mode)[:, 0]
        ids, mask, _ = (batch[name][:, 1] for name in INPUTS)
        return self.decoder.measure(self.encoder, embedding, ids, mask, mode)
