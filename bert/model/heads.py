"""Heads of the encoder: pooler, masked LM, next sentence, answer span, classes of texts, choices and tags.

`bert/heads.py` lists those of fine-tuned models. Shapes as in encoder.py; M rows, such as masked tokens or texts, U
scores of the vocabulary, C classes, E width of the embeddings.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert import heads
from bert.core import rows
from bert.core.activations import ACTIVATIONS, POOLINGS
from bert.core.config import ModelConfig
from bert.labels import Head
from bert.model.dense import Dense, make_dense, make_norm
from bert.model.dropout import apply_dropout
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.model.fused_ops import activation
from bert.model.initializers import Initializer
from bert.model.losses import Measure, classification, divided_classification
from bert.model.model_shard import UNSHARDED, Parts

INPUTS = ("input_ids", "input_mask", "segment_ids")  # of a model, as features of records
MASKED_LOGIT = -1e9  # logit whose probability is 0


class Pooler(tf.Module):
    """Pooled output of a sequence: a dense layer on its first token, then tanh or another activation.

    With `head_transform` a layer norm follows, and the dense layer has a bias only if the encoder's layers have one. If
    `pooling` is "mean", the dense layer reads the mean of the tokens.
    """

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        init, transforms = Initializer(config, seed), config.head_transform
        self.dense, self.norm = Dense(init, "pooler"), make_norm(init, "pooler")
        self.activation = (ACTIVATIONS[config.hidden_act] if transforms else POOLINGS[config.pooler_act]).formula
        self.pooling = config.pooling

    def __call__(self, hidden: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:  # [B, T, D] -> [B, D]
        """Return the pooled outputs [B, D]. mask: of the tokens [B, T], to pool them; None: read the first token."""
        return self.transformed(hidden[:, 0] if mask is None else pooled(hidden, mask, self.pooling))

    def transformed(self, x: tf.Tensor) -> tf.Tensor:
        """Apply dense layer, activation and norm to the rows x [M, D]; return [M, D] float32."""
        y: tf.Tensor = self.activation(tf, self.dense(x))
        return self.norm(y) if self.norm else y


class MaskedLM(tf.Module):
    """Scores of the vocabulary at the masked positions: dense, GELU, layer norm, product with the word embeddings.

    If `masked_lm_head` is "linear", the scores are the product of the states with a separate table.

    The loss adds the bias, in float32, while it reads the products. If `vocab_multiple` rounds the number of scores up
    from V to U, the additional scores have no weights and the bias `MASKED_LOGIT`. If the model is divided, V and U
    count this device's entries.
    """

    def __init__(self, config: ModelConfig, seed: int, parts: Parts = UNSHARDED, prefix: str = "") -> None:
        """prefix: of the names of the variables."""
        super().__init__()
        init, name = Initializer(config, seed, parts, prefix=prefix), f"{prefix}masked_lm"
        self.words: tf.Variable | None = init.variable(f"{name}/words") if init.has(f"{name}/words") else None  # [V, D]
        self.transform, self.norm = make_dense(init, f"{name}/transform"), make_norm(init, name)
        self.activation = activation(config.hidden_act)
        self.bias = init.variable(f"{name}/bias")
        self.parts, self.vocab_size = parts, config.vocab_size
        self.padding = -self.bias.shape[0] % config.vocab_multiple

    def __call__(self, hidden: tf.Tensor, table: tf.Variable, dtype: tf.DType) -> tf.Tensor:
        """Return the logits without bias [M, U] in `dtype`. hidden: states [M, D]. table: word embeddings [V, E]."""
        x, table = (hidden, self.words) if self.words is not None else (self._transformed(hidden, dtype), table)
        x = self.parts.identity_with_summed_gradient(x, "masked_lm/input")
        words = tf.pad(tf.cast(table, dtype), [[0, self.padding], [0, 0]]) if self.padding else tf.cast(table, dtype)
        return tf.matmul(tf.cast(x, dtype), words, transpose_b=True)

    def _transformed(self, hidden: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        assert self.transform and self.norm, "a head without a table of its own has both"
        y = self.activation(self.transform.product(hidden, dtype), self.transform.bias)
        return self.norm(tf.cast(y, tf.float32))

    def biases(self) -> tf.Tensor:
        """Return the bias of each score [U]."""
        return tf.pad(tf.convert_to_tensor(self.bias), [[0, self.padding]], constant_values=MASKED_LOGIT)

    def measure(self, scores: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Measure:
        """Return loss and number of correct predictions of the scores [..., U]. labels, weights: [...]."""
        if self.parts.count == 1:
            return classification(scores, self.biases(), labels, weights)
        places = self.parts.places(labels, self.vocab_size)
        return divided_classification(scores, self.biases(), places, weights, self.parts)


class NextSentence(tf.Module):
    """Logits of whether segment B follows segment A (0) or is a random one (1)."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.output = Dense(Initializer(config, seed), "next_sentence")

    def __call__(self, pooled: tf.Tensor) -> tf.Tensor:  # [B, D] -> [B, 2] float32
        return self.output(pooled)


