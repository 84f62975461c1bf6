"""Optimizers: pure updates with their equations, and an owner of the slots.

adam     as in the original BERT: no moment is corrected for its bias (google-research/bert, optimization.py)
adamw    with the correction (Loshchilov and Hutter 2019)
lamb     adamw's direction, for each variable as long as the variable itself (You et al. 2020)
nvlamb   lamb on gradients whose global norm is at most 1; what does not decay keeps adamw's length (NVIDIA, "A
         Guide to Optimizer Implementation for BERT at Scale", and FusedLAMB of its PyTorch recipe)
"""

import re
from collections.abc import Iterable, Sequence

import tensorflow as tf

from bert.config import OptimizerConfig
from bert.model.fused_ops import sum_of_squares

DECAYS = [  # the first that is found in a variable's name decides; one that none is found in is an error
    (re.compile(r"layer_norm/(gamma|beta)$"), False),
    (re.compile(r"(^|/)bias$"), False),
    (re.compile(r"(^|/)kernel$"), True),
    (re.compile(r"^embeddings/(word|position|segment)$"), True),
]


def adam_moments(g: tf.Tensor, m: tf.Tensor, v: tf.Tensor, *, b1: float, b2: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Adam's moments m and v after a gradient g, all of one shape."""
    return b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * tf.square(g)


def adam_direction(
    m: tf.Tensor,
    v: tf.Tensor,
    w: tf.Tensor,
    *,
    b1: float,
    b2: float,
    eps: float,
    decay: float,
    t: tf.Tensor | None = None,
) -> tf.Tensor:
    """Adam's direction with decoupled decay, of w's shape: w <- w - rate * direction.

    m, v: the moments, this update's gradient included. t: updates so far, this one too, if the moments are to be
    corrected for having started at zero.
    """
    if t is not None:
        m, v = m / (1 - tf.pow(b1, t)), v / (1 - tf.pow(b2, t))
    return m / (tf.sqrt(v) + eps) + decay * w


def trust_ratio(w: tf.Tensor, direction: tf.Tensor) -> tf.Tensor:
    """LAMB's |w| / |direction|, or 1 if either is zero; a scalar."""
    length, step = (tf.sqrt(sum_of_squares(x)) for x in (w, direction))
    return tf.where((length > 0) & (step > 0), length / tf.where(step > 0, step, 1.0), 1.0)


def decays(name: str) -> bool:
    """Whether weight decay is for the variable of that name: layer norm and biases are exempt."""
    for pattern, answer in DECAYS:
        if pattern.search(name):
            return answer
    raise ValueError(f"variable {name}: no rule of bert.training.optimizer.DECAYS says whether it decays")


def shares(names: Iterable[str], layer_decay: float) -> dict[str, float]:
    """The share of the learning rate that each variable has: `layer_decay` to the power of the layers above it."""
    depths = {name: _depth(name) for name in names}
    top = 1 + max((depth for depth in depths.values() if depth is not None), default=0)
    return {name: layer_decay ** (top - (top if depth is None else depth)) for name, depth in depths.items()}


def _depth(name: str) -> int | None:
    """0 for the embeddings, then the layer's number from 1; None for what stands on top."""
    layer = re.match(r"layer_(\d+)/", name)
    return int(layer[1]) + 1 if layer else 0 if name.startswith("embeddings/") else None


class Optimizer(tf.Module):
    """Owns the moments, a pair for each variable, in float32, and applies the update."""

    def __init__(self, weights: dict[str, tf.Variable], config: OptimizerConfig) -> None:
        super().__init__()
        self.weights, self.config = weights, config
        self.decay = {name: config.weight_decay if decays(name) else 0.0 for name in weights}
        self.share = shares(weights, config.layer_decay)
        self.m = {name: _slot("adam_m", name, w) for name, w in weights.items()}
        self.v = {name: _slot("adam_v", name, w) for name, w in weights.items()}
        self.applied = tf.Variable(0.0, name="applied", trainable=False) if config.name != "adam" else None
        self.clip_norm = min(1.0, config.clip_norm) if config.name == "nvlamb" else config.clip_norm

    @property
    def slots(self) -> dict[str, tf.Variable]:
        """All that the next update depends on beside the weights, by name, for checkpoints."""
        own = [*self.m.values(), *self.v.values(), *([self.applied] if self.applied is not None else [])]
        return {slot.name.removesuffix(":0"): slot for slot in own}

    def apply(
        self, gradients: Sequence[tf.Tensor], norm: tf.Tensor, rate: tf.Tensor, go: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Clips by global norm, then updates every weight, if `go`; else nothing changes.

        gradients: in the order of `weights`; norm: their global one; norm, rate and go are scalars. Returns, of LAMB,
        the trust ratios' least, greatest and mean.
        """
        scale = self.clip_norm / tf.maximum(norm, self.clip_norm)
        # Two conditions, not one: XLA for CPUs would compute the moments again for the weights, from copies of the old.
        tf.cond(go, lambda: self._remember(gradients, scale), lambda: None)
        ratios = tf.cond(go, lambda: self._move(rate), lambda: tf.zeros(len(self.weights)))
        if self.config.name not in ("lamb", "nvlamb"):
            return {}
        return {
            "trust_ratio_min": tf.reduce_min(ratios),
            "trust_ratio_max": tf.reduce_max(ratios),
            "trust_ratio_mean": tf.reduce_mean(ratios),
        }

    def _remember(self, gradients: Sequence[tf.Tensor], scale: tf.Tensor) -> None:
        """Takes the gradients, times a scale, into the moments, and counts the update."""
        for name, gradient in zip(self.weights, gradients, strict=True):
            m, v = self.m[name], self.v[name]
            new_m, new_v = adam_moments(gradient * scale, m, v, b1=self.config.beta_1, b2=self.config.beta_2)
            m.assign(new_m)
            v.assign(new_v)
        if self.applied is not None:
            self.applied.assign_add(1.0)

    def _move(self, rate: tf.Tensor) -> tf.Tensor:
        """Moves every weight by what the moments say; returns the trust ratios."""
        config, ratios = self.config, []
        for name, weight in self.weights.items():
            decay = self.decay[name]
            direction = adam_direction(
                self.m[name],
                self.v[name],
                weight,
                b1=config.beta_1,
                b2=config.beta_2,
                eps=config.epsilon,
                decay=decay,
                t=self.applied,
            )
            adapted = config.name == "lamb" or (config.name == "nvlamb" and decay > 0)
            ratios.append(trust_ratio(weight, direction) if adapted else tf.constant(1.0))
            weight.assign_sub(rate * self.share[name] * ratios[-1] * direction)
        return tf.stack(ratios)


def _slot(kind: str, name: str, weight: tf.Variable) -> tf.Variable:
    return tf.Variable(tf.zeros_like(weight), name=f"{kind}/{name}", trainable=False)
