"""A fine-tuned model reads question sets: windows, scores, answers, a piece at a time."""

import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from bert.errors import IntegrityError
from bert.inputs import sampler
from bert.model import inference
from squad import features
from squad.answers import Answers, n_best_answers
from squad.examples import Dataset, Example
from squad.features import Windows
from squad.model import FineTuned


class Reader:
    """Scores windows in batches of like length; the model is traced once, and parts are compiled for each shape."""

    def __init__(self, fine_tuned: FineTuned, *, batch: int, n_best: int, max_answer_length: int, null: bool) -> None:
        """At most `batch` windows at once; of each question the `n_best` answers, and if `null` also that there is
        none."""
        self.fine_tuned, self.batch, self.limits, self.null = fine_tuned, batch, (n_best, max_answer_length), null
        self._rows = 0
        signature = dict.fromkeys(features.INPUTS, tf.TensorSpec([None, None], tf.int32))
        self._score = tf.function(fine_tuned.logits, input_signature=[signature])

    def answer(self, piece: Dataset) -> Iterator[tuple[Example, Answers]]:
        """Each question, in order, with its best answers; in memory are those of the whole piece."""
        if not piece.examples:
            return
        tokenizer, windowing = self.fine_tuned.tokenizer, self.fine_tuned.windowing
        tokens = features.tokenize(tokenizer, piece.passages)
        windows = features.windows(tokenizer, piece.examples, tokens, windowing)
        logits = self.score(windows)
        found = n_best_answers(piece.examples, piece.passages, tokens, windows, logits, *self.limits, self.null)
        yield from zip(piece.examples, found, strict=True)

    def score(self, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
        """Start and end logits [B, S] of any number of windows; 0 beyond a batch's longest, where all is padding."""
        starts, ends = np.zeros((2, *windows.input_ids.shape), np.float32)
        lengths = windows.input_mask.sum(axis=1)
        order = np.argsort(lengths, kind="stable")
        for rows in self._alike(order):
            width = sampler.width(int(lengths[rows].max()), inference.LENGTH_MULTIPLE, starts.shape[1])
            inputs = {name: tf.constant(getattr(windows, name)[rows, :width]) for name in features.INPUTS}
            starts[rows, :width], ends[rows, :width] = self._score(inputs)
        if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
            why = "its training failed; take another checkpoint"
            if self.fine_tuned.encoder.dtype == tf.float16:
                why = "float16 may be too narrow for it; take --compute float32"
            raise IntegrityError(f"the model's scores are not finite: {why}")
        return starts, ends

    def _alike(self, order: np.ndarray) -> np.ndarray:
        """Batches of windows, all with the same number of rows, in later pieces too: the shapes differ in width alone.

        What is short of that is made up by the first window, the shortest, once more.
        """
        count = len(order)
        self._rows = max(self._rows, math.ceil(count / math.ceil(count / self.batch)))
        rows = min(self._rows, count)
        return np.concatenate([np.repeat(order[:1], -count % rows), order]).reshape(-1, rows)
