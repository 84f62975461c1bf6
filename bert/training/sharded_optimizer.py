"""The optimizer with its moments and its update divided over the ranks (Rajbhandari et al. 2020, ZeRO, stage 1).

Each rank has some rows of every variable (`division.rows`): it receives the sums of their gradients, holds their
moments, and computes their new values, which all ranks then gather. Norms of whole variables are sums over the ranks,
so that clipping and LAMB's trust ratios are those of the undivided optimizer, within rounding.
"""

from collections.abc import Sequence

import tensorflow as tf

from bert.config import OptimizerConfig
from bert.model.fused_ops import sum_of_squares
from bert.training.buckets import Buckets, bucket_by_bucket
from bert.training.distributed import Communicator
from bert.training.division import DividedVariable, State
from bert.training.guard import UpdateGuard
from bert.training.optimizer import Optimizer, trust_ratio_of_squares


class ShardedOptimizer(Optimizer):
    """Own this rank's rows of the moments, and apply the update together with the other ranks."""

    def __init__(self, weights: dict[str, tf.Variable], config: OptimizerConfig, comm: Communicator) -> None:
        self._comm = comm
        self._divided: dict[str, DividedVariable] = {}
        super().__init__(weights, config)
        self._norm = tf.function(self._sum_squares, jit_compile=True)
        self._moments = tf.function(self._update_rows_of_moments, jit_compile=True)
        self._rows = tf.function(self._new_rows, jit_compile=True)

    def _make_slot(self, kind: str, name: str, weight: tf.Variable) -> tf.Variable:
        slot = DividedVariable(f"{kind}/{name}", weight.shape, self._comm)
        self._divided[slot.name] = slot
        return slot.local

    @property
    def slots(self) -> State:
        return self._divided | self.counts

    def update(
        self, guard: UpdateGuard, divided: Buckets, gradients: Sequence[tf.Tensor], loss: tf.Tensor, rate: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Update every weight if the guard lets the update pass; return its measures and the optimizer's.

        divided: the weights that are gathered in one collective. gradients: this rank's rows of the summed gradients,
        times the loss scale. All ranks must call it.
        """
        [squares] = self._comm.all_reduce([self._norm(guard, gradients)])
        norm, go, of_guard, squares = self._moments(guard, gradients, loss, squares)
        if self.adapted:
            [squares] = self._comm.all_reduce([squares])
        rows, ratios = self._rows(rate, squares)
        measures = {"gradient_norm": norm} | self._summary(ratios if bool(go) else tf.zeros_like(ratios)) | of_guard
        if bool(go):
            weights = list(self.weights.values())
            for place, whole in bucket_by_bucket(divided, rows, lambda _, tensors: self._comm.all_gather(tensors)):
                weights[place].assign(whole)
        return measures

    def _sum_squares(self, guard: UpdateGuard, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.add_n([sum_of_squares(gradient) for gradient in guard.loss_scale.unscale(gradients)])

    def _update_rows_of_moments(
        self, guard: UpdateGuard, gradients: Sequence[tf.Tensor], loss: tf.Tensor, squares: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor], tf.Tensor]:
        """Return the gradient norm, whether to update, the guard's measures, and squares [number of weights, 2].

        squares: the sum of the squares of all gradients. Those returned are sums over this rank's rows of each weight
        and of its direction.
        """
        gradients, norm = guard.loss_scale.unscale(gradients), tf.sqrt(squares)
        go, measures = guard.check(loss, norm)
        scale = self.clip_norm / tf.maximum(norm, self.clip_norm)
        tf.cond(go, lambda: self._update_moments(gradients, scale), lambda: None)
        pairs = [(rows, self._direction(name, rows)) for name, rows in self._weight_rows().items()]
        return norm, go, measures, tf.stack([[sum_of_squares(w), sum_of_squares(d)] for w, d in pairs])

    def _new_rows(self, rate: tf.Tensor, squares: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Return this rank's rows of the new weights, and the trust ratios; squares: as above, of whole weights."""
        rows, ratios = [], []
        for place, (name, weight) in enumerate(self._weight_rows().items()):
            adapted = name in self.adapted
            ratios.append(trust_ratio_of_squares(*tf.unstack(squares[place])) if adapted else tf.constant(1.0))
            rows.append(weight - rate * self.share[name] * ratios[-1] * self._direction(name, weight))
        return rows, tf.stack(ratios)

    def _weight_rows(self) -> dict[str, tf.Tensor]:
        slots = [self._divided[f"adam_m/{name}"] for name in self.weights]
        return {name: w[s.first : s.last] for (name, w), s in zip(self.weights.items(), slots, strict=True)}
