"""Apply a fine-tuned model to question datasets: windows, logits, answers."""

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
    """Answer questions in batches of windows of similar length; parts of the model are compiled for each shape."""

    def __init__(self, fine_tuned: FineTuned, *, batch: int, n_best: int, max_answer_length: int, null: bool) -> None:
        """batch: maximum windows per batch. null: whether no answer is one of the `n_best` answers."""
        self.fine_tuned, self.batch, self.limits, self.null = fine_tuned, batch, (n_best, max_answer_length), null
        self._rows = 0
        signature = dict.fromkeys(features.INPUTS, tf.TensorSpec([None, None], tf.int32))
        self._score = tf.function(fine_tuned.logits, input_signature=[signature])

    def answer(self, piece: Dataset) -> Iterator[tuple[Example, Answers]]:
        """Yield each question, in order, with its best answers. All answers of the piece are held in memory."""
        if not piece.examples:
            return
        tokenizer, windowing = self.fine_tuned.tokenizer, self.fine_tuned.windowing
        tokens = features.tokenize(tokenizer, piece.passages)
        windows = features.windows(tokenizer, piece.examples, tokens, windowing)
        logits = self.score(windows)
        answers = n_best_answers(piece.examples, piece.passages, tokens, windows, logits, *self.limits, self.null)
        yield from zip(piece.examples, answers, strict=True)

    def score(self, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
        """Return start and end logits [B, S] of any number of windows; 0 beyond the longest window of a batch."""
        starts, ends = np.zeros((2, *windows.input_ids.shape), np.float32)
        lengths = windows.input_mask.sum(axis=1)
        order = np.argsort(lengths, kind="stable")
        for rows in self._batches(order):
            width = sampler.padded_length(int(lengths[rows].max()), inference.LENGTH_MULTIPLE, starts.shape[1])
            inputs = {name: tf.constant(getattr(windows, name)[rows, :width]) for name in features.INPUTS}
            starts[rows, :width], ends[rows, :width] = self._score(inputs)
        if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
            reason = "its training failed; use another checkpoint"
            if self.fine_tuned.encoder.dtype == tf.float16:
                reason = "they may overflow float16; use --compute float32"
            raise IntegrityError(f"the model's logits are not finite: {reason}")
        return starts, ends

    def _batches(self, order: np.ndarray) -> np.ndarray:
        """Return batches of windows with the same number of rows, also in later pieces, so that only lengths differ.

        The first batch is filled up with copies of the first window, the shortest.
        """
        count = len(order)
        self._rows = max(self._rows, math.ceil(count / math.ceil(count / self.batch)))
        rows = min(self._rows, count)
        return np.concatenate([np.repeat(order[:1], -count % rows), order]).reshape(-1, rows)
