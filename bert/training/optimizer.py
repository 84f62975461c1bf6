"""Optimizers: pure updates with their equations, and the class that owns the slots.

adam         as in the original BERT: without bias correction (google-research/bert, optimization.py)
adamw        with bias correction (Loshchilov and Hutter 2019)
stableadamw  adamw whose step of each variable is limited instead of the gradients (Wortsman et al. 2023, "Stable and
             low-precision training for large-scale vision-language models", algorithm 2)
lamb         adamw's direction, scaled for each variable to the norm of the variable (You et al. 2020, algorithm 2)
nvlamb       lamb on gradients clipped to a global norm of at most 1; variables without weight decay keep adamw's step
             (NVIDIA, "A Guide to Optimizer Implementation for BERT at Scale", and FusedLAMB of its PyTorch recipe)

docs/optimizers.md compares them with the code of each source.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

from bert.core.config import InitConfig, OptimizerConfig
from bert.hardware import graphs
from bert.model import added
from bert.model.fused_ops import sum_of_squares
from bert.model.weights import decays, depth, in_encoder
from bert.training.buckets import Buckets
from bert.training.division import State
from bert.training.guard import UpdateGuard

# Called with the summed gradients, times the loss scale, the loss and the learning rate; returns the measures.
Updater = Callable[[Sequence[tf.Tensor], tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]


def adam_moments(g: tf.Tensor, m: tf.Tensor, v: tf.Tensor, *, b1: float, b2: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Return Adam's moments m and v after a gradient g, all of one shape."""
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
    """Return Adam's direction with decoupled weight decay, of w's shape: w <- w - rate * direction.

    m, v: the moments, this update's gradient included. t: number of updates, this one included, for bias correction;
    None: no correction.
    """
    if t is not None:
        m, v = m / (1 - tf.pow(b1, t)), v / (1 - tf.pow(b2, t))
    return m / (tf.sqrt(v) + eps) + decay * w


def relative_gradient(g: tf.Tensor, v: tf.Tensor, *, b2: float, eps: float, t: tf.Tensor) -> tf.Tensor:
    """Return a gradient divided by max(sqrt(v), eps), with bias correction, of g's shape.

    v: the second moment, this gradient included. t: number of updates, this one included.
    """
    return g / tf.maximum(tf.sqrt(v / (1 - tf.pow(b2, t))), eps)


def step_limit(squares: tf.Tensor, size: int) -> tf.Tensor:
    """Return StableAdamW's factor 1 / max(1, RMS) of the step of a variable; a scalar.

    The RMS is that of the relative gradient: it exceeds 1 where gradients are larger than the second moment knows of.
    Adafactor limits its steps in the same way (Shazeer and Stern 2018, section 6). squares: the sum of the squares of
    the relative gradient, which has `size` elements.
    """
    return 1 / tf.maximum(1.0, tf.sqrt(squares / size))


def trust_ratio(w: tf.Tensor, direction: tf.Tensor) -> tf.Tensor:
    """Return LAMB's trust ratio |w| / |direction|, or 1 if either is zero; a scalar.

    w, direction: the sums of squares of a variable and of its direction.
    """
    w_norm, d_norm = tf.sqrt(w), tf.sqrt(direction)
    return tf.where((w_norm > 0) & (d_norm > 0), w_norm / tf.where(d_norm > 0, d_norm, 1.0), 1.0)


def shares(names: Iterable[str], layer_decay: float) -> dict[str, float]:
    """Return each variable's share of the learning rate: `layer_decay` to the power of the number of layers above."""
    depths = {name: depth(name) for name in names}
    top = 1 + max((number for number in depths.values() if math.isfinite(number)), default=0)
    return {name: layer_decay ** (top - min(number, top)) for name, number in depths.items()}


def learning(weights: Mapping[str, tf.Variable], init: InitConfig) -> dict[str, tf.Variable]:
    """Return the weights that change: if layers or the encoder are frozen, or updates are added, not all do."""
    if init.frozen_encoder or any(map(added.tunes, weights)):
        return {name: weight for name, weight in weights.items() if added.is_learnt(name) or not in_encoder(name)}
    frozen = init.frozen_layers
    return {name: weight for name, weight in weights.items() if frozen == 0 or depth(name) > frozen}