class ReplacedToken(tf.Module):
    """Logit of whether a token was replaced: a dense layer with the encoder's activation, then one with one output.

    Source: Clark et al. 2020, "ELECTRA".
    """

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        init, name = Initializer(config, seed), heads.REPLACED_TOKEN
        self.transform, self.output = Dense(init, f"{name}/transform"), Dense(init, f"{name}/output")
        self.activation = activation(config.hidden_act)

    def __call__(self, hidden: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Return the logits [M] float32 for hidden states [M, D]."""
        x = self.activation(self.transform.product(hidden, dtype), self.transform.bias)
        return self.output(tf.cast(x, tf.float32))[:, 0]


class AnswerSpan(tf.Module):
    """Logits of each token as the first and as the last of the answer."""

    def __init__(self, config: ModelConfig, seed: int, outputs: int = 2) -> None:
        super().__init__()
        self.output = Dense(Initializer(config, seed), "answer_span")

    def __call__(self, hidden: tf.Tensor, mode: Mode | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Return start and end logits [B, T] float32 for hidden states [B, T, D]; there is no dropout."""
        batch, tokens, width = tf.shape(hidden)[0], tf.shape(hidden)[1], hidden.shape[2]
        logits = self.output(tf.reshape(hidden, [-1, width]))
        start, end = tf.unstack(tf.reshape(logits, [batch, tokens, 2]), axis=-1)
        return start, end


class Output(tf.Module):
    """Head of a task: dropout at the rate of the hidden states, then a dense layer.

    Source: run_classifier.py of google-research/bert.
    """

    def __init__(self, config: ModelConfig, seed: int, name: str, outputs: int) -> None:
        super().__init__()
        self.output = Dense(Initializer(config, seed), name, config.hidden_size, outputs)
        self.rate, self.branch = config.hidden_dropout_prob, config.num_hidden_layers + 1  # after the encoder's

    def __call__(self, x: tf.Tensor, mode: Mode | None = None) -> tf.Tensor:
        """Return the logits [M, C] float32 of the rows x [M, D]; without a mode there is no dropout."""
        if mode is not None:
            x = apply_dropout(x, mode.dropout.branch(self.branch).bits(tf.shape(x), self.rate), self.rate)
        return self.output(x)


class Classifier(Output):
    """Logits of a text's classes, from its pooled output; in regression there is one output, the number."""

    def __init__(self, config: ModelConfig, seed: int, classes: int) -> None:
        super().__init__(config, seed, "classifier", classes)


class MultiLabel(Output):
    """Logits of a text's labels, from its pooled output; the sigmoid of a logit is the probability of its label."""

    def __init__(self, config: ModelConfig, seed: int, labels: int) -> None:
        super().__init__(config, seed, "multilabel", labels)


class Choice(Output):
    """Score of a choice [M, 1], from its pooled output; the softmax is over the choices of one question."""

    def __init__(self, config: ModelConfig, seed: int, outputs: int = 1) -> None:
        super().__init__(config, seed, "choice", outputs)


class Tags(Output):
    """Logits of each token's tag."""

    def __init__(self, config: ModelConfig, seed: int, classes: int) -> None:
        super().__init__(config, seed, "tags", classes)

    def __call__(self, hidden: tf.Tensor, mode: Mode | None = None) -> tf.Tensor:
        """Return the logits [B, T, C] float32 for hidden states [B, T, D]; without a mode there is no dropout."""
        logits = super().__call__(tf.reshape(hidden, [-1, hidden.shape[2]]), mode)
        return tf.reshape(logits, [tf.shape(hidden)[0], tf.shape(hidden)[1], logits.shape[1]])


def pooled(x: tf.Tensor, mask: tf.Tensor, pool: str) -> tf.Tensor:
    """Pool the states x [B, T, ...] over the tokens of the mask [B, T]; return [B, ...].

    pool: one of `bert.embedding.POOLS`.
    """
    if pool == "cls":
        return x[:, 0]
    if pool == "max":
        is_token = tf.reshape(mask > 0, tf.concat([tf.shape(mask), tf.ones([tf.rank(x) - 2], tf.int32)], axis=0))
        return tf.reduce_max(tf.where(is_token, x, x.dtype.min), axis=1)
    weights = tf.cast(mask, x.dtype)
    return tf.einsum("bt...,bt->b...", x, weights / tf.reduce_sum(weights, axis=1, keepdims=True))


class TaskHead(tf.Module):
    """Head of a task, with the pooler if the task or `head_transform` needs it."""

    def __init__(self, config: ModelConfig, seed: int, head: Head) -> None:
        super().__init__()
        self.kind = heads.KINDS[head.kind]
        self.reads_first = self.kind.pooled and config.pooling == "cls"
        self.pooler = Pooler(config, seed) if self.kind.pooled or config.head_transform else None
        self.output: Any = rows.load(self.kind.module)(config, seed, head.outputs)

    def __call__(self, hidden: tf.Tensor, mask: tf.Tensor, mode: Mode | None = None) -> Any:
        """Return the logits for the last hidden states [B, T, D]. mask: of the tokens [B, T].

        If `reads_first`, only the states of the first tokens are read.
        """
        if self.pooler is None:
            return self.output(hidden, mode)
        if self.kind.pooled:
            return self.output(self.pooler(hidden, None if self.reads_first else mask), mode)
        batch, tokens, width = tf.shape(hidden)[0], tf.shape(hidden)[1], hidden.shape[2]
        rows = self.pooler.transformed(tf.reshape(hidden, [-1, width]))
        return self.output(tf.reshape(rows, [batch, tokens, width]), mode)


class TaskModel(tf.Module):
    """Encoder with the head of a task."""

    def __init__(self, config: ModelConfig, seed: int, head: Head, parts: Parts = UNSHARDED) -> None:
        super().__init__()
        self.encoder, self.head = Encoder(config, seed, parts), TaskHead(config, seed, head)

    def __call__(self, batch: Mapping[str, tf.Tensor], mode: Mode) -> Any:
        """Return the logits, float32, for `input_ids`, `input_mask` and `segment_ids`.

        Inputs [B, T] give [B, C] or, for each token, [B, T, C]. Inputs [B, choices, T] share one pass of the encoder
        and give [B, choices]. If the head reads only the first token, the last layer computes only that.
        """
        tokens, shape = TokenBatch(*(batch[name] for name in INPUTS)), batch["input_ids"].shape
        if shape.rank == 3:
            tokens = TokenBatch(*(tf.reshape(x, [-1, tf.shape(x)[2]]) for x in tokens[: len(INPUTS)]))
        if self.head.reads_first:
            count, length = tf.unstack(tf.shape(tokens.ids))
            hidden = self.encoder(tokens, mode, tf.range(count) * length)[:, None]
        else:
            hidden = self.encoder(tokens, mode)
        logits = self.head(hidden, tokens.mask, mode)
        return tf.reshape(logits, [-1, shape[1]]) if shape.rank == 3 else logits
