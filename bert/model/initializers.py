"""How weights start: truncated normal, and what makes short runs learn sooner."""

import zlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

SHORT = 0.1  # radians a token at least, of the waves that tell neighbours apart
GAIN = 3.0  # of queries and keys that look for neighbours: two thirds of the attention go where they look


class Parameters:
    """Makes named variables; an initial value is a function of (seed, name), whatever the order of creation."""

    def __init__(self, seed: int, deviation: float) -> None:
        self.seed, self.deviation = seed, deviation

    def scaled(self, factor: float) -> "Parameters":
        """The same, but kernels start from a deviation that is so many times as large."""
        return Parameters(self.seed, self.deviation * factor)

    def normal(self, name: str, *shape: int) -> tf.Variable:
        """Kernel or embedding: normal, truncated at two deviations."""
        seed = [self.seed, zlib.crc32(name.encode()) & 0x7FFFFFFF]
        value = tf.random.stateless_truncated_normal(shape, seed, stddev=self.deviation, alg="philox")
        return tf.Variable(value, name=name)

    def positions(self, name: str, count: int, width: int) -> tf.Variable:
        """Positions as sines of geometric wavelengths (Vaswani et al. 2017), of the same deviation as the others."""
        angles = np.arange(count)[:, None] * _steps(width)  # [count, width / 2]
        waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        return tf.Variable(tf.constant(waves * self.deviation * 2**0.5, tf.float32), name=name)

    def words(self, name: str, count: int, width: int) -> tf.Variable:
        """Words as noise that leaves the places of the short waves to the positions."""
        free = np.tile(_steps(width) < SHORT, 2)
        return tf.Variable(self.normal(name, count, width) * tf.constant(free, tf.float32), name=name)

    def look(self, name: str, heads: int, width: int, offsets: Sequence[int]) -> tf.Variable:
        """A query or key kernel [D, D]: head n reads the short waves as they will be `offsets[n]` tokens on, and noise.

        A query with an offset and a key without one meet where the waves agree: at the token so far away.
        """
        steps, size, half = _steps(width), width // heads, width // 2
        wave = np.flatnonzero(steps >= SHORT)[: size // 2]
        kernel = np.zeros((width, heads, size))
        for head, offset in enumerate(offsets):
            sine, cosine = GAIN * np.sin(steps[wave] * offset), GAIN * np.cos(steps[wave] * offset)
            kernel[wave, head, wave], kernel[half + wave, head, wave] = cosine, sine
            kernel[wave, head, size // 2 + wave], kernel[half + wave, head, size // 2 + wave] = -sine, cosine
        noise = self.normal(name, width, width)
        return tf.Variable(noise + tf.constant(kernel.reshape(width, width), tf.float32), name=name)

    def constant(self, name: str, value: float, *shape: int) -> tf.Variable:
        """Bias or layer-norm parameter."""
        return tf.Variable(tf.fill(shape, value), name=name)


def _steps(width: int) -> np.ndarray:
    """Radians a token of the waves of `width` positions' components, [width / 2]."""
    return 1 / 10_000 ** (np.arange(0, width, 2) / width)
