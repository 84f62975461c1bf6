"""Detection of loss spikes: finite losses far above the median of the last ones."""

import numpy as np
import tensorflow as tf

WINDOW = 64  # losses that the median is taken of


class SpikeDetector(tf.Module):
    """Keep the last losses; its variable is part of a checkpoint."""

    def __init__(self, factor: float) -> None:
        """factor: a loss above this multiple of the median of the last losses is a spike; 0: detect none."""
        super().__init__()
        self.factor = factor
        # Infinite until there are enough losses for a median, so that nothing is a spike before that.
        self.losses = tf.Variable(tf.fill([WINDOW], np.float32(np.inf)), name="spikes/losses", trainable=False)

    @property
    def slots(self) -> dict[str, tf.Variable]:
        """Return its variable by name."""
        return {"spikes/losses": self.losses}

    def is_spike(self, loss: tf.Tensor) -> tf.Tensor:
        """Return whether a finite loss is a spike; both are scalars."""
        if not self.factor:
            return tf.constant(False)
        median = tf.sort(self.losses)[WINDOW // 2]
        return loss > self.factor * median

    def record(self, loss: tf.Tensor, applied: tf.Tensor) -> None:
        """Add the loss of an update to the last losses if the update is applied."""
        self.losses.assign(tf.where(applied, tf.concat([self.losses[1:], [loss]], 0), self.losses))
