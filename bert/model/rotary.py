"""Rotary positions (Su et al. 2021, "RoFormer"): queries and keys are rotated by angles that grow with the position.

The score of a query and a key then depends on their distance. Component h and component h + H/2 of a head are the two
coordinates of a plane, as in GPT-NeoX and ModernBERT (in RoFormer's own code they are 2h and 2h + 1).

Shapes: B batch, N heads, T tokens, H head width.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bert.hardware import graphs


class Rotation(NamedTuple):
    """Cosines and sines of the angles of each token, [B or 1, 1, T, H / 2] float32."""

    cos: tf.Tensor
    sin: tf.Tensor

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Return x [B, N, T, H] rotated, computed in float32, in x's type. The gradient is rotated back."""

        @tf.custom_gradient
        def differentiable(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return _rotated(x, self.cos, self.sin), lambda upstream: _rotated(upstream, self.cos, -self.sin)

        return differentiable(x)


def rotation(positions: tf.Tensor, base: float, head_width: int) -> Rotation:
    """Return the rotation of tokens at positions [B or 1, T]: plane h turns by base^(-2h / H) radians per token."""
    exponents = tf.range(0, head_width, 2, dtype=tf.float32) / head_width
    angles = tf.cast(positions, tf.float32)[:, None, :, None] / base**exponents
    return Rotation(tf.cos(angles), tf.sin(angles))


@graphs.function(jit_compile=True)
def _rotated(x: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor) -> tf.Tensor:
    first, second = tf.split(tf.cast(x, tf.float32), 2, axis=-1)
    return tf.cast(tf.concat([first * cos - second * sin, second * cos + first * sin], axis=-1), x.dtype)
