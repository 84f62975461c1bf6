"""What a kind of task whose examples are in files has besides its model: encoding, scores and predictions."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bert.labels import Head
from bert.text.tokenization import Tokenizer
from tasks import inputs, metrics
from tasks.config import TaskData
from tasks.labels import Labels
from tasks.task_type import TaskType

AT_ONCE = 1024  # examples


class StoredKind(TaskType):
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
        self.seen = inputs.EncodingCounts()  # of what was encoded

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
