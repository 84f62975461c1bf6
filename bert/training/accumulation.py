"""The gradients of a rank's micro-batches, added up.

Losses are sums, divided by the weights of the *whole* batch, which are known before the first micro-batch. So N
micro-batches on M ranks give the gradient of one big batch, however unevenly the predictions are spread.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from bert.hardware import graphs
from bert.model.dropout import DropoutRng, micro_batch_seed
from bert.model.traversal import Groups
from bert.text.sampler import Batch
from bert.training.communicator import Communicator
from bert.training.objective import weighted_losses
from bert.training.task import Execution, Sums, Task, flatten_measures, names_of_sums

Each = Callable[[int, int], None]  # called with the numbers of computed and of all micro-batches


def no_progress(done: int, of: int) -> None:
    """Do nothing: an `Each` for callers that show no progress."""


class GradientSum(Protocol):
    """Sums the gradients of the micro-batches: an `Accumulator` or an `overlap.Overlap`."""

    def sum(
        self, batches: Sequence[Batch], weights: Sums, step: tf.Tensor, each: Each = no_progress
    ) -> tuple[Sequence[tf.Tensor], Sums]:
        """Return the sums over the micro-batches of the gradients and of the measures.

        weights: of the objectives in the whole batch. each: called after each program that runs.
        """


class Accumulator:
    """Sum the gradients of the micro-batches in `gradients`, one variable for each weight."""

    def __init__(
        self,
        task: Task,
        execution: Execution,
        weights: dict[str, tf.Variable],
        comm: Communicator,
        seed: int,
        scale: tf.Variable,
    ) -> None:
        """weights: those that learn. seed: for the dropout masks. scale: the loss scale."""
        self.task, self.execution, self.weights, self.comm = task, execution, weights, comm
        self.seed, self.scale = seed, scale
        self.gradients = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in weights.values()]
        self._clear = graphs.function(self._clear_gradients, jit_compile=True)
        self._one = graphs.function(self._micro_batch, reduce_retracing=True)  # traced at most twice
        # With XLA, all micro-batches of one shape in a loop, even a single one: outside a loop TensorFlow folds the
        # counters of all dropout masks into constants of some hundred megabytes. Traced once per shape, because XLA
        # compiles per shape anyway and supports open shapes neither in loops nor in calls to other libraries.
        self.loop = graphs.function(self._micro_batches, jit_compile=True)

    def sum(
        self, batches: Sequence[Batch], weights: Sums, step: tf.Tensor, each: Each = no_progress
    ) -> tuple[list[tf.Variable], Sums]:
        """Return the sums of gradients and measures over this rank's micro-batches. Arguments as in `GradientSum`."""
        return self.gradients, self.add(batches, weights, step, each)

    def add(self, batches: Sequence[Batch], weights: Sums, step: tf.Tensor, each: Each = no_progress) -> Sums:
        """Set `gradients` to the sums over the micro-batches; return the sums of their measures."""
        replicas = self.comm.replicas
        places = tf.range(len(batches), dtype=tf.int64) * replicas.size + replicas.rank  # in the whole batch
        if self.execution.compile_all:
            parts = self._compiled_sums(batches, weights, step, places, each)
        else:
            parts = self._sums_one_by_one(batches, weights, step, places, each)
        return {name: tf.add_n([part[name] for part in parts]) for name in parts[0]}

    def _sums_one_by_one(
        self, batches: Sequence[Batch], weights: Sums, step: tf.Tensor, places: tf.Tensor, each: Each
    ) -> list[Sums]:
        single, parts = len(batches) == 1, list[Sums]()
        if not single:
            self._clear()
        with self.comm.sums_over_parts():
            for batch, place in zip(batches, places, strict=True):
                parts.append(self._one(batch, weights, step, place, single))
                each(len(parts), len(batches))
        return parts

    def _compiled_sums(
        self, batches: Sequence[Batch], weights: Sums, step: tf.Tensor, places: tf.Tensor, each: Each
    ) -> list[Sums]:
        self._clear()
        parts, done = [], 0
        for _, group in itertools.groupby(batches, key=shapes):
            stacked = stack(list(group))
            count = len(next(iter(stacked.values())))
            parts.append(self.loop(stacked, weights, step, places[done : done + count]))
            done += count
            each(done, len(batches))
        return parts

    def _micro_batches(self, stacked: Batch, weights: Sums, step: tf.Tensor, places: tf.Tensor) -> Sums:
        """Run `_micro_batch` in one loop for A stacked micro-batches [A, ...]; return the sums of their measures.

        places: number of each micro-batch in the whole batch, [A].
        """

        def add(number: tf.Tensor, sums: Sums) -> tuple[tf.Tensor, Sums]:
            batch = {name: values[number] for name, values in stacked.items()}
            measures = self._micro_batch(batch, weights, step, places[number], single=False)
            return number + 1, {name: sums[name] + measures[name] for name in sums}

        zeros = {name: tf.zeros([]) for name in names_of_sums(self.task)}
        return tf.while_loop(lambda number, _: number < tf.size(places), add, (0, zeros), parallel_iterations=1)[1]

    def _micro_batch(self, batch: Batch, weights: Sums, step: tf.Tensor, place: tf.Tensor, single: bool) -> Sums:
        """Add the micro-batch's gradients to `gradients`; return its measures. single: assign them instead."""
        with tf.GradientTape() as tape:
            measures, loss = self.loss(batch, weights, step, place)
        for number, gradient in enumerate(tape.gradient(loss, list(self.weights.values()))):
            self.add_gradient(number, gradient, single)
        return measures

    def loss(
        self, batch: Batch, weights: Sums, step: tf.Tensor, place: tf.Tensor, groups: Groups | None = None
    ) -> tuple[Sums, tf.Tensor]:
        """Return the measures of a micro-batch, and its share of the batch's mean loss, times the loss scale."""
        unfolded = groups is not None and self.execution.compile_all
        rng = DropoutRng(micro_batch_seed(self.seed, step, place), unfolded=unfolded)
        measures = self.task.measure(batch, self.execution.mode(rng, groups))
        means = {name: measure.loss / weights[name] for name, measure in measures.items()}
        return flatten_measures(measures), tf.add_n(weighted_losses(self.task.objectives, means)) * self.scale

    def add_gradient(self, number: int, gradient: tf.Tensor | tf.IndexedSlices | None, single: bool) -> None:
        """Add a gradient to its sum over the micro-batches. single: it is the only one; assign it instead."""
        total = self.gradients[number]
        if isinstance(gradient, tf.IndexedSlices):  # few rows of a table: do not expand them to a whole one
            if single:
                total.assign(tf.zeros_like(total))
            total.scatter_add(gradient)
        elif gradient is not None:  # None: a weight that this task does not use
            (total.assign if single else total.assign_add)(gradient)

    def _clear_gradients(self) -> None:
        for total in self.gradients:
            total.assign(tf.zeros_like(total))


def shapes(batch: Batch) -> list[tuple[int, ...]]:
    """Return the shape of each feature of a micro-batch."""
    return [tuple(values.shape) for values in batch.values()]


def stack(batches: Sequence[Batch]) -> Batch:
    """Stack A micro-batches of equal shapes to one [A, ...], on the CPU: a GPU then needs one copy instead of A."""
    with tf.device("CPU:0"):
        return {name: tf.stack([batch[name] for batch in batches]) for name in batches[0]}
