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
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert.model.parts import WHOLE, Parts

MIN_SHORT_WAVE = 0.1  # radians per token: waves at least so fast tell neighbouring positions apart
RELATIVE_POSITION_GAIN = 3.0  # scale of the relative-position kernels: two thirds of the attention go to their offset


class Initializer:
    """Make named variables with their initial values.

    If the model is divided, they are made whole and each device keeps its part, so that they do not depend on the
    number of parts.
    """

    def __init__(self, seed: int, deviation: float, parts: Parts = WHOLE) -> None:
        self.seed, self.deviation, self.parts = seed, deviation, parts

    def scaled(self, factor: float) -> "Initializer":
        """Return an initializer whose kernels have `factor` times the standard deviation."""
        return Initializer(self.seed, self.deviation * factor, self.parts)

    def normal(self, name: str, *shape: int) -> tf.Variable:
        """Make a kernel or an embedding table: normal, truncated at two standard deviations."""
        return self._variable(name, self._normal(name, *shape))

    def constant(self, name: str, value: float, *shape: int) -> tf.Variable:
        """Make a bias or a layer-norm parameter."""
        return self._variable(name, tf.fill(shape, value))

    def sinusoids(self, name: str, count: int, width: int) -> tf.Variable:
        """Make position embeddings [count, width] of sines and cosines of geometric wavelengths (Vaswani et al. 2017).

        They have the same standard deviation as the other embeddings.
        """
        angles = np.arange(count)[:, None] * _frequencies(width)  # [count, width / 2]
        waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        return self._variable(name, tf.constant(waves * self.deviation * 2**0.5, tf.float32))

    def words_beside_sinusoids(self, name: str, count: int, width: int) -> tf.Variable:
        """Make word embeddings [count, width] that are 0 in the components which hold the short waves of positions."""
        free = np.tile(_frequencies(width) < MIN_SHORT_WAVE, 2)
        return self._variable(name, self._normal(name, count, width) * tf.constant(free, tf.float32))

    def relative_position_kernel(self, name: str, heads: int, width: int, offsets: Sequence[int]) -> tf.Variable:
        """Make a query or key kernel [width, width]: head n rotates the short waves by `offsets[n]` tokens, plus noise.

        The scores of a query kernel with offset k and a key kernel with offset 0 are largest k tokens away.
        """
        frequencies, size, half = _frequencies(width), width // heads, width // 2
        wave = np.flatnonzero(frequencies >= MIN_SHORT_WAVE)[: size // 2]
        kernel = np.zeros((width, heads, size))
        for head, offset in enumerate(offsets):
            angle = frequencies[wave] * offset
            sine, cosine = RELATIVE_POSITION_GAIN * np.sin(angle), RELATIVE_POSITION_GAIN * np.cos(angle)
            kernel[wave, head, wave], kernel[half + wave, head, wave] = cosine, sine
            kernel[wave, head, size // 2 + wave], kernel[half + wave, head, size // 2 + wave] = -sine, cosine
        noise = self._normal(name, width, width)
        return self._variable(name, noise + tf.constant(kernel.reshape(width, width), tf.float32))

    def _normal(self, name: str, *shape: int) -> tf.Tensor:
        seed = [self.seed, zlib.crc32(name.encode()) & 0x7FFFFFFF]
        return tf.random.stateless_truncated_normal(shape, seed, stddev=self.deviation, alg="philox")

    def _variable(self, name: str, whole: tf.Tensor) -> tf.Variable:
        return tf.Variable(self.parts.take(name, whole), name=name)


def relative_position_offsets(heads: int) -> list[int]:
    """Return the offset in tokens that each head of the first layer attends to: -1, 1, -2, 2, ...

    A masked language model spends its first plateau on learning where to look (Chen et al. 2024, "Sudden Drops in the
    Loss"); heads that attend to fixed offsets from the start shorten it.
    """
    return [(head // 2 + 1) * (-1 if head % 2 == 0 else 1) for head in range(heads)]


def _frequencies(width: int) -> np.ndarray:
    """Return the radians per token of the sinusoids of `width` components, [width / 2]."""
    return 1 / 10_000 ** (np.arange(0, width, 2) / width)
