"""Rotary positions (Su et al. 2021, "RoFormer"): queries and keys are rotated by angles that grow with the position.

The score of a query and a key then depends on their distance. Component h and component h + H/2 of a head are the two
coordinates of a plane, as in GPT-NeoX and ModernBERT (in RoFormer's own code they are 2h and 2h + 1).

Shapes: B batch, N heads, T tokens, H head width.
"""

from collections.abc import Callable

import tensorflow as tf

from bert.hardware import graphs


def rotation(positions: tf.Tensor, base: float, head_width: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function that rotates x [B, N, T, H] in float32 and returns x's type.

    positions: of the tokens [B or 1, T]. Plane h turns by base^(-2h / H) radians per token. The gradient is rotated
    back.
    """
    exponents = tf.range(0, head_width, 2, dtype=tf.float32) / head_width
    angles = tf.cast(positions, tf.float32)[:, None, :, None] / base**exponents
    cos, sin = tf.cos(angles), tf.sin(angles)  # [B or 1, 1, T, H / 2]

    def rotate(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        return _rotated(x, cos, sin), lambda upstream: _rotated(upstream, cos, -sin)

    return tf.custom_gradient(rotate)


@graphs.function(jit_compile=True)
def _rotated(x: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor) -> tf.Tensor:
    first, second = tf.split(tf.cast(x, tf.float32), 2, axis=-1)
    return tf.cast(tf.concat([first * cos - second * sin, second * cos + first * sin], axis=-1), x.dtype)
