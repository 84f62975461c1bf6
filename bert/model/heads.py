"""Heads of the encoder: pooler, masked LM, next sentence, answer span and classification.

Shapes as in encoder.py; M masked tokens, U scores of the vocabulary, C classes.
"""

import tensorflow as tf

from bert.config import ModelConfig
from bert.model.encoder import Dense, LayerNorm
from bert.model.fused_ops import ACTIVATIONS
from bert.model.initializers import Initializer
from bert.model.losses import Measure, classification, divided_classification
from bert.model.parts import WHOLE, Parts

NAMES = ("pooler", "masked_lm", "next_sentence", "answer_span", "classifier")  # first parts of their variables' names
MASKED_LOGIT = -1e9  # logit whose probability is 0


class Pooler(tf.Module):
    """Pooled output of a sequence: tanh of a dense layer on its first token."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.dense = Dense(
            Initializer(seed, config.initializer_range), "pooler", config.hidden_size, config.hidden_size
        )

    def __call__(self, hidden: tf.Tensor) -> tf.Tensor:  # [B, T, D] -> [B, D]
        return tf.tanh(self.dense(hidden[:, 0]))


class MaskedLM(tf.Module):
    """Scores of the vocabulary at the masked positions: dense, GELU, layer norm, word embeddings transposed.

    The loss adds the bias, in float32, while it reads the products. If `vocab_multiple` rounds the number of scores up
    from V to U, the additional ones have no weights and a bias of `MASKED_LOGIT`. If the model is divided, V and U are
    the numbers of this device's entries.
    """

    def __init__(self, config: ModelConfig, seed: int, parts: Parts = WHOLE) -> None:
        super().__init__()
        init = Initializer(seed, config.initializer_range, parts)
        self.transform = Dense(init, "masked_lm/transform", config.hidden_size, config.hidden_size)
        self.norm = LayerNorm(init, "masked_lm/layer_norm", config.hidden_size, config.layer_norm_epsilon)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.bias = init.constant("masked_lm/bias", 0.0, config.vocab_size)
        self.parts, self.vocab_size = parts, config.vocab_size
        self.padding = -self.bias.shape[0] % config.vocab_multiple

    def __call__(self, hidden: tf.Tensor, table: tf.Variable, dtype: tf.DType) -> tf.Tensor:
        """Return logits without their bias [M, U] in dtype, for hidden states [M, D] and word embeddings [V, D]."""
        x = self.norm(tf.cast(self.activation(self.transform.product(hidden, dtype), self.transform.bias), tf.float32))
        x = self.parts.copied(x, "masked_lm/input")
        words = tf.pad(tf.cast(table, dtype), [[0, self.padding], [0, 0]]) if self.padding else tf.cast(table, dtype)
        return tf.matmul(tf.cast(x, dtype), words, transpose_b=True)

    def biases(self) -> tf.Tensor:
        """Return the bias of each score [U]."""
        return tf.pad(tf.convert_to_tensor(self.bias), [[0, self.padding]], constant_values=MASKED_LOGIT)

    def measure(self, scores: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Measure:
        """Return the loss of the scores [..., U] with labels and weights [...]."""
        if self.parts.count == 1:
            return classification(scores, self.biases(), labels, weights)
        places = self.parts.places(labels, self.vocab_size)
        return divided_classification(scores, self.biases(), places, weights, self.parts)


class NextSentence(tf.Module):
    """Whether segment B follows A (0) or is a random one (1)."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.output = Dense(Initializer(seed, config.initializer_range), "next_sentence", config.hidden_size, 2)

    def __call__(self, pooled: tf.Tensor) -> tf.Tensor:  # [B, D] -> [B, 2] float32
        return self.output(pooled)


class AnswerSpan(tf.Module):
    """Logits of each token as the first and as the last of the answer."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.output = Dense(Initializer(seed, config.initializer_range), "answer_span", config.hidden_size, 2)

    def __call__(self, hidden: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:  # [B, T, D] -> [B, T], [B, T] float32
        batch, tokens, width = tf.shape(hidden)[0], tf.shape(hidden)[1], hidden.shape[2]
        logits = self.output(tf.reshape(hidden, [-1, width]))
        start, end = tf.unstack(tf.reshape(logits, [batch, tokens, 2]), axis=-1)
        return start, end


class Classifier(tf.Module):
    """Logits of a sequence's classes."""

    def __init__(self, config: ModelConfig, seed: int, classes: int) -> None:
        super().__init__()
        self.output = Dense(Initializer(seed, config.initializer_range), "classifier", config.hidden_size, classes)

    def __call__(self, pooled: tf.Tensor) -> tf.Tensor:  # [B, D] -> [B, C] float32
        return self.output(pooled)
