"""The causal language model as a task of the training loop: predict each token from those before it.

The output layer is the word embeddings, transposed, without a bias (Radford et al. 2019).

Shapes: B batch, T tokens, D width.
"""

import tensorflow as tf

from bert.core.config import ModelConfig
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.model.losses import Measure
from bert.model.model_shard import UNSHARDED, Parts
from bert.text.sampler import Batch
from bert.training.objective import Objective
from bert.training.task import Task
from extensions.gpt import chunked_loss


class CausalModel(tf.Module):
    """The encoder with a causal mask; its word embeddings are also the output layer."""

    def __init__(self, config: ModelConfig, seed: int, parts: Parts = UNSHARDED) -> None:
        super().__init__()
        assert config.causal, "the model's tokens would see those that they predict"
        self.encoder = Encoder(config, seed, parts)

    def __call__(self, ids: tf.Tensor, mode: Mode) -> tf.Tensor:
        """Return the last hidden states [B, T, D] float32 of tokens `ids` [B, T]."""
        return self.encoder(TokenBatch(ids), mode)


class CausalLM(Task):
    """The objective "lm": the next token."""

    objectives = (Objective("lm"),)

    def __init__(self, config: ModelConfig, seed: int, parts: Parts = UNSHARDED) -> None:
        self.module, self.parts = CausalModel(config, seed, parts), parts

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the number of predicted tokens: all but the first of each sequence [B, T + 1]."""
        shape = tf.shape(batch["input_ids"])
        return {"lm": tf.cast(shape[0] * (shape[1] - 1), tf.float32)}

    def measure(self, batch: Batch, mode: Mode) -> dict[str, Measure]:
        """Return the summed loss, in nats, and the number of correct predictions."""
        ids, encoder = batch["input_ids"], self.module.encoder
        hidden, labels = self.module(ids[:, :-1], mode), ids[:, 1:]
        rows = self.parts.identity_with_summed_gradient(tf.reshape(hidden, [-1, hidden.shape[-1]]), "lm/input")
        measure = chunked_loss.tied(
            rows,
            encoder.embeddings.word,
            self.parts.places(tf.reshape(labels, [-1]), encoder.config.vocab_size),
            mode.dtype,
            multiple=encoder.config.vocab_multiple,
            training=mode.dropout.seed is not None,
            parts=self.parts,
        )
        return {"lm": measure}
