"""What stands on the encoder: pooler, masked-LM, next-sentence, answer-span and classification heads.

Shapes as in model.py, and P predictions per sequence.
"""

import tensorflow as tf

from bert.config import ModelConfig
from bert.model.encoder import Dense, LayerNorm
from bert.model.fused_ops import gelu
from bert.model.initializers import Parameters

MASKED_LOGIT = -1e9  # a score that leaves no probability


class Pooler(tf.Module):
    """The summary of a sequence: tanh of a dense layer on its first token."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.dense = Dense(Parameters(seed, config.initializer_range), "pooler", config.hidden_size, config.hidden_size)

    def __call__(self, hidden: tf.Tensor) -> tf.Tensor:  # [B, T, D] -> [B, D]
        return tf.tanh(self.dense(hidden[:, 0]))


class MaskedLM(tf.Module):
    """Scores of the vocabulary at the masked positions: dense, GELU, layer norm, word embeddings transposed.

    The bias is left to the loss, which adds it in float32 while it reads the products. Where `vocab_multiple` asks for
    more scores than there are words, U instead of V, the last ones have no weights and can never be a word.
    """

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        make = Parameters(seed, config.initializer_range)
        self.transform = Dense(make, "masked_lm/transform", config.hidden_size, config.hidden_size)
        self.norm = LayerNorm(make, "masked_lm/layer_norm", config.hidden_size)
        self.bias = make.constant("masked_lm/bias", 0.0, config.vocab_size)
        self.padding = -config.vocab_size % config.vocab_multiple

    def __call__(self, hidden: tf.Tensor, table: tf.Variable, dtype: tf.DType) -> tf.Tensor:
        """Masked tokens' hidden [M, D], table [V, D] -> logits without their bias [M, U] in dtype."""
        x = self.norm(tf.cast(gelu(self.transform.product(hidden, dtype), self.transform.bias), tf.float32))
        words = tf.pad(tf.cast(table, dtype), [[0, self.padding], [0, 0]]) if self.padding else tf.cast(table, dtype)
        return tf.matmul(tf.cast(x, dtype), words, transpose_b=True)

    def biases(self) -> tf.Tensor:
        """The bias of each score [U]."""
        return tf.pad(tf.convert_to_tensor(self.bias), [[0, self.padding]], constant_values=MASKED_LOGIT)


class NextSentence(tf.Module):
    """Whether segment B follows A (0) or is a random one (1)."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.output = Dense(Parameters(seed, config.initializer_range), "next_sentence", config.hidden_size, 2)

    def __call__(self, pooled: tf.Tensor) -> tf.Tensor:  # [B, D] -> [B, 2] float32
        return self.output(pooled)


class AnswerSpan(tf.Module):
    """Scores of each token as first and as last of the answer."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.output = Dense(Parameters(seed, config.initializer_range), "answer_span", config.hidden_size, 2)

    def __call__(self, hidden: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:  # [B, T, D] -> [B, T], [B, T] float32
        batch, tokens, width = tf.shape(hidden)[0], tf.shape(hidden)[1], hidden.shape[2]
        logits = self.output(tf.reshape(hidden, [-1, width]))
        start, end = tf.unstack(tf.reshape(logits, [batch, tokens, 2]), axis=-1)
        return start, end


class Classifier(tf.Module):
    """Scores of a sequence's classes, of which there are C."""

    def __init__(self, config: ModelConfig, seed: int, classes: int) -> None:
        super().__init__()
        self.output = Dense(Parameters(seed, config.initializer_range), "classifier", config.hidden_size, classes)

    def __call__(self, pooled: tf.Tensor) -> tf.Tensor:  # [B, D] -> [B, C] float32
        return self.output(pooled)
