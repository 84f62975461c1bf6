"""Keys and values of the tokens so far, so that a text is continued without computing them again.

The rows of a batch end at the same place: shorter ones begin with padding. So all rows write their new keys at once.

Shapes: B batch, T new tokens, C places, N heads, H head width.
"""

import dataclasses

import tensorflow as tf

from bert.core.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class Cache:
    """Keys and values of each layer, in variables that the forward pass of new tokens extends."""

    keys: list[tf.Variable]  # of each layer [B, N, C, H]
    values: list[tf.Variable]
    filled: tf.Variable  # [] int32: places in use; new tokens come behind them
    padding: tf.Variable  # [B] int32: places of padding before the first token of each row
    last: int  # position of the model
    number: int = 0  # of the layer whose keys and values `extend` gives, from 1

    @classmethod
    def empty(cls, config: ModelConfig, batch: int, places: int, dtype: tf.DType) -> "Cache":
        """Return a cache for a batch of this many rows, of this many tokens at most."""
        width = config.hidden_size // config.num_attention_heads
        shape = [batch, config.num_attention_heads, places, width]

        def layers() -> list[tf.Variable]:
            return [tf.Variable(tf.zeros(shape, dtype), trainable=False) for _ in range(config.num_hidden_layers)]

        filled, padding = (tf.Variable(tf.zeros(size, tf.int32), trainable=False) for size in ([], [batch]))
        return cls(layers(), layers(), filled, padding, config.max_position_embeddings - 1)

    @staticmethod
    def bytes(config: ModelConfig, batch: int, places: int, dtype: tf.DType) -> int:
        """Return the bytes of such a cache."""
        return 2 * config.num_hidden_layers * batch * places * config.hidden_size * dtype.size

    def restart(self, padding: tf.Tensor) -> None:
        """Forget all tokens. padding [B]: places of padding in front of each row's first token."""
        self.filled.assign(0)
        self.padding.assign(padding)

    def branch(self, number: int) -> "Cache":
        """Return the cache of layer `number`, from 1."""
        return dataclasses.replace(self, number=number)

    def positions(self, tokens: tf.Tensor) -> tf.Tensor:
        """Return the positions of the next tokens in their texts [B, T].

        Padding has the position 0. What follows the end of a text, while others of the batch go on, has the last one.
        """
        return tf.clip_by_value(self.filled + tf.range(tokens) - self.padding[:, None], 0, self.last)

    def mask(self, tokens: tf.Tensor) -> tf.Tensor:
        """Return what is added to the scores of the next tokens with all places [B, 1, T, C].

        A token attends to itself and those before it, not to padding and not to places that are not in use.
        """
        places, own = tf.range(self.keys[0].shape[2]), self.filled + tf.range(tokens)
        hidden = (places > own[:, None]) | (places < self.padding[:, None, None])  # [B, T, C]
        return tf.cast(hidden, tf.float32)[:, None] * -1e4

    def extend(self, keys: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Add the keys and values of new tokens [B, N, T, H] to the layer's; return all [B, N, C, H]."""
        stored = self.keys[self.number - 1], self.values[self.number - 1]
        end = self.filled + tf.shape(keys)[2]
        for variable, new in zip(stored, (keys, values), strict=True):
            variable[:, :, self.filled : end].assign(new)
        return tf.convert_to_tensor(stored[0]), tf.convert_to_tensor(stored[1])

    def advance(self, tokens: tf.Tensor) -> None:
        """Take the places of this many new tokens, after all layers have added theirs."""
        self.filled.assign_add(tokens)
