"""Optimizers: a pure update with its equation, and an owner of the slots."""

import re
from collections.abc import Sequence

import tensorflow as tf

from bert.config import OptimizerConfig

NO_DECAY = re.compile(r"(layer_norm/(gamma|beta)|bias)$")


def adam_update(
    g: tf.Tensor, m: tf.Tensor, v: tf.Tensor, w: tf.Tensor, *, b1: float, b2: float, eps: float, decay: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """One step of the original BERT's Adam (google-research/bert, optimization.py); returns direction, m, v.

    Neither moment is corrected for its bias, and the weight decay is decoupled: w <- w - rate * direction.
    """
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * tf.square(g)
    return m / (tf.sqrt(v) + eps) + decay * w, m, v


class Adam(tf.Module):
    """Owns the slots of `adam_update`, one pair a variable, in float32."""

    def __init__(self, weights: dict[str, tf.Variable], config: OptimizerConfig) -> None:
        super().__init__()
        self.weights, self.config = weights, config
        self.m = {
            name: tf.Variable(tf.zeros_like(w), name=f"adam_m/{name}", trainable=False) for name, w in weights.items()
        }
        self.v = {
            name: tf.Variable(tf.zeros_like(w), name=f"adam_v/{name}", trainable=False) for name, w in weights.items()
        }

    @property
    def slots(self) -> dict[str, tf.Variable]:
        """All slots by name, for checkpoints."""
        return {slot.name.removesuffix(":0"): slot for slots in (self.m, self.v) for slot in slots.values()}

    def apply(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor) -> tf.Tensor:
        """Clips by global norm, then updates every weight, unless the norm is not finite; returns the norm before
        clipping.

        gradients: in the order of `weights`. rate: scalar.
        """
        norm = tf.linalg.global_norm(gradients)
        scale = self.config.clip_norm / tf.maximum(norm, self.config.clip_norm)

        def update() -> tf.Tensor:
            for gradient, (name, weight) in zip(gradients, self.weights.items(), strict=True):
                self._update(name, weight, gradient * scale, rate)
            return norm

        return tf.cond(tf.math.is_finite(norm), update, lambda: norm)

    def _update(self, name: str, weight: tf.Variable, gradient: tf.Tensor, rate: tf.Tensor) -> None:
        config, m, v = self.config, self.m[name], self.v[name]
        direction, new_m, new_v = adam_update(
            gradient, m, v, weight,
            b1=config.beta_1, b2=config.beta_2, eps=config.epsilon,
            decay=0.0 if NO_DECAY.search(name) else config.weight_decay,
        )  # fmt: skip
        weight.assign_sub(rate * direction)
        m.assign(new_m)
        v.assign(new_v)
