"""Several labels of a text or of a pair of texts: each has a probability of its own, the sigmoid of its logit.

B samples, n examples, C labels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert.core.errors import InputError
from bert.heads import MULTILABEL
from bert.model import losses
from bert.text.sampler import Batch
from bert.thresholds import DEFAULT
from tasks import label_metrics, metrics
from tasks.config import TaskData
from tasks.examples import TextExample
from tasks.labels import Labels
from tasks.texts import OfTexts


class MultiLabel(OfTexts):
    """What a run on texts with several labels consists of; `label` is 1, 0, or -1 where it is not known [C]."""

    head = MULTILABEL

    def __init__(self, data: TaskData, labels: Labels, names: tuple[str, ...]) -> None:
        """data, labels, names: as in `StoredKind`. All thresholds begin with the default."""
        super().__init__(data, labels, names)
        self.thresholds: tuple[float, ...] = (DEFAULT,) * labels.outputs  # probabilities from which labels are given

    @property
    def label_feature(self) -> dict[str, Any]:
        """Shape and type of the label of a record."""
        return {"shape": [self.labels.outputs], "dtype": "float32"}

    def expected(self, examples: Sequence[TextExample]) -> np.ndarray | None:
        """Return the labels of each example [n, C], or None if they have none."""
        if examples[0].labels is None:
            return None
        labels = np.zeros((len(examples), self.labels.outputs), np.float32)
        for row, example in enumerate(examples):
            for value, names in ((1, example.labels or ()), (-1, example.unknown)):
                labels[row, [self.labels.index(name, example.id) for name in names]] = value
        return labels

    def measure(self, logits: tf.Tensor, batch: Batch) -> losses.Measure:
        """Return the summed binary cross-entropy of all labels of a batch and the number of right ones."""
        labels = tf.maximum(batch["label"], 0.0)
        return losses.binary(logits, labels, self.weights(batch), tf.constant(self._positive, tf.float32))

    def soft(self, logits: tf.Tensor, taught: tf.Tensor, batch: Batch, temperature: float) -> tf.Tensor:
        """Return the summed loss of a batch with a teacher's logits as labels."""
        return losses.soft_binary(logits, taught, self.weights(batch), temperature)

    @property
    def _positive(self) -> tuple[float, ...]:
        return self.labels.weights or (1.0,) * self.labels.outputs

    def weights(self, batch: Batch) -> tf.Tensor:
        """Return the weight of each label in the loss [B, C]: 0 where it is not known."""
        is_known = tf.cast(batch["label"] >= 0, tf.float32)
        return is_known * self.share(batch) if self.in_windows else is_known

    def scores(self, logits: np.ndarray, gold: dict[str, np.ndarray]) -> metrics.Scores:
        """Return the metrics of logits [n, C] for the features of the same examples or windows."""
        probabilities = sigmoid(self.of_text(gold, logits))
        return self._scores(self.label_of_text(gold), probabilities, probabilities >= self.thresholds)

    def compare(self, examples: Sequence[TextExample], lines: Sequence[dict[str, Any]]) -> metrics.Scores:
        """Return the metrics of written predictions for examples with labels."""
        gold = self.expected(examples)
        if gold is None:
            raise InputError(f"example {examples[0].id} has no labels; give labelled examples")
        predicted, probabilities = np.zeros(gold.shape, bool), np.zeros(gold.shape)
        for row, line in enumerate(lines):
            of_line = line.get("probabilities")
            if not isinstance(line.get("labels"), list) or not isinstance(of_line, dict) or not _are_numbers(of_line):
                raise InputError(
                    f"the prediction for {line.get('id')!r} has no `labels` and `probabilities`; give an output of "
                    "tasks.predict"
                )
            predicted[row, [self.labels.index(str(name), str(line["id"])) for name in line["labels"]]] = True
            if of_line.keys() != set(self.labels.names):
                raise InputError(f"the prediction for {line.get('id')!r} is not of the labels of this model")
            probabilities[row] = [float(of_line[name]) for name in self.labels.names]
        return self._scores(gold, probabilities, predicted)

    def _scores(self, gold: np.ndarray, probabilities: np.ndarray, predicted: np.ndarray) -> metrics.Scores:
        return label_metrics.scores(self.metrics, gold, probabilities, predicted, self.labels.names)

    def predictions(
        self, examples: Sequence[TextExample], arrays: dict[str, np.ndarray], logits: np.ndarray
    ) -> list[dict[str, Any]]:
        """Return the prediction for each example, as written to a file: the given labels, maybe none."""
        probabilities = sigmoid(self.of_text(arrays, logits))
        fields = [
            {
                "labels": [
                    name for name, chosen in zip(self.labels.names, row >= self.thresholds, strict=True) if chosen
                ],
                "probabilities": self.labels.named(row),
            }
            for row in probabilities
        ]
        return self.lines(examples, arrays, fields)


def _are_numbers(probabilities: dict[str, Any]) -> bool:
    return all(type(value) in (int, float) for value in probabilities.values())


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)) of logits, in float64."""
    return np.asarray(np.exp(-np.logaddexp(0, -logits.astype(np.float64))))
