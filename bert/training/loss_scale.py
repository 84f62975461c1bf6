"""What stands between a bad gradient and the weights: the loss scale, the look-out for spikes, the count of what was
skipped.

In float16 a gradient below 6e-8 is zero and one above 65,504 infinite. The loss, and with it every gradient, is
multiplied by a scale that halves when a gradient is not finite, and doubles after `PATIENCE` updates that were; the
update itself is skipped, on all ranks alike, since all of them judge the same sum (Micikevicius et al. 2018).

A spike is a loss that is finite and yet many times what it was of late.
"""

import numpy as np
import tensorflow as tf

INITIAL, PATIENCE, GREATEST = 2.0**15, 2000.0, 2.0**32
WINDOW = 64  # losses whose median a spike stands out of


class Guard(tf.Module):
    """Judges the loss and gradient norm of every update; its variables are part of a checkpoint."""

    def __init__(self, scaled: bool, spike_factor: float = 0.0, skip_spikes: bool = False) -> None:
        """scaled: for arithmetic in float16; else the scale is always 1.

        spike_factor: how many times the median of the last losses is a spike; 0: nothing is.
        """
        super().__init__()
        self.scaled, self.spike_factor, self.skip_spikes = scaled, spike_factor, skip_spikes
        self.scale = tf.Variable(INITIAL if scaled else 1.0, name="guard/loss_scale", trainable=False)
        self.good = tf.Variable(0.0, name="guard/good_updates", trainable=False)
        self.skipped = tf.Variable(0.0, name="guard/skipped", trainable=False)
        self.in_a_row = tf.Variable(0.0, name="guard/skipped_in_a_row", trainable=False)
        # Infinite until there are enough for a median: nothing is a spike before that.
        self.losses = tf.Variable(tf.fill([WINDOW], np.float32(np.inf)), name="guard/losses", trainable=False)

    @property
    def slots(self) -> dict[str, tf.Variable]:
        """Its variables by name."""
        own = (self.scale, self.good, self.skipped, self.in_a_row, self.losses)
        return {slot.name.removesuffix(":0"): slot for slot in own}

    def judge(self, loss: tf.Tensor, norm: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Whether an update with this loss and global gradient norm is to be made, and measures; all are scalars.

        Counts it, and sets the scale for the next.
        """
        finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
        usual = tf.sort(self.losses)[WINDOW // 2]
        spike = finite & (loss > self.spike_factor * usual) if self.spike_factor else tf.constant(False)
        go = finite & ~spike if self.skip_spikes else finite
        self.losses.assign(tf.where(go, tf.concat([self.losses[1:], [loss]], 0), self.losses))
        used = self.scale.read_value()
        good = tf.where(finite, self.good + 1.0, 0.0)
        if self.scaled:
            grown = tf.where(good >= PATIENCE, tf.minimum(used * 2.0, GREATEST), used)
            self.scale.assign(tf.where(finite, grown, tf.maximum(used / 2.0, 1.0)))
            good = tf.where(good >= PATIENCE, 0.0, good)
        self.good.assign(good)
        self.skipped.assign_add(tf.where(go, 0.0, 1.0))
        self.in_a_row.assign(tf.where(go, 0.0, self.in_a_row + 1.0))
        found = {"skipped": self.skipped.read_value(), "skipped_in_a_row": self.in_a_row.read_value()}
        found |= {"spike": tf.cast(spike, tf.float32)} if self.spike_factor else {}
        return go, found | ({"loss_scale": used} if self.scaled else {})
