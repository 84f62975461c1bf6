"""A fine-tuned model reads question sets: windows, scores, answers, a piece at a time."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from bert import batches
from bert.errors import IntegrityError
from bert.noise import Noise
from squad import features
from squad.answers import Answers, n_best_answers
from squad.examples import Dataset, Example
from squad.features import Windows
from squad.model import FineTuned


class Reader:
    """Scores windows in batches of like length; the model is traced once."""

    def __init__(self, fine_tuned: FineTuned, *, batch: int, n_best: int, max_answer_length: int, null: bool) -> None:
        """`batch` windows at once; of each question the `n_best` answers, and if `null` also that there is none."""
        self.fine_tuned, self.batch, self.limits, self.null = fine_tuned, batch, (n_best, max_answer_length), null
        self._score = tf.function(
            lambda inputs: fine_tuned.model(inputs, Noise(None), tf.float32),
            input_signature=[dict.fromkeys(features.INPUTS, tf.TensorSpec([None, None], tf.int32))],
        )

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
        for first in range(0, len(order), self.batch):
            rows = order[first : first + self.batch]
            width = batches.width(int(lengths[rows].max()), starts.shape[1])
            inputs = {name: tf.constant(getattr(windows, name)[rows, :width]) for name in features.INPUTS}
            starts[rows, :width], ends[rows, :width] = self._score(inputs)
        if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
            raise IntegrityError("the model's scores are not finite: its training failed; take another checkpoint")
        return starts, ends
