"""What stands between a bad gradient and the weights: the loss scale, and the count of updates that were skipped.

In float16 a gradient below 6e-8 is zero and one above 65,504 infinite. The loss, and with it every gradient, is
multiplied by a scale that halves when a gradient is not finite, and doubles after `PATIENCE` updates that were; the
update itself is skipped, on all ranks alike, since all of them judge the same sum (Micikevicius et al. 2018).
"""

import tensorflow as tf

INITIAL, PATIENCE, GREATEST = 2.0**15, 2000.0, 2.0**32


class Guard(tf.Module):
    """Judges the gradient norm of every update; its variables are part of a checkpoint."""

    def __init__(self, scaled: bool) -> None:
        """`scaled`: for arithmetic in float16; else the scale is always 1."""
        super().__init__()
        self.scaled = scaled
        self.scale = tf.Variable(INITIAL if scaled else 1.0, name="guard/loss_scale", trainable=False)
        self.good = tf.Variable(0.0, name="guard/good_updates", trainable=False)
        self.skipped = tf.Variable(0.0, name="guard/skipped", trainable=False)
        self.in_a_row = tf.Variable(0.0, name="guard/skipped_in_a_row", trainable=False)

    @property
    def slots(self) -> dict[str, tf.Variable]:
        """Its variables by name."""
        return {slot.name.removesuffix(":0"): slot for slot in (self.scale, self.good, self.skipped, self.in_a_row)}

    def judge(self, norm: tf.Tensor) -> dict[str, tf.Tensor]:
        """Counts an update whose gradient has this global norm, and sets the scale for the next; returns measures."""
        finite = tf.math.is_finite(norm)
        used = self.scale.read_value()
        good = tf.where(finite, self.good + 1.0, 0.0)
        if self.scaled:
            grown = tf.where(good >= PATIENCE, tf.minimum(used * 2.0, GREATEST), used)
            self.scale.assign(tf.where(finite, grown, tf.maximum(used / 2.0, 1.0)))
            good = tf.where(good >= PATIENCE, 0.0, good)
        self.good.assign(good)
        self.skipped.assign_add(tf.where(finite, 0.0, 1.0))
        self.in_a_row.assign(tf.where(finite, 0.0, self.in_a_row + 1.0))
        found = {"skipped": self.skipped.read_value(), "skipped_in_a_row": self.in_a_row.read_value()}
        return found | ({"loss_scale": used} if self.scaled else {})
