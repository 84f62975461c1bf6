"""What a kind of task consists of: its model and loss; and for examples in files encoding, scores and predictions."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from bert import heads
from bert.core.config import ModelConfig
from bert.labels import Head
from bert.model import losses
from bert.model.heads import TaskModel
from bert.model.parts import WHOLE, Parts
from bert.text.sampler import Batch
from bert.text.tokenization import Tokenizer
from tasks import inputs, metrics
from tasks.config import TaskData
from tasks.labels import Labels

AT_ONCE = 1024  # examples


class Kind(abc.ABC):
    """A kind of task, as training sees it: one objective, whose loss is a mean over the weights of a batch."""

    head: ClassVar[heads.Kind]
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

    def model(self, config: ModelConfig, seed: int, parts: Parts = WHOLE) -> TaskModel:
        """Return the model to train."""
        return TaskModel(config, seed, self.described, parts)

    @abc.abstractmethod
    def weights(self, batch: Batch) -> tf.Tensor:
        """Return the weights in the loss of what `measure` sums over, or their sum."""

    @abc.abstractmethod
    def measure(self, logits: Any, batch: Batch) -> losses.Measure:
        """Return the summed loss of a batch and the number of right answers."""

    def soft(self, logits: Any, taught: Any, batch: Batch, temperature: float) -> tf.Tensor:
        """Return the summed loss of a batch with a teacher's logits as labels, in the weights of `measure`."""
        return losses.soft_labels(logits, taught, self.weights(batch), temperature)


class StoredKind(Kind):
    """A kind of task whose examples `tasks.datasets` reads, to be written as records."""

    of_texts: ClassVar[bool] = False
    """whether an example is a text or a pair of texts, which a command line can have"""

    def __init__(self, data: TaskData, labels: Labels, names: tuple[str, ...]) -> None:
        """names: of the metrics, the one by which checkpoints are compared first."""
        self.data, self.labels, self.metrics = data, labels, names
        named = labels.names if self.head.has_classes else ()
        self.described = Head(
            kind=self.head.name, labels=named, regression=labels.regression, activation=labels.activation
        )
        self.seen = inputs.Seen()  # of what was encoded

    @property
    def length(self) -> int:
        """Tokens of the longest input."""
        return self.data.length

    @property
    def at_once(self) -> int:
        """Number of examples that are encoded at once."""
        return AT_ONCE

    @abc.abstractmethod
    def features(self) -> dict[str, dict[str, Any]]:
        """Return shape and type of each feature of a record."""

    @abc.abstractmethod
    def encode(self, examples: Sequence[Any], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
        """Return the features of all examples [n, ...]; `label` if they have labels."""


class ExampleKind(StoredKind):
    """A kind of task whose examples are predicted one by one, and scored by their labels."""

    @abc.abstractmethod
    def scores(self, logits: np.ndarray, gold: dict[str, np.ndarray]) -> metrics.Scores:
        """Return the metrics of logits [n, ...] for the features of the same examples."""

    @abc.abstractmethod
    def compare(self, examples: Sequence[Any], lines: Sequence[dict[str, Any]]) -> metrics.Scores:
        """Return the metrics of written predictions for examples with labels."""

    @abc.abstractmethod
    def predictions(
        self, examples: Sequence[Any], arrays: dict[str, np.ndarray], logits: np.ndarray
    ) -> list[dict[str, Any]]:
        """Return what is predicted for each example, as written to a file."""

    def count(self, gold: dict[str, np.ndarray]) -> int:
        """Return the number of examples with these features."""
        return len(gold["label"])
