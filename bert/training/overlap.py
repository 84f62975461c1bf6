"""Gradients that travel while others are still computed.

In the last micro-batch, the backward pass is divided where it completes a bucket (segments.py). A bucket's collective
starts there, while the gradients of earlier layers are computed.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from bert.hardware import graphs
from bert.model.traversal import Groups
from bert.text.sampler import Batch
from bert.training.accumulation import Accumulator, Each, no_progress
from bert.training.buckets import first_layers
from bert.training.reduction import ByBuckets, Tensors
from bert.training.segments import Boundaries, Gradients, Programs, Store
from bert.training.task import Sums

Loss = Callable[[Groups], tuple[Sums, tf.Tensor]]  # of a micro-batch: its measures, and the loss


class Overlap:
    """Sum the gradients over the micro-batches and over the ranks at the same time."""

    def __init__(self, accumulator: Accumulator, reducer: ByBuckets) -> None:
        self.accumulator, self.reducer, self.comm = accumulator, reducer, accumulator.comm
        self._weights = accumulator.weights
        self._first_layers = first_layers(list(self._weights), reducer.buckets)  # of the groups of layers
        compiled = accumulator.execution.compile_all
        self._backward = self._programs_backward if compiled else self._tape_backward
        self._last = graphs.function(self._last_micro_batch, reduce_retracing=not compiled)

    def sum(
        self, batches: Sequence[Batch], weights: Sums, step: tf.Tensor, each: Each = no_progress
    ) -> tuple[list[tf.Tensor], Sums]:
        """Return the gradients summed over micro-batches and ranks, and the sums of this rank's measures."""
        *before, last = batches
        sums = self.accumulator.add(before, weights, step, each) if before else {}
        replicas = self.comm.replicas
        place = tf.constant(len(before) * replicas.size + replicas.rank, tf.int64)
        with self.comm.collective():
            gradients, measures = self._last(last, weights, step, place, not before)
        return gradients, {name: sums.get(name, 0.0) + value for name, value in measures.items()}

    def reduce(self, gradients: Tensors, scalars: Tensors) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return the gradients, which are already summed, and the sums of the scalars over all ranks."""
        return list(gradients), self.comm.all_reduce(scalars)

    def _last_micro_batch(
        self, batch: Batch, weights: Sums, step: tf.Tensor, place: tf.Tensor, single: bool
    ) -> tuple[list[tf.Tensor], Sums]:
        """Return the gradients summed over all micro-batches and ranks, and this micro-batch's measures.

        A bucket's collective starts when all its gradients are computed.
        """
        reduced, waiting = dict[int, tf.Tensor](), list(enumerate(self.reducer.buckets))
        stored: dict[int, tf.Tensor] = {}
        places = {name: number for number, name in enumerate(self._weights)}

        def store(gradients: Gradients) -> list[tf.Tensor]:
            read = {}
            for name, gradient in gradients.items():
                place = places[name]
                self.accumulator.add_gradient(place, gradient, single)
                # Read from the variable: TensorFlow would merge this addition with the backward pass's additions, in
                # another order, and the bits would not be those without overlap.
                read[place] = self.accumulator.gradients[place].read_value()
            stored.update(read)
            while waiting and all(place in stored for place in waiting[0][1]):
                number, bucket = waiting.pop(0)
                sums = self.reducer.sum_in_graph([stored[place] for place in bucket], number)
                reduced.update(zip(bucket, sums, strict=True))
            return list(read.values())

        measures = self._backward(lambda groups: self.accumulator.loss(batch, weights, step, place, groups), store)
        return [reduced[place] for place in range(len(places))], measures

    def _tape_backward(self, loss: Loss, store: Store) -> Sums:
        """Pass the gradients of the loss to `store`, segment by segment; return the measures."""
        with tf.GradientTape(persistent=True) as tape:
            boundaries = Boundaries(tape)
            measures, total = loss(Groups(self._first_layers, lambda function, *x: function(*x), boundaries.add))
        segments = boundaries.segments(total, list(self._weights), self._first_layers)
        boundaries.backward(segments, self._weights, store)
        return measures

    def _programs_backward(self, loss: Loss, store: Store) -> Sums:
        """Do the same as `_tape_backward`, with segments that XLA compiles."""
        programs = Programs(self._weights, self._first_layers)
        last: list[tf.Tensor] = []

        def run(function: Callable[..., tf.Tensor], *x: tf.Tensor) -> tf.Tensor:
            last[:] = [programs.run(function, *x)]
            return last[0]

        groups = Groups(self._first_layers, run, recomputed=True)
        loss(groups)  # only the layers: nothing reads what its heads compute, and TensorFlow drops it
        measures = programs.run_heads(lambda x: loss(groups._replace(last=x)), *last)
        programs.backward(store)
        return measures