def describe(learning: Mapping[str, tf.Variable], weights: Mapping[str, tf.Variable]) -> str:
    """Return how many of a model's parameters learn, and what this saves, in one line."""
    own, every = (sum(weight.shape.num_elements() for weight in each.values()) for each in (learning, weights))
    moments, saved = (8 * count / 1e6 for count in (own, every - own))
    updates = len(added.terms(name for name in weights if added.tunes(name)))
    of_updates = f", {updates} {added.LOW_RANK.called} among them" if updates else ""
    return (
        f"parameters: {own:,} of {every:,} learn ({own / every:.2%}){of_updates}; their moments take "
        f"{moments:,.1f} MB, {saved:,.1f} MB less than those of all"
    )


class Optimizer(tf.Module):
    """Own the moments, two for each variable, in float32, and apply the update."""

    sharded = False  # whether several ranks divide the rows of the moments

    def __init__(self, weights: dict[str, tf.Variable], config: OptimizerConfig) -> None:
        super().__init__()
        self.weights, self.config = weights, config
        self.decay = {name: config.weight_decay if decays(name) else 0.0 for name in weights}
        self.share = shares(weights, config.layer_decay)
        self.limited = config.name == "stableadamw"
        self.adapted = {
            name
            for name in weights
            if config.name == "lamb" or self.limited or (config.name == "nvlamb" and self.decay[name])
        }
        self.m = {name: self._make_slot("adam_m", name, w) for name, w in weights.items()}
        self.v = {name: self._make_slot("adam_v", name, w) for name, w in weights.items()}
        self.applied = tf.Variable(0.0, name="applied", trainable=False) if config.name != "adam" else None
        self.ema = {name: self._make_slot("ema", name, w) for name, w in weights.items()} if config.ema else {}
        self.ema_total = tf.Variable(0.0, name="ema_total", trainable=False) if config.ema else None
        self.clip_norm: float | tf.Variable = config.clip_norm
        if config.name == "nvlamb":
            self.clip_norm = min(1.0, config.clip_norm)

    def _make_slot(self, kind: str, name: str, weight: tf.Variable) -> tf.Variable:
        return tf.Variable(tf.zeros_like(weight), name=f"{kind}/{name}", trainable=False)

    @property
    def slots(self) -> State:
        """Return everything that the next update depends on apart from the weights, by name, for checkpoints."""
        return _by_name([*self.m.values(), *self.v.values(), *self.ema.values()]) | self.counts

    @property
    def counts(self) -> dict[str, tf.Variable]:
        """Return what it has of the number of updates, by name."""
        counts = {"applied": self.applied, "ema_total": self.ema_total}
        return {name: count for name, count in counts.items() if count is not None}

    def updater(self, guard: UpdateGuard, divided: Buckets) -> Updater:
        """Return the function that updates every weight if the guard lets the update pass.

        divided: the buckets of a distributed optimizer; of no use here.
        """

        def update(gradients: Sequence[tf.Tensor], loss: tf.Tensor, rate: tf.Tensor) -> dict[str, tf.Tensor]:
            unscaled = guard.loss_scale.unscale(gradients)
            norm = tf.sqrt(tf.add_n([sum_of_squares(gradient) for gradient in unscaled]))
            go, guard_measures = guard.check(loss, norm)
            return {"gradient_norm": norm} | self.apply(unscaled, norm, rate, go) | guard_measures

        return graphs.function(update, jit_compile=True)  # memory traffic only, which fusion saves

    def apply(
        self, gradients: Sequence[tf.Tensor], norm: tf.Tensor, rate: tf.Tensor, go: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Clip the gradients by their global norm, then update every weight; change nothing unless `go`.

        gradients: in the order of `weights`. norm: their global norm; norm, rate and go are scalars. Return the
        smallest, largest and mean trust ratio for LAMB, smallest and mean limit for StableAdamW, nothing for Adam.
        """
        scale = self._clip(norm)
        # Two conditions: with one, XLA on a CPU copies the old moments and computes the new ones twice.
        tf.cond(go, lambda: self._update_moments(gradients, scale), lambda: None)
        ratios = tf.cond(go, lambda: self._update_weights(gradients, rate), lambda: tf.zeros(len(self.weights)))
        return self._summary(ratios)

    def _clip(self, norm: tf.Tensor) -> tf.Tensor:
        """Return what gradients of this global norm are multiplied by; StableAdamW does not clip them."""
        return tf.constant(1.0) if self.limited else self.clip_norm / tf.maximum(norm, self.clip_norm)

    def _summary(self, ratios: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the measures of the ratios, if the optimizer has them."""
        if self.limited:
            return {"step_limit_min": tf.reduce_min(ratios), "step_limit_mean": tf.reduce_mean(ratios)}
        if self.config.name not in ("lamb", "nvlamb"):
            return {}
        return {
            "trust_ratio_min": tf.reduce_min(ratios),
            "trust_ratio_max": tf.reduce_max(ratios),
            "trust_ratio_mean": tf.reduce_mean(ratios),
        }

    def _update_moments(self, gradients: Sequence[tf.Tensor], scale: tf.Tensor) -> None:
        """Update the moments with the gradients times a scale, and count the update."""
        for name, gradient in zip(self.weights, gradients, strict=True):
            m, v = self.m[name], self.v[name]
            new_m, new_v = adam_moments(gradient * scale, m, v, b1=self.config.beta_1, b2=self.config.beta_2)
            m.assign(new_m)
            v.assign(new_v)
        if self.applied is not None:
            self.applied.assign_add(1.0)

    def _update_weights(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor) -> tf.Tensor:
        """Update every weight from the moments; return by what its step was multiplied, one ratio for each weight.

        gradients: those that are in the moments.
        """
        ratios = []
        for (name, weight), gradient in zip(self.weights.items(), gradients, strict=True):
            direction = self._direction(name, weight)
            sums = self._sums(name, weight, direction, gradient) if name in self.adapted else ()
            ratios.append(self._ratio(name, sums))
            weight.assign_sub(rate * self.share[name] * ratios[-1] * direction)
        self._average(list(self.weights.values()))
        return tf.stack(ratios)

    def _average(self, weights: Sequence[tf.Tensor]) -> None:
        """Move the average of the weights, if there is one, towards their new values, or this rank's pieces of them.

        E <- d E + (1 - d) w, from 0 on. Readers divide it by `ema_total`, the same recurrence with w = 1. So the
        initial weights are no part of it.
        """
        if self.ema_total is not None:
            share = 1 - self.config.ema
            for average, weight in zip(self.ema.values(), weights, strict=True):
                average.assign_add(share * (weight - average))
            self.ema_total.assign_add(share * (1.0 - self.ema_total))

    def _sums(self, name: str, weight: tf.Tensor, direction: tf.Tensor, gradient: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the sums of squares from which `_ratio` is computed."""
        if not self.limited:
            return self._squares(name, weight), self._squares(name, direction)
        config = self.config
        relative = relative_gradient(gradient, self.v[name], b2=config.beta_2, eps=config.epsilon, t=self.applied)
        return (self._squares(name, relative),)

    def _squares(self, name: str, values: tf.Tensor) -> tf.Tensor:
        """Return the sum of the squares of values that have the shape of a weight, or of this rank's piece of it."""
        return sum_of_squares(values)

    def _ratio(self, name: str, sums: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the number by which the step of a weight is multiplied. sums: of the whole weight."""
        if name not in self.adapted:
            return tf.constant(1.0)
        return step_limit(sums[0], self._size(name)) if self.limited else trust_ratio(*sums)

    def _size(self, name: str) -> int:
        """Return the number of elements of a weight, as a whole."""
        size: int = self.weights[name].shape.num_elements()
        return size

    def _direction(self, name: str, weight: tf.Tensor) -> tf.Tensor:
        """Return the direction of a weight, or of the rows of it that the moments are of."""
        config = self.config
        return adam_direction(
            self.m[name],
            self.v[name],
            weight,
            b1=config.beta_1,
            b2=config.beta_2,
            eps=config.epsilon,
            decay=self.decay[name],
            t=self.applied,
        )


def _by_name(slots: Iterable[tf.Variable]) -> dict[str, tf.Variable]:
    return {slot.name.removesuffix(":0"): slot for slot in slots}
