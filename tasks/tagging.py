"""Tagging of words: a tag for each word of a sentence, from the state of its first piece.

B windows of sentences, S positions, C tags.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert.core.errors import InputError
from bert.heads import TAGS
from bert.model import losses
from bert.text.sampler import Batch
from bert.text.tokenization import Tokenizer
from tasks import alignment, entities, inputs, metrics
from tasks.classification import softmax
from tasks.config import TaskData
from tasks.examples import TaggedSentence
from tasks.labels import Labels
from tasks.stored import ExampleKind

UNREAD = -1  # label and word at positions where no tag is read


class Tagging(ExampleKind):
    """What a run on tagged sentences consists of."""

    head = TAGS

    def __init__(self, data: TaskData, labels: Labels, names: tuple[str, ...]) -> None:
        """data, names: as in `StoredKind`. labels: the tags. Tags that mark no entities are scored by accuracy only."""
        super().__init__(data, labels, names if data.entities else ("accuracy",))

    def features(self) -> dict[str, dict[str, Any]]:
        """Return shape and type of each feature of a record."""
        row = {"shape": [self.data.length], "dtype": "int64"}
        return dict.fromkeys((*inputs.NAMES, "label", "word"), row)

    def encode(self, examples: Sequence[TaggedSentence], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
        """Return the features of all windows [n, S]; `label` if the sentences have tags.

        `word` is the number, in its sentence, of the word whose tag is read at a position, or `UNREAD`.
        """
        words = [example.words for example in examples]
        windows = alignment.windows(tokenizer, words, self.data.length, self.data.stride)
        self.seen.inputs += len(words)
        self.seen.long += int((np.bincount(windows.sentence, minlength=1) > 1).sum())
        self.seen.tokens += int(windows.input_mask.sum()) - alignment.SPECIAL * len(windows.input_mask)
        self.seen.unknown += int((windows.input_ids == tokenizer.unk_id).sum())
        arrays = {name: getattr(windows, name) for name in inputs.NAMES}
        arrays["word"] = alignment.labels(windows, [np.arange(len(row)) for row in words])
        if examples and examples[0].tags is not None:
            arrays["label"] = alignment.labels(windows, [self._numbers(example) for example in examples])
        return arrays

    def _numbers(self, example: TaggedSentence) -> np.ndarray:
        assert example.tags is not None, "all sentences of a file have tags, or none has"
        return np.array([self.labels.index(tag, example.id) for tag in example.tags], np.int64)

    def measure(self, logits: tf.Tensor, batch: Batch) -> losses.Measure:
        """Return the summed cross-entropy of a batch and the number of right tags."""
        labels = tf.maximum(batch["label"], 0)
        return losses.classification(logits, tf.zeros(self.labels.outputs), labels, self.weights(batch))

    def weights(self, batch: Batch) -> tf.Tensor:
        """Return the weight of each position in the loss [B, S]: 0 where no tag is read."""
        read = tf.cast(batch["label"] >= 0, tf.float32)
        if self.labels.weights is None:
            return read
        return read * tf.gather(tf.constant(self.labels.weights, tf.float32), tf.maximum(batch["label"], 0))

    def scores(self, logits: np.ndarray, gold: dict[str, np.ndarray]) -> metrics.Scores:
        """Return the metrics of logits [n, S, C] for the features of the same windows, in order."""
        predicted, words = metrics.predicted_classes(logits), gold["word"]
        if not self.data.entities:
            return metrics.scores(self.metrics, gold["label"][words != UNREAD], predicted[words != UNREAD])
        return self._scores(self._sentences(gold["label"], words), self._sentences(predicted, words))

    def compare(self, examples: Sequence[TaggedSentence], lines: Sequence[dict[str, Any]]) -> metrics.Scores:
        """Return the metrics of written predictions for sentences with tags."""
        expected, predicted = [example.tags or () for example in examples], [tags_of(line) for line in lines]
        if self.data.entities:
            return self._scores(expected, predicted)
        gold, tags = ([self.labels.index(tag, "") for row in part for tag in row] for part in (expected, predicted))
        return metrics.scores(self.metrics, gold, tags)

    def _scores(self, expected: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> metrics.Scores:
        score = entities.score(expected, predicted)
        overall = score.overall
        values = {"f1": overall.f1, "precision": overall.precision, "recall": overall.recall}
        return metrics.Scores.of_fractions(values | {"accuracy": score.accuracy}, score.undefined)

    def _sentences(self, tags: np.ndarray, words: np.ndarray) -> Iterator[list[str]]:
        """Yield the tags of each sentence, from tags and words [n, S]; word 0 begins a sentence."""
        read = words != UNREAD
        starts = np.flatnonzero(words[read] == 0)
        for numbers in np.split(tags[read], starts[1:]):
            yield [self.labels.names[number] for number in numbers]

    def count(self, gold: dict[str, np.ndarray]) -> int:
        """Return the number of sentences, which have one or more windows."""
        return int((gold["word"] == 0).sum())

    def predictions(
        self, examples: Sequence[TaggedSentence], arrays: dict[str, np.ndarray], logits: np.ndarray
    ) -> list[dict[str, Any]]:
        """Return what is predicted for each sentence, as written to a file."""
        probabilities = softmax(logits)
        read = arrays["word"] != UNREAD
        tags, certainty = probabilities.argmax(axis=-1)[read], probabilities.max(axis=-1)[read]
        ends = np.cumsum([len(example.words) for example in examples])
        assert not len(ends) or ends[-1] == len(tags), "each word is read once"
        return [
            {
                "id": example.id,
                "words": list(example.words),
                "tags": [self.labels.names[number] for number in tags[end - len(example.words) : end]],
                "probabilities": certainty[end - len(example.words) : end].tolist(),
            }
            for example, end in zip(examples, ends, strict=True)
        ]


def tags_of(line: dict[str, Any]) -> list[str]:
    """Return the tags that a line of predictions has. Raise InputError if it has none."""
    tags = line.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InputError(f"the prediction for {line.get('id')!r} has no list `tags`; give an output of tasks.predict")
    return tags
