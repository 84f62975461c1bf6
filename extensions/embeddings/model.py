"""The model whose pooled states are embeddings, with what it has in training only.

B samples, K texts of a sample, T tokens, D width, M texts of all samples.
"""

from collections.abc import Mapping

import tensorflow as tf

from bert import heads
from bert.core.config import ModelConfig
from bert.model.dense import Dense
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.model.heads import INPUTS, pooled
from bert.model.initializers import Initializer
from bert.model.model_shard import UNSHARDED, Parts


class Projection(tf.Module):
    """A dense layer with tanh on embeddings, while they are trained only. Source: SimCSE (Gao et al. 2021)."""

    def __init__(self, config: ModelConfig, seed: int, outputs: int = 1) -> None:
        super().__init__()
        self.dense = Dense(Initializer(config, seed), heads.EMBEDDING.name)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:  # [M, D] -> [M, D]
        return tf.tanh(self.dense(x))


class EmbeddingModel(tf.Module):
    """The encoder, whose states are pooled to an embedding of each text."""

    def __init__(self, config: ModelConfig, seed: int, pool: str, projected: bool, parts: Parts = UNSHARDED) -> None:
        """pool: one of `bert.embedding.POOLS`. projected: whether there is a projection, for training."""
        super().__init__()
        self.encoder, self.pool, self.width = Encoder(config, seed, parts), pool, config.hidden_size
        self.projection = Projection(config, seed) if projected else None

    def __call__(self, batch: Mapping[str, tf.Tensor], mode: Mode) -> tf.Tensor:
        """Return the embeddings, as they are pooled, of the texts [B, K, T] of samples: [B, K, D] float32."""
        ids, mask, segments = (tf.reshape(batch[name], [-1, tf.shape(batch[name])[2]]) for name in INPUTS)
        count, length = tf.unstack(tf.shape(ids))
        first = tf.range(count) * length if self.pool == "cls" else None  # of the last layer these alone are needed
        states = self.encoder(TokenBatch(ids, mask, segments), mode, first)
        x = states if first is not None else pooled(states, mask, self.pool)
        return tf.reshape(x, [-1, batch["input_ids"].shape[1], self.width])

    def projected(self, batch: Mapping[str, tf.Tensor], mode: Mode) -> tf.Tensor:
        """Return what the loss compares: the embeddings, after the projection if there is one."""
        x = self(batch, mode)
        if self.projection is None:
            return x
        return tf.reshape(self.projection(tf.reshape(x, [-1, self.width])), tf.shape(x))
