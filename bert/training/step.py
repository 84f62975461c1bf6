"""One update: accumulate the gradients of the micro-batches, reduce once over the ranks, clip, apply.

The two compute-bound parts are `tf.function`s that XLA can compile as a whole, the loop over micro-batches included.
The collectives run between them. With `parallel.overlap` the last micro-batch is a program of its own, in which the
gradients of the last layers travel while those of the first ones are still computed.

Losses are sums, divided by the weights of the *whole* batch, which are known before the first micro-batch. So N
micro-batches on M ranks give the gradient of one big batch, however unevenly the predictions are spread.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from bert.config import ParallelConfig, PrecisionConfig, RunConfig
from bert.hardware import graphs
from bert.inputs.sampler import Batch
from bert.model import fused_ops
from bert.model.dropout import DropoutRng, micro_batch_seed
from bert.model.encoder import Groups, Mode
from bert.model.losses import Measure
from bert.training.buckets import bucket_by_bucket, buckets, first_layers
from bert.training.distributed import Communicator
from bert.training.distributed_optimizer import DistributedOptimizer
from bert.training.division import State, divided_weights
from bert.training.guard import UpdateGuard
from bert.training.optimizer import Optimizer
from bert.training.overlap import Boundaries, Gradients, Programs, Store

UNDIVIDED = ParallelConfig()
NOTHING: State = {}
Loss = Callable[[Groups], tuple[dict[str, tf.Tensor], tf.Tensor]]  # of a micro-batch: its measures, and the loss


class Task(Protocol):
    """A module to train, and the names of its objectives.

    A task that is scored on a development set also has `predict(batch, mode)`, which returns its outputs by name. One
    whose predictions are numbers has `counts_correct` = False: no accuracy is logged. One with objectives whose labels
    are 0 and 1 has `two_classes`, the feature with the labels of each; they have no figures where all are the same.
    """

    module: tf.Module
    objectives: tuple[str, ...]

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the weight of each objective in the batch: the scalar that its summed loss is divided by."""

    def measure(self, batch: Batch, mode: Mode) -> dict[str, Measure]:
        """Return the summed loss and the number of correct predictions of each objective."""


