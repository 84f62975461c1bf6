"""Multiple choice: each choice is a pair of texts with a score from the state of [CLS]; the highest one is taken.

B examples, C choices, S positions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert.core.errors import InputError
from bert.heads import CHOICE
from bert.model import losses
from bert.text.sampler import Batch
from bert.text.tokenization import Tokenizer
from tasks import inputs, metrics
from tasks.classification import softmax
from tasks.config import TaskData
from tasks.examples import ChoiceExample
from tasks.labels import Labels
from tasks.stored import ExampleKind


class Choice(ExampleKind):
    """What a run on multiple choice consists of."""

    head = CHOICE

    def __init__(self, data: TaskData, labels: Labels, names: tuple[str, ...]) -> None:
        """data, names: as in `StoredKind`. labels: the numbers of the choices.

        Each level of RACE is also scored separately.
        """
        super().__init__(data, labels, names)
        self.sequences = labels.outputs
        self.groups: tuple[str, ...] = data.levels if data.task == "race" else ()

    def features(self) -> dict[str, dict[str, Any]]:
        """Return shape and type of each feature of a record."""
        shape = [self.labels.outputs, self.data.length]
        one = {"shape": [1], "dtype": "int64"}
        return {name: {"shape": shape, "dtype": "int64"} for name in inputs.NAMES} | {"label": one, "group": one}

    def encode(self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
        """Return the features of all examples [n, ...]; `label` if they have labels."""
        choices = self.labels.outputs
        for example in examples:
            self.check(example)
        firsts, seconds = zip(*(pair for example in examples for pair in example.pairs), strict=True)
        flat = inputs.pairs(tokenizer, firsts, seconds, self.data.length, self.data.first_length, self.seen)
        arrays = {name: rows.reshape(-1, choices, self.data.length) for name, rows in flat.items()}
        arrays["group"] = np.array([[self._group(example)] for example in examples], np.int64)
        if examples and examples[0].label is not None:
            arrays["label"] = np.array([[example.label] for example in examples], np.int64)
        return arrays

    def check(self, example: ChoiceExample) -> None:
        """Raise InputError if the example's number of choices differs from the model's."""
        if len(example.pairs) != self.labels.outputs:
            raise InputError(
                f"example {example.id}: {len(example.pairs)} choices, but the model has {self.labels.outputs}"
            )

    def _group(self, example: ChoiceExample) -> int:
        return self.groups.index(example.group) if example.group in self.groups else -1

    def measure(self, logits: tf.Tensor, batch: Batch) -> losses.Measure:
        """Return the summed cross-entropy of a batch and the number of right choices."""
        return losses.classification(logits, tf.zeros(self.labels.outputs), batch["label"][:, 0], self.weights(batch))

    def weights(self, batch: Batch) -> tf.Tensor:
        """Return the weight of each example in the loss [B]."""
        return tf.ones_like(batch["label"][:, 0], tf.float32)

    def scores(self, logits: np.ndarray, gold: dict[str, np.ndarray]) -> metrics.Scores:
        """Return the metrics of scores [n, C] for the features of the same examples, and the metrics of each group."""
        return self._scores(gold["label"][:, 0], metrics.predicted_classes(logits), gold["group"][:, 0])

    def compare(self, examples: Sequence[ChoiceExample], lines: Sequence[dict[str, Any]]) -> metrics.Scores:
        """Return the metrics of written predictions for examples with labels."""
        expected = np.array([example.label for example in examples])
        predicted = [self.labels.index(str(line.get("label")), str(line["id"])) for line in lines]
        return self._scores(expected, np.array(predicted), np.array([self._group(example) for example in examples]))

    def _scores(self, expected: np.ndarray, predicted: np.ndarray, group: np.ndarray) -> metrics.Scores:
        result = metrics.scores(self.metrics, expected, predicted)
        for number, name in enumerate(self.groups):
            if 0 < (chosen := group == number).sum() < len(group):
                part = metrics.scores(self.metrics, expected[chosen], predicted[chosen])
                result.values.update({f"{name}_{metric}": value for metric, value in part.values.items()})
        return result

    def predictions(
        self, examples: Sequence[ChoiceExample], arrays: dict[str, np.ndarray], logits: np.ndarray
    ) -> list[dict[str, Any]]:
        """Return what is predicted for each example, as written to a file."""
        return [
            {"id": example.id, "label": int(row.argmax()), "probabilities": row.tolist()}
            for example, row in zip(examples, softmax(logits), strict=True)
        ]
