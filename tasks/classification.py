"""Classification and regression of a text or of a pair of texts: one output per sequence, from the state of [CLS].

B sequences, S positions, C classes; regression has one output, the number itself.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from bert.core.errors import InputError, UsageError
from bert.heads import CLASSIFIER
from bert.labels import SIGMOID
from bert.model import losses
from bert.text.sampler import Batch
from tasks import glue, metrics
from tasks.config import TaskData
from tasks.examples import TextExample
from tasks.labels import Labels
from tasks.texts import OfTexts


class Classification(OfTexts):
    """What a run on classified texts, or on texts with a number, consists of."""

    head = CLASSIFIER

    def __init__(self, data: TaskData, labels: Labels, names: tuple[str, ...]) -> None:
        """data, labels, names: as in `StoredKind`.

        If `data` names positive classes, the metrics are their micro F1 and the accuracy, instead of `names`.
        """
        super().__init__(data, labels, ("micro_f1", "accuracy") if data.positive else names)
        self.positive = tuple(map(self._positive, data.positive))  # classes of micro_f1
        self.one = labels.names.index(glue.POSITIVE) if glue.POSITIVE in labels.names else 1  # class of f1

    def _positive(self, name: str) -> int:
        if name not in self.labels.names:
            raise UsageError(f"--data.positive {name!r} is not one of the classes: {', '.join(self.labels.names)}")
        return self.labels.names.index(name)

    @property
    def label_feature(self) -> dict[str, Any]:
        """Shape and type of the label of a record."""
        return {"shape": [1], "dtype": "float32" if self.labels.regression else "int64"}

    def expected(self, examples: Sequence[TextExample]) -> np.ndarray | None:
        """Return the class or the number of each example [n, 1], or None if they have none."""
        return None if examples[0].label is None else self.labels.numbers(examples)[:, None]

    def measure(self, logits: tf.Tensor, batch: Batch) -> losses.Measure:
        """Return the summed loss of a batch and the number of right answers."""
        labels, weights = batch["label"][:, 0], self.weights(batch)
        if self.labels.regression:
            error = logits[:, 0] - labels
            return losses.Measure(tf.reduce_sum(weights * error**2), tf.zeros([]))
        return losses.classification(logits, tf.zeros(self.labels.outputs), labels, weights)

    def weights(self, batch: Batch) -> tf.Tensor:
        """Return the weight of each example in the loss [B]."""
        labels = batch["label"][:, 0]
        weights = tf.ones_like(labels, tf.float32)
        if self.labels.weights is not None:
            weights = tf.gather(tf.constant(self.labels.weights, tf.float32), labels)
        return weights * self.share(batch)[:, 0] if self.in_windows else weights

    def scores(self, logits: np.ndarray, gold: dict[str, np.ndarray]) -> metrics.Scores:
        """Return the metrics of logits [n, C] for the features of the same examples or windows."""
        expected, logits = self.label_of_text(gold)[:, 0], self.of_text(gold, logits)
        predicted = self._numbers(logits) if self.labels.regression else metrics.predicted_classes(logits)
        return self._scores(expected, predicted)

    def compare(self, examples: Sequence[TextExample], lines: Sequence[dict[str, Any]]) -> metrics.Scores:
        """Return the metrics of written predictions for examples with labels."""
        expected = self.labels.numbers(examples)
        if self.labels.regression:
            return self._scores(expected, [number(line) for line in lines])
        predicted = [self.labels.index(str(line.get("label")), str(line["id"])) for line in lines]
        return self._scores(expected, predicted)

    def _scores(self, expected: np.ndarray, predicted: ArrayLike) -> metrics.Scores:
        classes = self.positive or None
        return metrics.scores(self.metrics, expected, predicted, positive=self.one, classes=classes)

    def _numbers(self, logits: np.ndarray) -> np.ndarray:
        """Return the numbers [n] of logits [n, 1]: the logits, or their sigmoid."""
        x = logits[:, 0].astype(np.float64)
        return np.exp(-np.logaddexp(0, -x)) if self.labels.activation == SIGMOID else x

    def predictions(
        self, examples: Sequence[TextExample], arrays: dict[str, np.ndarray], logits: np.ndarray
    ) -> list[dict[str, Any]]:
        """Return what is predicted for each example, as written to a file."""
        logits = self.of_text(arrays, logits)
        if self.labels.regression:
            return self.lines(examples, arrays, [{"value": value} for value in self._numbers(logits).tolist()])
        fields = [
            {"label": self.labels.names[int(row.argmax())], "probabilities": self.labels.named(row)}
            for row in softmax(logits)
        ]
        return self.lines(examples, arrays, fields)


def number(line: dict[str, Any]) -> float:
    """Return the number that a line of predictions has. Raise InputError if it has none."""
    value = line.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(
            f"the prediction for {line.get('id')!r} has no number `value`; give an output of tasks.predict"
        )
    return float(value)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of logits [..., C]."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
