"""The optimizer where ranks have pieces of the variables: parts of the model, rows of the moments, or both.

With tensor parallelism a rank has its part of each divided weight, and the moments of that. With a sharded optimizer
(Rajbhandari et al. 2020, ZeRO, stage 1) the replicas of a part divide the rows of its moments and of its update: each
receives the sums of the gradients of its rows, and computes their new values, which all replicas then gather. Norms of
whole variables are sums over the ranks, so that clipping, LAMB's trust ratios and the limits of StableAdamW are those
of one rank, within rounding.
"""

import functools
from collections.abc import Sequence

import tensorflow as tf

from bert.core.config import OptimizerConfig, ParallelConfig
from bert.hardware import graphs
from bert.model.fused_ops import sum_of_squares
from bert.model.weights import axis_of
from bert.training.buckets import Buckets, bucket_by_bucket
from bert.training.communicator import Communicator
from bert.training.division import DividedVariable, State
from bert.training.guard import UpdateGuard
from bert.training.optimizer import Optimizer, Piece, Updater


class DistributedOptimizer(Optimizer):
    """Hold this rank's piece of the moments, and apply the update together with the other ranks."""

    def __init__(
        self, weights: dict[str, tf.Variable], config: OptimizerConfig, comm: Communicator, sharded: bool
    ) -> None:
        """sharded: whether the replicas divide the rows of the moments."""
        self._comm, self.sharded = comm, sharded
        self._divided: dict[str, DividedVariable] = {}
        self._pieces = {name: self._divide(name, name, weight, local=weight) for name, weight in weights.items()}
        super().__init__(weights, config)
        self._norm = graphs.function(self._sum_squares, jit_compile=True)
        self._slots = graphs.function(self._update_rows_of_slots, jit_compile=True)
        self._rows = graphs.function(self._new_rows, jit_compile=True)
        self._averages = graphs.function(self._average, jit_compile=True)

    def _divide(self, called: str, name: str, weight: tf.Variable, local: tf.Variable | None = None) -> DividedVariable:
        """Return a divided variable of the weight's shape, called `called`. local: this rank's piece; None: make it."""
        whole_shapes = self._comm.parts.whole_shapes
        shape, axis = whole_shapes.get(name, weight.shape), axis_of(name) if name in whole_shapes else None
        return DividedVariable(called, shape, self._comm, axis=axis, rows=self.sharded, local=local)

    def _make_slot(self, kind: str, name: str, weight: tf.Variable) -> tf.Variable:
        slot = self._divide(f"{kind}/{name}", name, weight)
        self._divided[slot.name] = slot
        return slot.local

    @property
    def slots(self) -> State:
        return self._divided | self.counts

    def updater(self, guard: UpdateGuard, divided: Buckets) -> Updater:
        """Return `update`. divided: the weights to gather in each collective, as places."""
        return functools.partial(self.update, guard, divided)

    def update(
        self, guard: UpdateGuard, divided: Buckets, gradients: Sequence[tf.Tensor], loss: tf.Tensor, rate: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Update every weight if the guard accepts the update; return the measures of the guard and the optimizer.

        divided: as in `updater`. gradients: this rank's rows of the summed gradients, times the loss scale. All ranks
        must call this.
        """
        [squares] = self._comm.all_reduce([self._norm(guard, gradients)])
        norm, go, of_guard, sums, read = self._slots(guard, gradients, loss, squares)
        if self.adapted:
            [sums] = self._comm.all_reduce([sums])
        rows, ratios = self._rows(rate, sums, read)
        of_rule = self.rule.measures(ratios if bool(go) else tf.zeros_like(ratios))
        measures = {"gradient_norm": norm} | of_rule | of_guard
        if bool(go):
            if self.ema:
                self._averages(rows)
            weights, replicas = list(self.weights.values()), self._comm.replicas
            gather = replicas.all_gather if self.sharded else list
            for place, value in bucket_by_bucket(divided, rows, lambda _, tensors: gather(tensors)):
                weights[place].assign(value)
        return measures

    def _contributes(self, name: str) -> bool:
        """Return whether this rank adds its piece of a weight to sums over all ranks; each piece must count once."""
        first_replica, first_part = self._comm.replicas.rank == 0, self._comm.group.rank == 0
        return (self.sharded or first_replica) and (name in self._comm.parts.whole_shapes or first_part)

    def _squares(self, name: str, values: tf.Tensor) -> tf.Tensor:
        return sum_of_squares(values) if self._contributes(name) else tf.zeros([])

    def _sum_squares(self, guard: UpdateGuard, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
        unscaled = guard.loss_scale.unscale(gradients)
        return tf.add_n([self._squares(name, gradient) for name, gradient in zip(self.weights, unscaled, strict=True)])

    def _update_rows_of_slots(
        self, guard: UpdateGuard, gradients: Sequence[tf.Tensor], loss: tf.Tensor, squares: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor], tf.Tensor, list[tf.Tensor]]:
        """Update this rank's rows of the slots.

        Return gradient norm, whether to update, measures, terms, and the gradients as `_read` does.

        squares: the sum of the squares of all gradients. The measures are the guard's. The terms are what this rank
        adds to `_sums` of each weight: [number of weights, number of sums], or [0, 0] if no weight has a ratio.
        """
        gradients, norm = guard.loss_scale.unscale(gradients), tf.sqrt(squares)
        go, measures = guard.check(loss, norm)
        scale = self._clip(norm)
        tf.cond(go, lambda: self._update_slots(gradients, scale), lambda: None)
        read = self._read(gradients, scale)
        if not self.adapted:
            return norm, go, measures, tf.zeros([0, 0]), read
        pieces = zip(self._rows_of_weights(read), gradients, strict=True)
        terms = [self._sums(piece, gradient, self.rule.direction(piece)) for piece, gradient in pieces]
        return norm, go, measures, tf.stack(terms), read

    def _new_rows(
        self, rate: tf.Tensor, sums: tf.Tensor, read: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Return this rank's rows of the new weights, and the ratios.

        sums: `_sums` of the whole weights. read: as `_read` returns them.
        """
        rows, ratios = [], []
        for place, piece in enumerate(self._rows_of_weights(read)):
            name = piece.name
            ratios.append(self._ratio(name, tf.unstack(sums[place]) if name in self.adapted else ()))
            rows.append(piece.weight - rate * self.share[name] * ratios[-1] * self.rule.direction(piece))
        return rows, tf.stack(ratios)

    def _size(self, name: str) -> int:
        size: int = self._pieces[name].shape.num_elements()
        return size

    def _rows_of_weights(self, read: Sequence[tf.Tensor]) -> list[Piece]:
        each = zip(self._pieces.items(), read, strict=True)
        return [self._piece(name, self.weights[name][own.first : own.last], clipped) for (name, own), clipped in each]


def optimizer_for(
    weights: dict[str, tf.Variable], config: OptimizerConfig, parallel: ParallelConfig, comm: Communicator
) -> Optimizer:
    """Return the optimizer of these weights: distributed if the model is in parts or the replicas shard the moments."""
    sharded = parallel.shard_optimizer and comm.replicas.size > 1
    if comm.parts.count == 1 and not sharded:
        return Optimizer(weights, config)
    return DistributedOptimizer(weights, config, comm, sharded)
