"""One update: accumulate the gradients of the micro-batches, reduce once over the ranks, clip, apply.

The two compute-bound parts are `tf.function`s that XLA can compile as a whole, the loop over micro-batches included
(accumulation.py). The collectives run between them (reduction.py). With `parallel.overlap` the last micro-batch is a
program of its own, in which the gradients of the last layers travel while those of the first ones are still computed
(overlap.py).
"""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from bert.core import rows
from bert.core.config import ParallelConfig, PrecisionConfig, RunConfig
from bert.model.added import has_terms
from bert.model.dropout import DropoutRng
from bert.text.sampler import Batch
from bert.training.accumulation import Accumulator, Each, GradientSum, no_progress
from bert.training.buckets import of_weights
from bert.training.communicator import Communicator
from bert.training.division import State, divided_weights
from bert.training.evaluation import Evaluation, sum_over_ranks
from bert.training.guard import UpdateGuard
from bert.training.objective import mean_measures, weighted_losses
from bert.training.optimizer import Optimizer
from bert.training.reduction import ByBuckets, Reducer, Sharded, Together
from bert.training.task import Execution, Sums, Task

UNDIVIDED = ParallelConfig()
OVERLAP = "bert.training.overlap:Overlap"  # what adds up gradients and sums them over the ranks at the same time
NO_VARIABLES: State = {}


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
        frozen: State = NO_VARIABLES,
    ) -> None:
        """frozen: weights of the task that the optimizer lacks, because they do not change."""
        self.task, self.optimizer, self.comm, self.replicas = task, optimizer, comm, comm.replicas
        tf.config.experimental.enable_tensor_float_32_execution(precision.compute == "tf32")  # TensorFlow's default: on
        scaled = precision.compute == "float16" or precision.compress
        self.guard = UpdateGuard(scaled, run.spike_factor, skip_spikes=run.on_spike != "warn")
        self.seconds = tf.Variable(0.0, name="run/seconds", trainable=False, dtype=tf.float64)
        # Updates whose samples were left out by rollbacks: the sample order is ahead of the step by this many updates.
        self.sample_offset = tf.Variable(0, name="run/sample_offset", trainable=False, dtype=tf.int64)
        progress = {"run/seconds": self.seconds, "run/sample_offset": self.sample_offset}
        weights = divided_weights(optimizer.weights | frozen, comm)
        self.state: State = weights | optimizer.slots | self.guard.slots | progress
        execution, buckets = Execution.of(precision, comm.parts), of_weights(optimizer.weights, parallel)
        self.accumulator = Accumulator(task, execution, optimizer.weights, comm, run.seed, self.guard.loss_scale.scale)
        by_buckets = (Sharded if optimizer.sharded else ByBuckets)(comm, precision.compress, buckets)
        is_whole = len(buckets) == 1 and comm.parts.count == 1 and not optimizer.sharded
        self.gradients: GradientSum = self.accumulator
        self._reducer: Reducer = Together(comm, precision.compress) if is_whole else by_buckets
        if parallel.overlap and self.replicas.size > 1:
            self.gradients = self._reducer = rows.load(OVERLAP)(self.accumulator, by_buckets)
        divided = comm.parts.count > 1
        self._terms = [place for place, name in enumerate(optimizer.weights) if divided and has_terms(name)]
        self._whole = task.whole_batch(execution, comm, run.seed)
        self.apply = optimizer.updater(self.guard, buckets)
        self._divisors = task.divisors
        self._clip_norm, self._next_clip_norm = optimizer.clip_norm, tf.Variable(optimizer.clip_norm, trainable=False)
        if self._divisors:
            optimizer.clip_norm = self._next_clip_norm
        self._evaluation = Evaluation(task.scored, execution, comm)
        self._predict = execution.function(lambda batch: task.predict(batch, execution.mode(DropoutRng(None))))

    def update(
        self,
        step: int,
        batches: Sequence[Batch],
        rate: float,
        *,
        stop: bool = False,
        written: bool = False,
        seconds: float = 0.0,
        before_change: Callable[[], None] = lambda: None,
        lap: Callable[[str], None] = lambda kind: None,
        each: Each = no_progress,
    ) -> dict[str, float]:
        """Make update number `step`; return its measures, and as "stop" and "written" how many ranks gave these flags.

        stop: this rank was asked to stop. written: this rank has written its pieces of a checkpoint. seconds: time to
        add to the run clock (rank 0's value counts). before_change: called before a variable of `state` changes. lap:
        called with "compute" or "communication", the kind of the time since its last call. each: called after each
        micro-batch, or after each program for several of them, with the numbers of computed and of all micro-batches.
        """
        weights = sum_over_ranks([self.task.weights(batch) for batch in batches], self.task.names, self.comm)
        lap("communication")
        if self._whole:
            batches = self._whole.complete(batches, tf.constant(step, tf.int64), lap)
        gradients, measures = self.gradients.sum(batches, self._divided_by(weights), tf.constant(step, tf.int64), each)
        flags = {"stop": float(stop), "written": float(written), "seconds": seconds if self.comm.rank == 0 else 0.0}
        scalars = self._own(measures) | {name: tf.constant(value) for name, value in flags.items()}
        next(iter(scalars.values())).numpy()  # wait for what a GPU still computes
        lap("compute")
        gradients, sums = self._reducer.reduce(gradients, list(scalars.values()))
        gradients = self._added_up(gradients)
        totals = dict(zip(scalars, sums, strict=True))
        lap("communication")
        by_objective = {name: totals[f"{name}_loss"] / weights[name] for name in self.task.names}
        loss = tf.add_n(weighted_losses(self.task.objectives, by_objective))
        before_change()
        applied = self.apply(gradients, loss, tf.constant(rate, tf.float32))
        self.seconds.assign_add(tf.cast(totals["seconds"], tf.float64))
        measured = {name: float(value) for name, value in applied.items()}
        measured |= {name: float(totals[name]) for name in ("stop", "written")}
        lap("compute")
        return mean_measures(self.task.objectives, totals, weights) | measured

    def _divided_by(self, weights: Sums) -> Sums:
        """Return what to divide the summed loss of each objective by. weights: of the update's samples.

        If the only objective is divided by another number than its weight, the norm that gradients are clipped at is
        scaled by weight / number. So an update is clipped exactly if the gradient of the mean over its own samples
        would be. Otherwise updates with large weights would be clipped more than others.
        """
        divisors = {name: tf.constant(value, tf.float32) for name, value in self._divisors.items()}
        for name, value in divisors.items() if len(weights) == 1 else ():
            self._next_clip_norm.assign(self._clip_norm * weights[name] / value)
        return weights | divisors

    def _added_up(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the gradients. If each part of the model has only a term of a gradient, sum it over the parts."""
        whole = list(gradients)
        if self._terms:
            sums = self.comm.group.all_reduce([whole[place] for place in self._terms])
            for place, value in zip(self._terms, sums, strict=True):
                whole[place] = value
        return whole

    def _own(self, measures: Sums) -> Sums:
        """Return this rank's terms of the measures, sorted by name.

        All parts of a replica have the same measures, so only the first part adds them.
        """
        is_first = self.comm.group.rank == 0
        return {name: measures[name] if is_first else tf.zeros([]) for name in sorted(measures)}

    def evaluate(self, batches: Mapping[str, Sequence[Batch]]) -> dict[str, float]:
        """Return the figures over the batches of all ranks. batches: by source (see `Evaluation.of_all_ranks`)."""
        return self._evaluation.of_all_ranks(batches)

    def predict(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the outputs of the task's `predict` for a batch, without dropout. All parts of a model call this."""
        with self.comm.sums_over_parts():
            outputs: dict[str, tf.Tensor] = self._predict(batch)
            return outputs
