"""What an optimizer is: a rule that computes updates, and the class that owns its variables and applies the rule.

`bert.training.update_rules` has the rules.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert.core import rows
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


class Piece(NamedTuple):
    """What a rank updates of a weight: all of it, or its rows."""

    name: str
    weight: tf.Tensor
    slots: Mapping[str, tf.Variable]
    """by the first part of their names, each of the piece's shape"""
    decay: float
    """of the weight; 0 if it is exempt"""
    updates: tf.Tensor | None
    """their number, this one included, if the rule counts them"""
    gradient: tf.Tensor = None
    """after clipping, if the rule reads gradients; else None"""


class UpdateRule(ABC):
    """How to update each weight: first its slots, then weight <- weight - rate * ratio * direction.

    The slots and the direction of a piece depend on this piece only. The ratio is a scalar of the whole weight. It
    depends on sums of squares, which are summed over the ranks that have pieces. A rule owns no variables.
    """

    counts = False  # whether updates are counted
    reads_gradients = False  # whether directions depend on gradients, not on the updated slots alone

    def __init__(self, config: OptimizerConfig) -> None:
        self.config = config

    @abstractmethod
    def new_slots(self, gradient: tf.Tensor, slots: Mapping[str, tf.Variable]) -> dict[str, tf.Tensor]:
        """Return the new values of the slots. They have the gradient's shape."""

    @abstractmethod
    def direction(self, piece: Piece) -> tf.Tensor:
        """Return the direction with decoupled weight decay, of the piece's shape. The slots are already updated."""

    def adapts(self, decay: float) -> bool:
        """Return whether weights with this decay have a ratio. Otherwise their steps are not scaled."""
        return False

    def to_square(self, piece: Piece, gradient: tf.Tensor, direction: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return tensors of the piece's shape; `ratio` depends on the sums of their squares.

        gradient: before clipping.
        """
        return ()

    def ratio(self, sums: Sequence[tf.Tensor], size: int) -> tf.Tensor:
        """Return the ratio, a scalar. sums: the sums of squares over the whole weight. size: its number of elements."""
        return tf.constant(1.0)

    def measures(self, ratios: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return what to log about the ratios of all weights, by name."""
        return {}


def shares(names: Iterable[str], layer_decay: float) -> dict[str, float]:
    """Return each variable's factor of the learning rate: `layer_decay` to the power of its distance from the heads.

    The heads have factor 1, the last layer has `layer_decay`.
    """
    depths = {name: depth(name) for name in names}
    top = 1 + max((number for number in depths.values() if math.isfinite(number)), default=0)
    return {name: layer_decay ** (top - min(number, top)) for name, number in depths.items()}


def learning(weights: Mapping[str, tf.Variable], init: InitConfig) -> dict[str, tf.Variable]:
    """Return the weights that learn: not all, if layers or the encoder are frozen, or if there are low-rank updates."""
    if init.frozen_encoder or any(map(added.tunes, weights)):
        return {name: weight for name, weight in weights.items() if added.is_learnt(name) or not in_encoder(name)}
    frozen = init.frozen_layers
    return {name: weight for name, weight in weights.items() if frozen == 0 or depth(name) > frozen}


def describe(learning: Mapping[str, tf.Variable], weights: Mapping[str, tf.Variable], config: OptimizerConfig) -> str:
    """Return one line: how many of the model's parameters learn, and the memory that this saves."""
    own, every = (sum(weight.shape.num_elements() for weight in each.values()) for each in (learning, weights))
    moments, saved = (4 * len(config.kind.slots) * count / 1e6 for count in (own, every - own))
    updates = len(added.terms(name for name in weights if added.tunes(name)))
    of_updates = f", {updates} {added.LOW_RANK.called} among them" if updates else ""
    return (
        f"parameters: {own:,} of {every:,} learn ({own / every:.2%}){of_updates}; their moments take "
        f"{moments:,.1f} MB, {saved:,.1f} MB less than those of all"
    )


class Optimizer(tf.Module):
    """Hold the slots of each weight, in float32, and apply the update."""

    sharded = False  # whether several ranks divide the rows of the slots

    def __init__(self, weights: dict[str, tf.Variable], config: OptimizerConfig) -> None:
        super().__init__()
        self.weights, self.config = weights, config
        self.decay = {name: config.weight_decay if decays(name) else 0.0 for name in weights}
        self.share = shares(weights, config.layer_decay)
        self.rule: UpdateRule = rows.load(config.kind.rule)(config)
        self.adapted = {name for name in weights if self.rule.adapts(self.decay[name])}
        self.kinds = {
            kind: {name: self._make_slot(kind, name, w) for name, w in weights.items()} for kind in config.kind.slots
        }
        self.applied = tf.Variable(0.0, name="applied", trainable=False) if self.rule.counts else None
        self.ema = {name: self._make_slot("ema", name, w) for name, w in weights.items()} if config.ema else {}
        self.ema_total = tf.Variable(0.0, name="ema_total", trainable=False) if config.ema else None
        self.clip_norm: float | tf.Variable = min(config.kind.largest_norm, config.clip_norm)

    def _make_slot(self, kind: str, name: str, weight: tf.Variable) -> tf.Variable:
        return tf.Variable(tf.zeros_like(weight), name=f"{kind}/{name}", trainable=False)

    @property
    def slots(self) -> State:
        """Return all variables that the next update depends on, except the weights, by name, for checkpoints."""
        variables = [slot for slots in (*self.kinds.values(), self.ema) for slot in slots.values()]
        return {slot.name.removesuffix(":0"): slot for slot in variables} | self.counts

    @property
    def counts(self) -> dict[str, tf.Variable]:
        """Return its variables that depend on the number of updates, by name."""
        counts = {"applied": self.applied, "ema_total": self.ema_total}
        return {name: count for name, count in counts.items() if count is not None}

    def updater(self, guard: UpdateGuard, divided: Buckets) -> Updater:
        """Return a function that updates every weight if the guard accepts the update.

        divided: the buckets of a distributed optimizer; not used here.
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
        """Clip the gradients by their global norm and update every weight. If `go` is false, change nothing.

        gradients: in the order of `weights`. norm: their global one. norm, rate, go: scalars. Return the measures.
        """
        scale = self._clip(norm)
        # Two conditions: with one, XLA on a CPU copies the old slots and computes the new ones twice.
        tf.cond(go, lambda: self._update_slots(gradients, scale), lambda: None)
        read = self._read(gradients, scale)
        ratios = tf.cond(go, lambda: self._update_weights(gradients, read, rate), lambda: tf.zeros(len(self.weights)))
        return self.rule.measures(ratios)

    def _clip(self, norm: tf.Tensor) -> tf.Tensor:
        """Return the factor that clips gradients with this global norm; 1 for an optimizer that does not clip."""
        return tf.constant(1.0) if self.config.kind.instead else self.clip_norm / tf.maximum(norm, self.clip_norm)

    def _read(self, gradients: Sequence[tf.Tensor], scale: tf.Tensor) -> list[tf.Tensor]:
        """Return the gradients times `scale`, or None for each if the rule does not read them."""
        return [gradient * scale if self.rule.reads_gradients else None for gradient in gradients]

    def _piece(self, name: str, weight: tf.Tensor, gradient: tf.Tensor | None = None) -> Piece:
        """Return the arguments of the rule for a weight. weight: all of it, or the rows that the slots have."""
        slots = {kind: slots[name] for kind, slots in self.kinds.items()}
        return Piece(name, weight, slots, self.decay[name], self.applied, gradient)

    def _update_slots(self, gradients: Sequence[tf.Tensor], scale: tf.Tensor) -> None:
        """Update the slots with the gradients times `scale`, and count the update."""
        for (name, weight), gradient in zip(self.weights.items(), gradients, strict=True):
            slots = self._piece(name, weight).slots
            for kind, value in self.rule.new_slots(gradient * scale, slots).items():
                slots[kind].assign(value)
        if self.applied is not None:
            self.applied.assign_add(1.0)

    def _update_weights(self, gradients: Sequence[tf.Tensor], read: Sequence[tf.Tensor], rate: tf.Tensor) -> tf.Tensor:
        """Update every weight from the slots; return the ratio of each weight.

        gradients: those that `_update_slots` read, before clipping. read: as `_read` returns them.
        """
        ratios = []
        for (name, weight), gradient, clipped in zip(self.weights.items(), gradients, read, strict=True):
            piece = self._piece(name, weight, clipped)
            direction = self.rule.direction(piece)
            ratios.append(self._ratio(name, self._sums(piece, gradient, direction) if name in self.adapted else ()))
            weight.assign_sub(rate * self.share[name] * ratios[-1] * direction)
        self._average(list(self.weights.values()))
        return tf.stack(ratios)

    def _average(self, weights: Sequence[tf.Tensor]) -> None:
        """Update the moving average, if there is one, with the new weights. weights: all, or this rank's pieces.

        E <- d E + (1 - d) w, from E = 0 on. Readers divide E by `ema_total`, which is the same recurrence with w = 1.
        So the initial weights do not count.
        """
        if self.ema_total is not None:
            share = 1 - self.config.ema
            for average, weight in zip(self.ema.values(), weights, strict=True):
                average.assign_add(share * (weight - average))
            self.ema_total.assign_add(share * (1.0 - self.ema_total))

    def _sums(self, piece: Piece, gradient: tf.Tensor, direction: tf.Tensor) -> list[tf.Tensor]:
        """Return the sums of squares that `_ratio` depends on, or this rank's terms of them."""
        return [self._squares(piece.name, each) for each in self.rule.to_square(piece, gradient, direction)]

    def _squares(self, name: str, values: tf.Tensor) -> tf.Tensor:
        """Return the sum of the squares of `values`, which have the shape of a weight or of this rank's piece."""
        return sum_of_squares(values)

    def _ratio(self, name: str, sums: Sequence[tf.Tensor]) -> tf.Tensor:
        """Return the ratio of a weight, or 1 if it has none. sums: over the whole weight."""
        return self.rule.ratio(sums, self._size(name)) if name in self.adapted else tf.constant(1.0)

    def _size(self, name: str) -> int:
        """Return the number of elements of the whole weight."""
        size: int = self.weights[name].shape.num_elements()
        return size
