"""One update: accumulate the micro-batches' gradients, reduce once over the ranks, clip, apply.

The two compute-bound parts are `tf.function`s that XLA may compile whole, the loop over micro-batches with them; the
one collective stands between them.
Losses are sums, divided by the weights of the *whole* batch, known before the first micro-batch: so N micro-batches on
M ranks give the gradient of one big batch, however unevenly the predictions are spread.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from bert.config import PrecisionConfig, RunConfig
from bert.inputs.sampler import Batch
from bert.model import fused_ops
from bert.model.dropout import DropoutRng, micro_batch_seed
from bert.model.losses import Measure
from bert.training.distributed import Communicator
from bert.training.loss_scale import Guard
from bert.training.optimizer import Optimizer


class Task(Protocol):
    """What is learnt: a module and, by name, its objectives."""

    module: tf.Module
    objectives: tuple[str, ...]

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Each objective's weight in the batch, a scalar: what its summed loss is to be divided by."""

    def measure(self, batch: Batch, noise: DropoutRng, dtype: tf.DType) -> dict[str, Measure]:
        """Each objective's summed loss and right answers."""


class Step:
    """The compiled training and evaluation steps of a task; `state` is all that they depend on, by name."""

    def __init__(
        self, task: Task, optimizer: Optimizer, comm: Communicator, precision: PrecisionConfig, run: RunConfig
    ) -> None:
        self.task, self.optimizer, self.comm, self.seed = task, optimizer, comm, run.seed
        self.dtype = tf.float32 if precision.compute == "tf32" else tf.as_dtype(precision.compute)
        tf.config.experimental.enable_tensor_float_32_execution(precision.compute == "tf32")  # else it is on by default
        scaled = precision.compute == "float16" or precision.compress
        self.guard = Guard(scaled, run.spike_factor, skip_spikes=run.on_spike != "warn")
        self.seconds = tf.Variable(0.0, name="run/seconds", trainable=False, dtype=tf.float64)
        self.skipped_updates = tf.Variable(
            0, name="run/skipped_updates", trainable=False, dtype=tf.int64
        )  # updates' samples
        own = {"run/seconds": self.seconds, "run/skipped_updates": self.skipped_updates}
        self.state = optimizer.weights | optimizer.slots | self.guard.slots | own
        self.gradients = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in optimizer.weights.values()]
        self._clear = tf.function(self._no_gradients, jit_compile=True)
        # Plain, one micro-batch after another: traced twice at most, however many widths batches have.
        self._one = tf.function(self._micro_batch, reduce_retracing=True)
        # With XLA in a loop, of one micro-batch too: outside a loop TensorFlow folds the counters of all dropout masks
        # into constants, some hundred megabytes. Traced for each shape, which XLA compiles for anyway: it sees through
        # neither a loop's shapes that are left open nor those of a call to another library.
        self._many = tf.function(self._micro_batches, jit_compile=True) if precision.xla else None
        self._half = len(self.gradients) if precision.compress else 0
        self._apply = tf.function(self._update, jit_compile=True)  # nothing but memory traffic, which fusion saves
        self._measure = tf.function(
            lambda batch: task.measure(batch, DropoutRng(None), self.dtype),
            jit_compile=precision.xla,
            reduce_retracing=not precision.xla,
        )

    def update(
        self,
        step: int,
        batches: Sequence[Batch],
        rate: float,
        stop: bool = False,
        seconds: float = 0.0,
        lap: Callable[[str], None] = lambda kind: None,
    ) -> dict[str, float]:
        """Runs update number `step`; returns its measures, and under "stop" how many ranks were asked to stop.

        seconds: what the run's clock is to be moved on by; it is rank 0's word that counts. lap: called with what the
        time since its last call went to, "compute" or "communication".
        """
        weights = self._sum([self.task.weights(batch) for batch in batches], self.task.objectives)
        lap("communication")
        sums = self._accumulate(batches, weights, tf.constant(step, tf.int64))
        names = sorted(sums)
        totals = [sums[name] for name in names]
        own = [float(stop), seconds if self.comm.rank == 0 else 0.0]
        totals[0].numpy()  # waits for what a GPU still computes
        lap("compute")
        reduced = self.comm.all_reduce([*self.gradients, *totals, *map(tf.constant, own)], self._half)
        lap("communication")
        measured = dict(zip([*names, "stop", "seconds"], reduced[len(self.gradients) :], strict=True))
        loss = tf.add_n([measured[f"{name}_loss"] / weights[name] for name in self.task.objectives])
        applied = self._apply(reduced[: len(self.gradients)], loss, tf.constant(rate, tf.float32))
        self.seconds.assign_add(tf.cast(measured["seconds"], tf.float64))
        found = {name: float(value) for name, value in applied.items()} | {"stop": float(measured["stop"])}
        lap("compute")
        return _means(measured, weights) | found

    def evaluate(self, batches: Sequence[Batch]) -> dict[str, float]:
        """The measures over all ranks' batches, without dropout; a rank may have none."""
        parts = [self.task.weights(batch) | _flat(self._measure(batch)) for batch in batches]
        objectives = self.task.objectives
        totals = self._sum(
            parts, [*objectives, *(f"{name}_{field}" for name in objectives for field in Measure._fields)]
        )
        return _means(totals, {name: totals[name] for name in objectives})

    def _sum(self, parts: Sequence[dict[str, tf.Tensor]], names: Sequence[str]) -> dict[str, tf.Tensor]:
        """The parts of all ranks added up, by name."""
        totals = [tf.add_n([tf.zeros([]), *(tf.cast(part[name], tf.float32) for part in parts)]) for name in names]
        return dict(zip(names, self.comm.all_reduce(totals), strict=True))

    def _accumulate(
        self, batches: Sequence[Batch], weights: dict[str, tf.Tensor], step: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Sets `gradients` to the sums of the micro-batches'; returns the sums of their measures."""
        places = tf.range(len(batches), dtype=tf.int64) * self.comm.size + self.comm.rank
        alone = len(batches) == 1 and not self._many
        if not alone:
            self._clear()
        if self._many:
            sums, done = [], 0
            for _, group in itertools.groupby(batches, key=_shapes):
                stacked = _stack(list(group))
                count = len(next(iter(stacked.values())))
                sums.append(self._many(stacked, weights, step, places[done : done + count]))
                done += count
        else:
            sums = [self._one(batch, weights, step, place, alone) for batch, place in zip(batches, places, strict=True)]
        return {name: tf.add_n([part[name] for part in sums]) for name in sums[0]}

    def _micro_batches(
        self, stacked: Batch, weights: dict[str, tf.Tensor], step: tf.Tensor, places: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """As `_micro_batch`, of A micro-batches [A, ...] at `places` [A], one after another in one program."""

        def add(number: tf.Tensor, sums: dict[str, tf.Tensor]) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            batch = {name: values[number] for name, values in stacked.items()}
            found = self._micro_batch(batch, weights, step, places[number], alone=False)
            return number + 1, {name: sums[name] + found[name] for name in sums}

        none = {f"{name}_{field}": tf.zeros([]) for name in self.task.objectives for field in Measure._fields}
        return tf.while_loop(lambda number, _: number < tf.size(places), add, (0, none), parallel_iterations=1)[1]

    def _micro_batch(
        self, batch: Batch, weights: dict[str, tf.Tensor], step: tf.Tensor, place: tf.Tensor, alone: bool
    ) -> dict[str, tf.Tensor]:
        """Adds its gradients to `gradients`, or puts them there if it is alone; returns its measures."""
        with tf.GradientTape() as tape:
            noise = DropoutRng(micro_batch_seed(self.seed, step, place))
            measures = self.task.measure(batch, noise, self.dtype)
            loss = tf.add_n([measure.loss / weights[name] for name, measure in measures.items()])
            scaled = loss * self.guard.scale
        gradients = tape.gradient(scaled, list(self.optimizer.weights.values()))
        for total, gradient in zip(self.gradients, gradients, strict=True):
            if isinstance(gradient, tf.IndexedSlices):  # few rows of a table: not made as large as that first
                if alone:
                    total.assign(tf.zeros_like(total))
                total.scatter_add(gradient)
            elif gradient is not None:  # else a weight that this task does not use
                (total.assign if alone else total.assign_add)(gradient)
        return _flat(measures)

    def _no_gradients(self) -> None:
        for total in self.gradients:
            total.assign(tf.zeros_like(total))

    def _update(self, gradients: Sequence[tf.Tensor], loss: tf.Tensor, rate: tf.Tensor) -> dict[str, tf.Tensor]:
        if self.guard.scaled:
            whole = 1.0 / self.guard.scale
            gradients = [gradient * whole for gradient in gradients]
        norm = tf.sqrt(tf.add_n([fused_ops.sum_of_squares(gradient) for gradient in gradients]))
        go, judged = self.guard.judge(loss, norm)
        applied = self.optimizer.apply(gradients, norm, rate, go)
        return {"gradient_norm": norm} | applied | judged


def _shapes(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(values.shape) for values in batch.values()]


def _stack(batches: Sequence[Batch]) -> Batch:
    """A micro-batches of like shapes as one [A, ...], on the CPU: so a GPU gets one copy and not A."""
    with tf.device("CPU:0"):
        return {name: tf.stack([batch[name] for batch in batches]) for name in batches[0]}


def _flat(measures: dict[str, Measure]) -> dict[str, tf.Tensor]:
    return {f"{name}_{field}": value for name, m in measures.items() for field, value in m._asdict().items()}


def _means(sums: dict[str, tf.Tensor], weights: dict[str, tf.Tensor]) -> dict[str, float]:
    found = {}
    for name, weight in weights.items():
        found[f"{name}_loss"] = float(sums[f"{name}_loss"] / weight)
        found[f"{name}_accuracy"] = float(sums[f"{name}_correct"] / weight)
    return {"loss": sum(value for name, value in found.items() if name.endswith("_loss")), **found}
