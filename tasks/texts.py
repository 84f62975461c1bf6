"""Texts and pairs of texts with one row of logits each, from the state of [CLS].

A text that is longer than an input is cut, or it is read in several windows (`data.windows`): each window is then a
sample with the label of its text, and the logits of a text are the mean, or the maximum, of those of its windows.

n examples, W windows, S positions, C logits.
"""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert.core.errors import UsageError
from bert.text.sampler import Batch
from bert.text.tokenization import Tokenizer
from tasks import inputs
from tasks.examples import TextExample
from tasks.stored import ExampleKind

AT_ONCE = 64  # texts that are encoded at once where each can have many windows


class OfTexts(ExampleKind):
    """A kind of task on texts and pairs of texts."""

    of_texts = True
    odd_to_longer = False
    """of a pair that is cut, as `tasks.inputs.shares` has it: true of an imported CrossEncoder"""

    @property
    def in_windows(self) -> bool:
        """Whether all of a long text is read."""
        return self.data.windows != "first"

    @property
    def at_once(self) -> int:
        """Number of examples that are encoded at once."""
        return AT_ONCE if self.in_windows else super().at_once

    @property
    @abc.abstractmethod
    def label_feature(self) -> dict[str, Any]:
        """Shape and type of the label of a record."""

    @abc.abstractmethod
    def expected(self, examples: Sequence[TextExample]) -> np.ndarray | None:
        """Return the labels of examples [n, ...], or None if they have none."""

    def features(self) -> dict[str, dict[str, Any]]:
        """Return shape and type of each feature of a record."""
        one = {"shape": [1], "dtype": "int64"}
        rows = {name: {"shape": [self.data.length], "dtype": "int64"} for name in inputs.NAMES}
        return rows | {"label": self.label_feature} | ({"window": one, "windows": one} if self.in_windows else {})

    def encode(self, examples: Sequence[TextExample], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
        """Return the features of all examples [n, ...], or of all windows [W, ...]; `label` if they have labels."""
        firsts, seconds = [example.first for example in examples], [example.second for example in examples]
        data, label = self.data, self.expected(examples) if examples else None
        if not self.in_windows:
            arrays = inputs.pairs(
                tokenizer, firsts, seconds, data.length, data.first_length, self.seen, self.odd_to_longer
            )
            return arrays | ({} if label is None else {"label": label})
        if paired := [example.id for example in examples if example.second is not None]:
            raise UsageError(
                f"windows {data.windows}: example {paired[0]} is a pair, and windows are for single texts; give first"
            )
        arrays = inputs.windows(tokenizer, firsts, data.length, data.stride, self.seen)
        if label is not None:
            arrays["label"] = np.repeat(label, arrays["windows"][self._starts(arrays), 0], axis=0)
        return arrays

    def share(self, batch: Batch) -> tf.Tensor:
        """Return the weight of each window [B, 1]: all windows of a text count as one."""
        return 1.0 / tf.cast(batch["windows"], tf.float32)

    def count(self, gold: dict[str, np.ndarray]) -> int:
        """Return the number of texts."""
        return len(self._starts(gold)) if self.in_windows else super().count(gold)

    def of_text(self, arrays: dict[str, np.ndarray], logits: np.ndarray) -> np.ndarray:
        """Return the logits of texts [n, C]. arrays, logits: features of their windows, and their logits [W, C]."""
        if not self.in_windows or not len(logits):
            return logits
        starts = self._starts(arrays)
        if self.data.windows == "max":
            return np.asarray(np.maximum.reduceat(logits, starts, axis=0))
        sums = np.add.reduceat(logits.astype(np.float64), starts, axis=0)
        return np.asarray((sums / arrays["windows"][starts]).astype(logits.dtype))

    def label_of_text(self, gold: dict[str, np.ndarray]) -> np.ndarray:
        """Return the labels of texts [n, ...], from the features of their windows."""
        return gold["label"][self._starts(gold)] if self.in_windows else gold["label"]

    def lines(
        self, examples: Sequence[TextExample], arrays: dict[str, np.ndarray], fields: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the prediction for each example with its id and, if long texts are divided, its number of windows."""
        made = [{"id": example.id} | line for example, line in zip(examples, fields, strict=True)]
        if self.in_windows:
            counts = arrays["windows"][self._starts(arrays), 0].tolist()
            made = [line | {"windows": count} for line, count in zip(made, counts, strict=True)]
        return made

    def _starts(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        return np.flatnonzero(arrays["window"][:, 0] == 0)