class Step:
    """The compiled training and evaluation steps of a task.

    `state` holds every variable that the next update depends on, by name, for checkpoints.
    """

    def __init__(
        self,
        task: Task,
        optimizer: Optimizer,
        comm: Communicator,
        precision: PrecisionConfig,
        run: RunConfig,
        parallel: ParallelConfig = UNDIVIDED,
        frozen: State = NOTHING,
    ) -> None:
        """frozen: weights of the task that the optimizer does not have, because they do not change."""
        self.task, self.optimizer, self.comm, self.seed = task, optimizer, comm, run.seed
        self._two_classes: dict[str, str] = getattr(task, "two_classes", {})
        self.replicas, self._in_parts = comm.replicas, comm.parts.count > 1
        self.dtype = tf.float32 if precision.compute == "tf32" else tf.as_dtype(precision.compute)
        tf.config.experimental.enable_tensor_float_32_execution(precision.compute == "tf32")  # TensorFlow's default: on
        scaled = precision.compute == "float16" or precision.compress
        self.guard = UpdateGuard(scaled, run.spike_factor, skip_spikes=run.on_spike != "warn")
        self.seconds = tf.Variable(0.0, name="run/seconds", trainable=False, dtype=tf.float64)
        # Updates whose samples were left out by rollbacks: the sample order is ahead of the step by so many updates.
        self.sample_offset = tf.Variable(0, name="run/sample_offset", trainable=False, dtype=tf.int64)
        progress = {"run/seconds": self.seconds, "run/sample_offset": self.sample_offset}
        weights = optimizer.weights | frozen
        self.state: State = divided_weights(weights, comm) | optimizer.slots | self.guard.slots | progress
        self.gradients = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in optimizer.weights.values()]
        self.buckets = gradient_buckets(optimizer.weights, parallel)
        self._fp16, self._overlap = precision.compress, parallel.overlap and self.replicas.size > 1
        # XLA cannot compile sums over parts or ranks, only what lies between them.
        whole = self._compiles_all = bool(precision.xla and not self._in_parts)
        self._xla_between_sums = bool(precision.xla and self._in_parts)
        self._first_layers = first_layers(list(optimizer.weights), self.buckets)  # of groups, with overlap
        self._sharded = isinstance(optimizer, DistributedOptimizer) and optimizer.sharded
        self._clear = graphs.function(self._clear_gradients, jit_compile=True)
        # Without XLA, one micro-batch at a time: traced at most twice, however many widths the batches have.
        self._accumulate_one = graphs.function(self._micro_batch, reduce_retracing=True)
        self._accumulate_and_reduce = graphs.function(self._last_micro_batch, reduce_retracing=not whole)
        # With XLA, all micro-batches of one shape in a loop, even a single one: outside a loop TensorFlow folds the
        # counters of all dropout masks into constants of some hundred megabytes. Traced once per shape, because XLA
        # compiles per shape anyway and supports open shapes neither in loops nor in calls to other libraries.
        self._accumulate_stack = graphs.function(self._micro_batches, jit_compile=True) if whole else None
        if isinstance(optimizer, DistributedOptimizer):
            self._apply = functools.partial(optimizer.update, self.guard, self.buckets)
        else:
            self._apply = graphs.function(self._update, jit_compile=True)  # memory traffic only, which fusion saves
        if hasattr(task, "predict"):
            self._predict = graphs.function(
                lambda batch: task.predict(batch, self._mode(DropoutRng(None))),
                jit_compile=whole,
                reduce_retracing=not whole,
            )
        self._measure = graphs.function(
            lambda batch: task.measure(batch, self._mode(DropoutRng(None))),
            jit_compile=whole,
            reduce_retracing=not whole,
        )

    def _mode(self, dropout: DropoutRng, groups: Groups | None = None) -> Mode:
        return Mode(self.dtype, dropout, groups, self._xla_between_sums)

    def update(
        self,
        step: int,
        batches: Sequence[Batch],
        rate: float,
        *,
        stop: bool = False,
        written: bool = False,
        seconds: float = 0.0,
        lap: Callable[[str], None] = lambda kind: None,
    ) -> dict[str, float]:
        """Run update number `step`; return its measures, and under "stop" and "written" how many ranks said so.

        stop: this rank was asked to stop. written: it has written its pieces of a checkpoint. seconds: time to add to
        the run clock (rank 0's value is used). lap: called with "compute" or "communication", what the time since its
        last call was spent on.
        """
        weights = self._all_reduce_sums([self.task.weights(batch) for batch in batches], self.task.objectives)
        lap("communication")
        flags = {"stop": float(stop), "written": float(written), "seconds": seconds if self.comm.rank == 0 else 0.0}
        gradients, totals = self._sum_gradients(batches, weights, tf.constant(step, tf.int64), flags, lap)
        loss = tf.add_n([totals[f"{name}_loss"] / weights[name] for name in self.task.objectives])
        applied = self._apply(gradients, loss, tf.constant(rate, tf.float32))
        self.seconds.assign_add(tf.cast(totals["seconds"], tf.float64))
        measures = {name: float(value) for name, value in applied.items()}
        measures |= {name: float(totals[name]) for name in ("stop", "written")}
        lap("compute")
        return self._means(totals, weights) | measures

    def _sum_gradients(
        self,
        batches: Sequence[Batch],
        weights: dict[str, tf.Tensor],
        step: tf.Tensor,
        flags: dict[str, float],
        lap: Callable[[str], None],
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return the gradients summed over all micro-batches and ranks, and the sums of their measures and of `flags`.

        The gradients are this rank's rows if the optimizer is sharded, and times the loss scale.
        """
        if self._overlap:
            gradients, sums = self._accumulate_overlapped(batches, weights, step)
        else:
            gradients, sums = self.gradients, self._accumulate(batches, weights, step)
        names = sorted(sums)
        first_part = self.comm.group.rank == 0  # all parts of a replica have the same measures
        scalars = [sums[name] if first_part else tf.zeros([]) for name in names] + list(
            map(tf.constant, flags.values())
        )
        scalars[0].numpy()  # wait for what a GPU still computes
        lap("compute")
        if self._overlap:
            scalars = self.comm.all_reduce(scalars)
        elif self._sharded or self._in_parts or len(self.buckets) > 1:
            gradients, scalars = self._reduce_buckets(gradients), self.comm.all_reduce(scalars)
        else:
            reduced = self.comm.all_reduce([*gradients, *scalars], len(gradients) if self._fp16 else 0)
            gradients, scalars = reduced[: len(gradients)], reduced[len(gradients) :]
        lap("communication")
        return gradients, dict(zip([*names, *flags], scalars, strict=True))

    def _reduce_buckets(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sum the gradients over the ranks, one bucket after the other."""

        def reduce(_: int, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
            if self._sharded:
                return self.replicas.reduce_scatter(tensors, fp16=self._fp16)
            return self.replicas.all_reduce(tensors, len(tensors) if self._fp16 else 0)

        reduced = dict(bucket_by_bucket(self.buckets, gradients, reduce))
        return [reduced[place] for place in range(len(gradients))]

    def evaluate(self, batches: Mapping[str, Sequence[Batch]]) -> dict[str, float]:
        """Return the measures over the batches of all ranks, without dropout, and those of each source if several.

        batches: by the name of their source. All ranks have the same names; a rank may have no batch. The measures of a
        source have its name behind theirs ("mlm_accuracy/books"). An objective has none where `has_figures` is false.
        """
        suffixes = ["", *(f"/{source}" for source in batches)] if len(batches) > 1 else [""]
        parts = []
        with self._sums_within():
            for source, some in batches.items():
                for batch in some:
                    sums = self._sums(batch)
                    parts.append(sums | {f"{name}/{source}": value for name, value in sums.items()})
        objectives = self.task.objectives
        names = [*objectives, *(f"{name}_{field}" for name in objectives for field in (*Measure._fields, "ones"))]
        totals = self._all_reduce_sums(parts, [f"{name}{suffix}" for suffix in suffixes for name in names])
        measures: dict[str, float] = {}
        for suffix in suffixes:
            figures = self._figures({name: totals[f"{name}{suffix}"] for name in names})
            measures |= {f"{name}{suffix}": value for name, value in figures.items() if name != "loss" or not suffix}
        return measures

    def _sums(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the weights and measures of a batch, and how many labels of the objectives with two classes are 1."""
        ones = {f"{name}_ones": tf.reduce_sum(batch[feature]) for name, feature in self._two_classes.items()}
        return self.task.weights(batch) | _flatten(self._measure(batch)) | ones

    def _figures(self, sums: dict[str, tf.Tensor]) -> dict[str, float]:
        """Return the means of the objectives that have figures."""
        weights = {}
        for name in self.task.objectives:
            if has_figures(sums[name], sums[f"{name}_ones"] if name in self._two_classes else None):
                weights[name] = sums[name]
        return self._means(sums, weights)

    def predict(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the outputs of the task's `predict` for a batch, without dropout. All parts of a model call it."""
        with self._sums_within():
            outputs: dict[str, tf.Tensor] = self._predict(batch)
            return outputs

    def _means(self, sums: dict[str, tf.Tensor], weights: dict[str, tf.Tensor]) -> dict[str, float]:
        """Divide summed losses and correct predictions by their weights; "loss" is the sum of all mean losses."""
        means = {}
        for name, weight in weights.items():
            means[f"{name}_loss"] = float(sums[f"{name}_loss"] / weight)
            if getattr(self.task, "counts_correct", True):
                means[f"{name}_accuracy"] = float(sums[f"{name}_correct"] / weight)
        return {"loss": sum(value for name, value in means.items() if name.endswith("_loss")), **means}

    def _all_reduce_sums(self, parts: Sequence[dict[str, tf.Tensor]], names: Sequence[str]) -> dict[str, tf.Tensor]:
        """Sum the named scalars over the parts of all replicas that have them."""
        totals = [
            tf.add_n([tf.zeros([]), *(tf.cast(part[name], tf.float32) for part in parts if name in part)])
            for name in names
        ]
        return dict(zip(names, self.replicas.all_reduce(totals), strict=True))

    def _sums_within(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of a forward or backward pass, in which parts of the model are summed if it is divided."""
        return self.comm.collective() if self._in_parts else contextlib.nullcontext()

    def _accumulate(
        self, batches: Sequence[Batch], weights: dict[str, tf.Tensor], step: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Set `gradients` to the sum over the micro-batches; return the sums of their measures."""
        places = tf.range(len(batches), dtype=tf.int64) * self.replicas.size + self.replicas.rank  # in the whole batch
        single = len(batches) == 1 and not self._accumulate_stack
        if not single:
            self._clear()
        if self._accumulate_stack:
            parts, done = [], 0
            for _, group in itertools.groupby(batches, key=_shapes):
                stacked = _stack(list(group))
                count = len(next(iter(stacked.values())))
                parts.append(self._accumulate_stack(stacked, weights, step, places[done : done + count]))
                done += count
        else:
            with self._sums_within():
                parts = [
                    self._accumulate_one(batch, weights, step, place, single)
                    for batch, place in zip(batches, places, strict=True)
                ]
        return {name: tf.add_n([part[name] for part in parts]) for name in parts[0]}

    def _accumulate_overlapped(
        self, batches: Sequence[Batch], weights: dict[str, tf.Tensor], step: tf.Tensor
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return the gradients summed over the micro-batches and the ranks, and the sums of this rank's measures."""
        *before, last = batches
        sums = self._accumulate(before, weights, step) if before else {}
        place = tf.constant(len(before) * self.replicas.size + self.replicas.rank, tf.int64)
        with self.comm.collective():
            gradients, measures = self._accumulate_and_reduce(last, weights, step, place, not before)
        return gradients, {name: sums.get(name, 0.0) + value for name, value in measures.items()}

    def _last_micro_batch(
        self, batch: Batch, weights: dict[str, tf.Tensor], step: tf.Tensor, place: tf.Tensor, single: bool
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return the sums over all micro-batches and ranks of the gradients, and this micro-batch's measures.

        A bucket's collective starts when the last of its gradients is computed.
        """
        variables, reduced, waiting = self.optimizer.weights, dict[int, tf.Tensor](), list(enumerate(self.buckets))
        stored: dict[int, tf.Tensor] = {}
        places = {name: number for number, name in enumerate(variables)}

        def store(found: Gradients) -> list[tf.Tensor]:
            read = {}
            for name, gradient in found.items():
                place = places[name]
                self._add(place, gradient, single)
                # Read from the variable: TensorFlow would merge the addition into those of the backward pass, in
                # another order, and the bits would not be those without overlap.
                read[place] = self.gradients[place].read_value()
            stored.update(read)
            while waiting and all(place in stored for place in waiting[0][1]):
                number, bucket = waiting.pop(0)
                tensors, name = [stored[place] for place in bucket], f"bucket_{number}"
                sums = self.replicas.reduce_in_graph(tensors, name, fp16=self._fp16, scatter=self._sharded)
                reduced.update(zip(bucket, sums, strict=True))
            return list(read.values())

        run = self._programs_backward if self._compiles_all else self._tape_backward
        measures = run(lambda groups: self._loss(batch, weights, step, place, groups), store)
        return [reduced[place] for place in range(len(variables))], measures

    def _tape_backward(self, loss: Loss, store: Store) -> dict[str, tf.Tensor]:
        """Store the gradients of the loss, segment after segment; return its measures."""
        variables = self.optimizer.weights
        with tf.GradientTape(persistent=True) as tape:
            boundaries = Boundaries(tape)
            measures, total = loss(Groups(self._first_layers, lambda function, *x: function(*x), boundaries.add))
        boundaries.backward(boundaries.segments(total, list(variables), self._first_layers), variables, store)
        return measures

    def _programs_backward(self, loss: Loss, store: Store) -> dict[str, tf.Tensor]:
        """Do the same with segments that XLA compiles."""
        programs = Programs(self.optimizer.weights, self._first_layers)
        last: list[tf.Tensor] = []

        def run(function: Callable[..., tf.Tensor], *x: tf.Tensor) -> tf.Tensor:
            last[:] = [programs.run(function, *x)]
            return last[0]

        groups = Groups(self._first_layers, run, recomputed=True)
        loss(groups)  # only the layers: nothing reads what its heads compute, and TensorFlow drops it
        measures = programs.run_heads(lambda x: loss(groups._replace(last=x)), *last)
        programs.backward(store)
        return measures

    def _micro_batches(
        self, stacked: Batch, weights: dict[str, tf.Tensor], step: tf.Tensor, places: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Do as `_micro_batch` for A stacked micro-batches [A, ...] at `places` [A], in one loop."""

        def add(number: tf.Tensor, sums: dict[str, tf.Tensor]) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            batch = {name: values[number] for name, values in stacked.items()}
            measures = self._micro_batch(batch, weights, step, places[number], single=False)
            return number + 1, {name: sums[name] + measures[name] for name in sums}

        zeros = {f"{name}_{field}": tf.zeros([]) for name in self.task.objectives for field in Measure._fields}
        return tf.while_loop(lambda number, _: number < tf.size(places), add, (0, zeros), parallel_iterations=1)[1]

    def _micro_batch(
        self,
        batch: Batch,
        weights: dict[str, tf.Tensor],
        step: tf.Tensor,
        place: tf.Tensor,
        single: bool,
    ) -> dict[str, tf.Tensor]:
        """Add the micro-batch's gradients to `gradients`, or assign them if it is the only one; return its measures."""
        with tf.GradientTape() as tape:
            measures, loss = self._loss(batch, weights, step, place)
        for number, gradient in enumerate(tape.gradient(loss, list(self.optimizer.weights.values()))):
            self._add(number, gradient, single)
        return measures

    def _loss(
        self,
        batch: Batch,
        weights: dict[str, tf.Tensor],
        step: tf.Tensor,
        place: tf.Tensor,
        groups: Groups | None = None,
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Return the measures of a micro-batch, and its part of the batch's mean loss, times the loss scale."""
        rng = DropoutRng(micro_batch_seed(self.seed, step, place), unfolded=groups is not None and self._compiles_all)
        measures = self.task.measure(batch, self._mode(rng, groups))
        loss = tf.add_n([measure.loss / weights[name] for name, measure in measures.items()])
        return _flatten(measures), loss * self.guard.loss_scale.scale

    def _add(self, number: int, gradient: tf.Tensor | tf.IndexedSlices | None, single: bool) -> None:
        """Add a gradient to its sum over the micro-batches, or assign it if there is a single one."""
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

    def _update(self, gradients: Sequence[tf.Tensor], loss: tf.Tensor, rate: tf.Tensor) -> dict[str, tf.Tensor]:
        gradients = self.guard.loss_scale.unscale(gradients)
        norm = tf.sqrt(tf.add_n([fused_ops.sum_of_squares(gradient) for gradient in gradients]))
        apply, guard_measures = self.guard.check(loss, norm)
        optimizer_measures = self.optimizer.apply(gradients, norm, rate, apply)
        return {"gradient_norm": norm} | optimizer_measures | guard_measures


def has_figures(weight: float, ones: float | None) -> bool:
    """Return whether a loss and an accuracy can be said of samples of this weight.

    ones: how many labels are 1, if the labels are 0 and 1. Where all are the same, an accuracy is that of a constant.
    """
    return weight > 0 and (ones is None or 0 < ones < weight)


def without_figures(objective: str) -> str:
    """Return why an evaluation has no figures of an objective, and the remedy."""
    return (
        f"all pairs that were evaluated have the same label, so there are no figures of {objective}; evaluate more, or "
        "hold out more documents (python -m data.shards --held_out_fraction)"
    )


def gradient_buckets(weights: dict[str, tf.Variable], parallel: ParallelConfig) -> list[list[int]]:
    """Return the places, in `weights`, of the gradients of each bucket."""
    sizes = {name: 4 * weight.shape.num_elements() for name, weight in weights.items()}
    return buckets(sizes, parallel.bucket_bytes(sum(sizes.values())))


def _shapes(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(values.shape) for values in batch.values()]


def _stack(batches: Sequence[Batch]) -> Batch:
    """Stack A micro-batches of equal shapes into one [A, ...], on the CPU: a GPU then gets one copy instead of A."""
    with tf.device("CPU:0"):
        return {name: tf.stack([batch[name] for batch in batches]) for name in batches[0]}


def _flatten(measures: dict[str, Measure]) -> dict[str, tf.Tensor]:
    return {f"{name}_{field}": value for name, m in measures.items() for field, value in m._asdict().items()}
