"""An optimizer that is no part of the project: what one more needs is its row and this class."""

from collections.abc import Mapping

import tensorflow as tf

from bert.core.config import OptimizerKind
from bert.training.optimizer import Piece, UpdateRule

ROW = OptimizerKind(rule=f"{__name__}:SignDescent", slots=("sign_m",), largest_norm=0.5)


class SignDescent(UpdateRule):
    """Steps by the sign of the mean gradient (Bernstein et al. 2018, signSGD), with Nesterov's momentum."""

    reads_gradients = True

    def new_slots(self, gradient: tf.Tensor, slots: Mapping[str, tf.Variable]) -> dict[str, tf.Tensor]:
        return {"sign_m": self.config.beta_1 * slots["sign_m"] + (1 - self.config.beta_1) * gradient}

    def direction(self, piece: Piece) -> tf.Tensor:
        ahead = self.config.beta_1 * piece.slots["sign_m"] + (1 - self.config.beta_1) * piece.gradient
        return tf.sign(ahead) + piece.decay * piece.weight
