"""Losses that depend on all samples of an update together, such as a contrastive one, without all in memory at once.

Gradient caching (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup"): a first
pass computes the outputs of all micro-batches, without gradients. They are gathered over the ranks, and the loss of the
whole batch and its gradient by the outputs follow. The second pass is the usual one over the micro-batches. There a
micro-batch has the loss sum(outputs * gradient), whose gradient by the weights is that of the whole loss. Dropout masks
are functions of step and micro-batch, so both passes have the same.

B samples of a micro-batch, L of a rank, N of the whole batch.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from bert.hardware import graphs
from bert.model.dropout import DropoutRng, micro_batch_seed
from bert.model.encoder import Mode
from bert.model.losses import Measure
from bert.text.sampler import Batch
from bert.training.communicator import Communicator
from bert.training.task import Execution

Losses = Callable[[tf.Tensor, Batch], tuple[tf.Tensor, tf.Tensor]]  # as WholeBatchTask has it
GRADIENT, LOSS, CORRECT = "whole/gradient", "whole/loss", "whole/correct"  # features that the second pass has


class WholeBatchTask(Protocol):
    """What a task also has if its loss depends on all samples of an update together.

    Its method `measure` returns what the function `measure` returns.
    """

    def of_all_samples(self, batch: Batch) -> Batch:
        """Return what `losses` needs of a batch beside its outputs, by name [B, ...], float32."""

    def outputs(self, batch: Batch, mode: Mode) -> tf.Tensor:
        """Return the outputs of a batch [B, ...], float32."""

    def losses(self, outputs: tf.Tensor, features: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Return each sample's part of the loss, and its right answers, both [N].

        outputs, features: of all samples of an update, in any order.
        """


class WholeBatch:
    """Computes what a micro-batch must know of the others."""

    def __init__(self, task: WholeBatchTask, execution: Execution, comm: Communicator, seed: int) -> None:
        """seed: of the dropout masks, as the second pass has it."""
        self.task, self.execution, self.comm, self.seed = task, execution, comm, seed
        self._outputs = execution.function(self._outputs_of)
        self._gradients = graphs.function(self._gradients_of, reduce_retracing=True)

    def complete(
        self, batches: Sequence[Batch], step: tf.Tensor, lap: Callable[[str], None] = lambda kind: None
    ) -> list[Batch]:
        """Return this rank's micro-batches with the gradient by their outputs and their part of loss and right answers.

        A single micro-batch on a single rank is the whole batch, and needs nothing. All ranks call it. lap: as in
        `Step.update`.
        """
        replicas = self.comm.replicas
        if len(batches) * replicas.size == 1:
            return list(batches)
        outputs = []
        with self.comm.sums_over_parts():
            for number, batch in enumerate(batches):
                place = tf.constant(number * replicas.size + replicas.rank, tf.int64)
                outputs.append(self._outputs(batch, step, place))
        features = [self.task.of_all_samples(batch) for batch in batches]
        names = list(features[0])
        own = [tf.concat(outputs, axis=0), *(tf.concat([each[name] for each in features], axis=0) for name in names)]
        size = int(own[0].shape[0])
        lap("compute")
        every, *of_all = replicas.all_gather(own)  # the rows of the ranks follow each other
        lap("communication")
        first = tf.constant(replicas.rank * size)
        named = dict(zip(names, of_all, strict=True))
        parts = self._gradients(every, named, first, tf.constant(size))
        sizes = [int(part.shape[0]) for part in outputs]
        divided = zip(*(tf.split(part, sizes) for part in parts), strict=True)
        added = (GRADIENT, LOSS, CORRECT)
        return [batch | dict(zip(added, part, strict=True)) for batch, part in zip(batches, divided, strict=True)]

    def _outputs_of(self, batch: Batch, step: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        rng = DropoutRng(micro_batch_seed(self.seed, step, place), unfolded=self.execution.compile_all)
        return self.task.outputs(batch, self.execution.mode(rng))

    def _gradients_of(
        self, outputs: tf.Tensor, features: Batch, first: tf.Tensor, size: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the gradient of the summed loss by outputs [N, ...], and loss and right answers; of this rank's rows.

        Each rank computes the loss of the whole batch, which is cheap beside the passes.
        """
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            losses, correct = self.task.losses(outputs, features)
            total = tf.reduce_sum(losses)
        gradient = tape.gradient(total, outputs)
        rows = slice(first, first + size)
        return gradient[rows], losses[rows], correct[rows]


def measure(losses: Losses, of_all_samples: Callable[[Batch], Batch], outputs: tf.Tensor, batch: Batch) -> Measure:
    """Return the summed loss of a micro-batch with these outputs, and the number of its right answers.

    losses, of_all_samples: methods of the task. If `WholeBatch.complete` made the batch, the gradient is the
    micro-batch's part of the gradient of the whole batch's loss. Otherwise this batch is the whole batch.
    """
    if GRADIENT not in batch:
        each, correct = losses(outputs, of_all_samples(batch))
        return Measure(tf.reduce_sum(each), tf.reduce_sum(correct))
    product = tf.reduce_sum(outputs * batch[GRADIENT])
    return Measure(
        tf.reduce_sum(batch[LOSS]) + product - tf.stop_gradient(product),  # its value is the loss
        tf.reduce_sum(batch[CORRECT]),
    )
