"""What a kind of task consists of, as training sees it: its model and loss."""

import abc
from typing import Any, ClassVar

import tensorflow as tf

from bert import heads
from bert.core.config import ModelConfig
from bert.labels import Head
from bert.model import losses
from bert.model.heads import TaskModel
from bert.model.model_shard import UNSHARDED, Parts
from bert.text.sampler import Batch


class TaskType(abc.ABC):
    """A kind of task, as training sees it: one objective, whose loss is a mean over the weights of a batch."""

    head: ClassVar[heads.HeadSpec]
    """its row in `bert.heads.KINDS`"""
    described: Head
    """what its outputs mean"""
    metrics: tuple[str, ...]
    """scores of a development set, the one by which checkpoints are compared first"""
    sequences: int | None = None
    """number of inputs that an example has, such as its choices; None: it is one input, or several windows"""

    @property
    def objective(self) -> str:
        """Name of the objective in the measures of a run."""
        return self.head.name

    @property
    def counts_correct(self) -> bool:
        """Whether `measure` counts right answers."""
        return not self.described.regression

    @property
    @abc.abstractmethod
    def length(self) -> int:
        """Tokens of the longest input."""

    def model(self, config: ModelConfig, seed: int, parts: Parts = UNSHARDED) -> TaskModel:
        """Return the model to train."""
        return TaskModel(config, seed, self.described, parts)

    @abc.abstractmethod
    def weights(self, batch: Batch) -> tf.Tensor:
        """Return the weights of the terms that `measure` sums in the loss, or the sum of these weights."""

    @abc.abstractmethod
    def measure(self, logits: Any, batch: Batch) -> losses.Measure:
        """Return the summed loss of a batch and the number of right answers."""

    def soft(self, logits: Any, taught: Any, batch: Batch, temperature: float) -> tf.Tensor:
        """Return the summed loss of a batch with a teacher's logits as labels, with the weights of `measure`."""
        return losses.soft_labels(logits, taught, self.weights(batch), temperature)
