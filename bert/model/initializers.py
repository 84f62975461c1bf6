"""Initial values of the weights: a function of (seed, variable name), whatever the order of creation.

| variable | `position_initializer` is "normal" | "sinusoidal" |
|---|---|---|
| kernels, segment embeddings | truncated normal | truncated normal |
| position embeddings | truncated normal | sinusoids (Vaswani et al. 2017) |
| word embeddings | truncated normal | truncated normal, but 0 in the components of the short waves |
| queries and keys of layer 0 | truncated normal | heads that attend to one relative position each |
| biases, gamma and beta of layer norms | 0, 1 and 0 | 0, 1 and 0 |

With `norm_placement` "pre", kernels whose products are added to the residual stream have their deviation divided by
the square root of their number (Shoeybi et al. 2019, Megatron-LM).
"""

import zlib

import numpy as np
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.model.model_shard import UNSHARDED, Parts
from bert.model.weights import NAMED, Initial, Weight, of_model

MIN_SHORT_WAVE = 0.1  # radians per token: waves at least so fast tell neighbouring positions apart
RELATIVE_POSITION_GAIN = 3.0  # scale of the relative-position kernels: two thirds of the attention go to their offset


class Initializer:
    """Make the variables of a model with their initial values, as the table of weights describes them.

    If the model is divided, each variable is made whole and each device keeps its part. So the values do not depend on
    the number of parts.
    """

    def __init__(self, config: ModelConfig, seed: int, parts: Parts = UNSHARDED, *, prefix: str = "") -> None:
        """prefix: as in weights.py."""
        self.config, self.seed, self.parts = config, seed, parts
        self.table = {weight.name: weight for weight in of_model(config, prefix)}

    def has(self, name: str) -> bool:
        """Return whether the model has a variable of this name."""
        return name in self.table

    def variable(self, name: str, *shape: int) -> tf.Variable:
        """Make a variable. shape: only for a dense layer or norm that only training has; the table lacks it."""
        assert shape or self.has(name), f"{name} has no row in the table of weights"
        weight = Weight(name, shape, NAMED[name.rsplit("/", 1)[-1]].initial) if shape else self.table[name]
        return variable(name, self._value(*weight[:3]), self.parts)

    def _value(self, name: str, shape: tuple[int, ...], initial: Initial) -> tf.Tensor:
        config, deviation = self.config, self.config.initializer_range
        if initial in ("zeros", "ones"):
            return tf.fill(shape, float(initial == "ones"))
        if initial == "residual" and config.norm_placement == "pre":
            deviation *= (2 * config.num_hidden_layers) ** -0.5
        sinusoidal = config.position_initializer == "sinusoidal"
        if sinusoidal and initial == "position":
            return tf.constant(_sinusoids(*shape) * deviation * 2**0.5, tf.float32)
        value = normal(self.seed, name, deviation, *shape)
        if sinusoidal and initial == "word":  # 0 in the components which hold the short waves of positions
            return value * tf.constant(np.tile(_frequencies(shape[1]) < MIN_SHORT_WAVE, 2), tf.float32)
        if sinusoidal and initial in ("query", "key") and name.startswith("layer_0/"):
            heads = config.num_attention_heads
            offsets = relative_position_offsets(heads) if initial == "query" else [0] * heads
            return value + tf.constant(_relative_positions(shape[0], offsets), tf.float32)
        return value


def normal(seed: int, name: str, deviation: float, *shape: int) -> tf.Tensor:
    """Return the initial value of a kernel or an embedding table: normal, truncated at two standard deviations."""
    seeds = [seed, zlib.crc32(name.encode()) & 0x7FFFFFFF]
    return tf.random.stateless_truncated_normal(shape, seeds, stddev=deviation, alg="philox")


def variable(name: str, whole: tf.Tensor, parts: Parts) -> tf.Variable:
    """Return this device's part of a variable. whole: the initial value of the whole variable."""
    return tf.Variable(parts.take(name, whole), name=name)


def relative_position_offsets(heads: int) -> list[int]:
    """Return the offset in tokens that each head of the first layer attends to: -1, 1, -2, 2, ...

    A masked language model spends its first plateau on learning where to look (Chen et al. 2024, "Sudden Drops in the
    Loss"). Heads that attend to fixed offsets from the start shorten this plateau.
    """
    return [(head // 2 + 1) * (-1 if head % 2 == 0 else 1) for head in range(heads)]


def _relative_positions(width: int, offsets: list[int]) -> np.ndarray:
    """Return a query or key kernel [width, width]: head n rotates the short waves by `offsets[n]` tokens.

    With offset k in the query kernel and offset 0 in the key kernel, the scores are largest k tokens away.
    """
    heads = len(offsets)
    frequencies, size, half = _frequencies(width), width // heads, width // 2
    wave = np.flatnonzero(frequencies >= MIN_SHORT_WAVE)[: size // 2]
    kernel = np.zeros((width, heads, size))
    for head, offset in enumerate(offsets):
        angle = frequencies[wave] * offset
        sine, cosine = RELATIVE_POSITION_GAIN * np.sin(angle), RELATIVE_POSITION_GAIN * np.cos(angle)
        kernel[wave, head, wave], kernel[half + wave, head, wave] = cosine, sine
        kernel[wave, head, size // 2 + wave], kernel[half + wave, head, size // 2 + wave] = -sine, cosine
    return kernel.reshape(width, width)


def _sinusoids(count: int, width: int) -> np.ndarray:
    """Return sines and cosines [count, width] with geometric wavelengths (Vaswani et al. 2017).

    Their standard deviation is 2^-0.5.
    """
    angles = np.arange(count)[:, None] * _frequencies(width)  # [count, width / 2]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _frequencies(width: int) -> np.ndarray:
    """Return the radians per token of the sinusoids of `width` components, [width / 2]."""
    return 1 / 10_000 ** (np.arange(0, width, 2) / width)
