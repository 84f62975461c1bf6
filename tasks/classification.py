"""Classification and regression of a text or of a pair of texts: one output per sequence, from the state of [CLS].

B sequences, S positions, C classes; regression has one output, the number itself.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert.config import ModelConfig
from bert.errors import InputError, UsageError
from bert.inputs.sampler import Batch
from bert.inputs.tokenization import Tokenizer
from bert.model import heads, losses
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.model.parts import WHOLE, Parts
from tasks import inputs, metrics
from tasks.config import TaskData
from tasks.examples import TextExample
from tasks.labels import Labels

HEADS = ("pooler", "classifier")


class Model(tf.Module):
    """Encoder, pooler and classifier."""

    def __init__(self, config: ModelConfig, seed: int, outputs: int, parts: Parts = WHOLE) -> None:
        super().__init__()
        self.encoder = Encoder(config, seed, parts)
        self.pooler = heads.Pooler(config, seed)
        self.classifier = heads.Classifier(config, seed, outputs)

    def __call__(self, batch: Batch, mode: Mode) -> tf.Tensor:
        """Return the logits [B, C], float32."""
        tokens = TokenBatch(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
        count, length = tf.unstack(tf.shape(tokens.ids))
        return self.head(self.encoder(tokens, mode, tf.range(count) * length)[:, None], mode)

    def head(self, hidden: tf.Tensor, mode: Mode) -> tf.Tensor:
        """Return the logits [B, C] for the last hidden states [B, S, D], of which the first is read."""
        return self.classifier(self.pooler(hidden), mode)


class Classification:
    """What a run on classified texts, or on texts with a number, consists of."""

    head = "classifier"

    def __init__(self, data: TaskData, labels: Labels, names: tuple[str, ...]) -> None:
        """names: of the metrics, the one by which checkpoints are compared first."""
        self.data, self.labels, self.metrics = data, labels, names
        self.positive = tuple(map(self._positive, data.positive))  # classes of micro_f1

    def _positive(self, name: str) -> int:
        if name not in self.labels.names:
            raise UsageError(f"--data.positive {name!r} is not one of the classes: {', '.join(self.labels.names)}")
        return self.labels.names.index(name)

    def features(self) -> dict[str, dict[str, Any]]:
        """Return shape and type of each feature of a record."""
        label = {"shape": [1], "dtype": "float32" if self.labels.regression else "int64"}
        return {name: {"shape": [self.data.length], "dtype": "int64"} for name in inputs.NAMES} | {"label": label}

    def encode(self, examples: Sequence[TextExample], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
        """Return the features of all examples [n, ...]; `label` if they have labels."""
        firsts, seconds = [example.first for example in examples], [example.second for example in examples]
        arrays = inputs.pairs(tokenizer, firsts, seconds, self.data.length, self.data.first_length)
        if examples and examples[0].label is not None:
            arrays["label"] = self.labels.numbers(examples)[:, None]
        return arrays

    def model(self, config: ModelConfig, seed: int, parts: Parts = WHOLE) -> Model:
        """Return the model to train."""
        return Model(config, seed, self.labels.outputs, parts)

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
        if self.labels.weights is None:
            return tf.ones_like(labels, tf.float32)
        return tf.gather(tf.constant(self.labels.weights, tf.float32), labels)

    def scores(self, logits: np.ndarray, gold: dict[str, np.ndarray]) -> metrics.Scores:
        """Return the metrics of logits [n, C] for the features of the same examples."""
        expected = gold["label"][:, 0]
        predicted = logits[:, 0] if self.labels.regression else metrics.predicted_classes(logits)
        return metrics.scores(self.metrics, expected, predicted, classes=self.positive or None)

    def compare(self, examples: Sequence[TextExample], found: Sequence[dict[str, Any]]) -> metrics.Scores:
        """Return the metrics of written predictions for examples with labels."""
        expected = self.labels.numbers(examples)
        if self.labels.regression:
            return metrics.scores(self.metrics, expected, [number(line) for line in found])
        predicted = [self.labels.index(str(line.get("label")), str(line["id"])) for line in found]
        return metrics.scores(self.metrics, expected, predicted, classes=self.positive or None)

    def predictions(
        self, examples: Sequence[TextExample], arrays: dict[str, np.ndarray], logits: np.ndarray
    ) -> list[dict[str, Any]]:
        """Return what is predicted for each example, as written to a file."""
        if self.labels.regression:
            return [{"id": example.id, "value": float(row[0])} for example, row in zip(examples, logits, strict=True)]
        probabilities = softmax(logits)
        return [
            {"id": example.id, "label": self.labels.names[int(row.argmax())], "probabilities": self.labels.named(row)}
            for example, row in zip(examples, probabilities, strict=True)
        ]


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
