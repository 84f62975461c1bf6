"""The decision whether an update is applied, and the count of those that are skipped.

Every rank decides from the same reduced loss and gradient norm, so all ranks decide alike.
"""

import tensorflow as tf

from bert.training.loss_scale import LossScale
from bert.training.spikes import SpikeDetector


class UpdateGuard(tf.Module):
    """Skip updates that are not finite and, if asked to, spikes. Its variables are part of a checkpoint."""

    def __init__(self, scaled: bool, spike_factor: float = 0.0, skip_spikes: bool = False) -> None:
        """scaled: whether to scale the loss, for float16.

        spike_factor: see `SpikeDetector`. skip_spikes: skip spikes; otherwise only report them.
        """
        super().__init__()
        self.loss_scale, self.spikes, self.skip_spikes = LossScale(scaled), SpikeDetector(spike_factor), skip_spikes
        self.skipped = tf.Variable(0.0, name="guard/skipped", trainable=False)
        self.skipped_in_a_row = tf.Variable(0.0, name="guard/skipped_in_a_row", trainable=False)

    @property
    def slots(self) -> dict[str, tf.Variable]:
        """Return its variables by name, including the variables of the loss scale and the spike detector."""
        counts = {"guard/skipped": self.skipped, "guard/skipped_in_a_row": self.skipped_in_a_row}
        return counts | self.loss_scale.slots | self.spikes.slots

    def check(self, loss: tf.Tensor, norm: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Return whether to apply an update with this loss and global gradient norm, and measures; all are scalars.

        Count the update if it is skipped, and set the loss scale for the next update.
        """
        finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
        spike = finite & self.spikes.is_spike(loss)
        apply = finite & ~spike if self.skip_spikes else finite
        self.spikes.record(loss, apply)
        scale = self.loss_scale.update(finite)
        self.skipped.assign_add(tf.where(apply, 0.0, 1.0))
        self.skipped_in_a_row.assign(tf.where(apply, 0.0, self.skipped_in_a_row + 1.0))
        measures = {"skipped": self.skipped.read_value(), "skipped_in_a_row": self.skipped_in_a_row.read_value()}
        if self.spikes.factor:
            measures["spike"] = tf.cast(spike, tf.float32)
        if self.loss_scale.enabled:
            measures["loss_scale"] = scale
        return apply, measures
