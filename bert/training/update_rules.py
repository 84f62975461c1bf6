"""The rules by which optimizers update a variable, each a class with its equations.

Adam         as in the original BERT: without bias correction (google-research/bert, optimization.py)
AdamW        with bias correction (Loshchilov and Hutter 2019)
StableAdamW  AdamW whose step of each variable is limited instead of the gradients (Wortsman et al. 2023, "Stable and
             low-precision training for large-scale vision-language models", algorithm 2)
Lamb         AdamW's direction, scaled for each variable to the norm of the variable (You et al. 2020, algorithm 2)
NvLamb       Lamb on gradients clipped to a global norm of at most 1; variables without weight decay keep AdamW's step
             (NVIDIA, "A Guide to Optimizer Implementation for BERT at Scale", and FusedLAMB of its PyTorch recipe)

docs/optimizers.md compares them with the code of each source. `bert.core.config.OPTIMIZERS` names them.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert.training.optimizer import Piece, UpdateRule


class Adam(UpdateRule):
    """The moments m and v, and m / (sqrt(v) + epsilon), without bias correction."""

    def new_slots(self, gradient: tf.Tensor, slots: Mapping[str, tf.Variable]) -> dict[str, tf.Tensor]:
        b1, b2 = self.config.beta_1, self.config.beta_2
        m = b1 * slots["adam_m"] + (1 - b1) * gradient
        v = b2 * slots["adam_v"] + (1 - b2) * tf.square(gradient)
        return {"adam_m": m, "adam_v": v}

    def direction(self, piece: Piece) -> tf.Tensor:
        m, v = piece.slots["adam_m"], piece.slots["adam_v"]
        if piece.updates is not None:
            m = m / (1 - tf.pow(self.config.beta_1, piece.updates))
            v = v / (1 - tf.pow(self.config.beta_2, piece.updates))
        return m / (tf.sqrt(v) + self.config.epsilon) + piece.decay * piece.weight


class AdamW(Adam):
    """Adam with bias correction."""

    counts = True


class StableAdamW(AdamW):
    """AdamW with a limit for each step: 1 / max(1, RMS of the relative gradient).

    The relative gradient is g / max(sqrt(v), epsilon), with bias correction. Its RMS exceeds 1 when gradients are
    larger than the second moment says. Adafactor limits its steps in the same way (Shazeer and Stern 2018, section 6).
    """

    def adapts(self, decay: float) -> bool:
        return True

    def to_square(self, piece: Piece, gradient: tf.Tensor, direction: tf.Tensor) -> tuple[tf.Tensor, ...]:
        v = piece.slots["adam_v"] / (1 - tf.pow(self.config.beta_2, piece.updates))
        return (gradient / tf.maximum(tf.sqrt(v), self.config.epsilon),)

    def ratio(self, sums: Sequence[tf.Tensor], size: int) -> tf.Tensor:
        return 1 / tf.maximum(1.0, tf.sqrt(sums[0] / size))

    def measures(self, ratios: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"step_limit_min": tf.reduce_min(ratios), "step_limit_mean": tf.reduce_mean(ratios)}


class Lamb(AdamW):
    """AdamW with a trust ratio for each step: |w| / |direction|, or 1 if either is zero."""

    def adapts(self, decay: float) -> bool:
        return True

    def to_square(self, piece: Piece, gradient: tf.Tensor, direction: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return piece.weight, direction

    def ratio(self, sums: Sequence[tf.Tensor], size: int) -> tf.Tensor:
        w_norm, d_norm = (tf.sqrt(squares) for squares in sums)
        return tf.where((w_norm > 0) & (d_norm > 0), w_norm / tf.where(d_norm > 0, d_norm, 1.0), 1.0)

    def measures(self, ratios: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "trust_ratio_min": tf.reduce_min(ratios),
            "trust_ratio_max": tf.reduce_max(ratios),
            "trust_ratio_mean": tf.reduce_mean(ratios),
        }


class NvLamb(Lamb):
    """Lamb, but weights without decay have AdamW's step. The largest clip norm is in its row of `OPTIMIZERS`."""

    def adapts(self, decay: float) -> bool:
        return decay > 0
