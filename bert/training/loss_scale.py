"""Dynamic loss scale for training in float16.

float16 rounds a gradient below 6e-8 to zero and overflows above 65,504. The loss, and with it every gradient, is
therefore multiplied by a scale, and the summed gradients are divided by it before the update. The scale halves after
each update that is not finite, and doubles after `PATIENCE` finite updates in a row (Micikevicius et al. 2018).
"""

from collections.abc import Sequence

import tensorflow as tf

INITIAL, PATIENCE, GREATEST = 2.0**15, 2000.0, 2.0**32


class LossScale(tf.Module):
    """Hold and adapt the loss scale. Its variables are part of a checkpoint."""

    def __init__(self, enabled: bool) -> None:
        """enabled: whether gradients are computed or sent in float16. Otherwise the scale is always 1."""
        super().__init__()
        self.enabled = enabled
        self.scale = tf.Variable(INITIAL if enabled else 1.0, name="loss_scale/scale", trainable=False)
        self.finite_updates = tf.Variable(0.0, name="loss_scale/finite_updates", trainable=False)  # in a row

    @property
    def slots(self) -> dict[str, tf.Variable]:
        """Return its variables by name."""
        return {"loss_scale/scale": self.scale, "loss_scale/finite_updates": self.finite_updates}

    def unscale(self, gradients: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Divide gradients of the scaled loss by the scale."""
        if not self.enabled:
            return gradients
        inverse = 1.0 / self.scale
        return [gradient * inverse for gradient in gradients]

    def update(self, finite: tf.Tensor) -> tf.Tensor:
        """Set the scale for the next update; return the scale of this update.

        finite: whether this update's loss and gradients are finite, a boolean scalar.
        """
        used = self.scale.read_value()
        finite_updates = tf.where(finite, self.finite_updates + 1.0, 0.0)
        if self.enabled:
            due = finite_updates >= PATIENCE
            grown = tf.where(due, tf.minimum(used * 2.0, GREATEST), used)
            self.scale.assign(tf.where(finite, grown, tf.maximum(used / 2.0, 1.0)))
            finite_updates = tf.where(due, 0.0, finite_updates)
        self.finite_updates.assign(finite_updates)
        return used
