"""Apply a fine-tuned model to question datasets: windows, logits, answers."""

from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from bert.errors import IntegrityError
from bert.inputs.batches import Batches
from bert.model import inference
from squad import features
from squad.answers import Answers, n_best_answers
from squad.examples import Dataset, Example
from squad.model import FineTuned


class Reader:
    """Answer questions in batches of windows of similar length."""

    def __init__(
        self,
        fine_tuned: FineTuned,
        *,
        batch: int,
        n_best: int,
        max_answer_length: int,
        null: bool,
        compiled: bool = True,
    ) -> None:
        """batch: maximum windows per batch. null: whether no answer is one of the `n_best` answers.

        compiled: whether parts of the model are compiled for each shape.
        """
        self.fine_tuned, self.limits, self.null = fine_tuned, (n_best, max_answer_length), null
        self._batches = Batches(batch, fine_tuned.windowing.max_seq_length)
        signature = dict.fromkeys(features.INPUTS, tf.TensorSpec([None, None], tf.int32))
        self._score = inference.traced(fine_tuned.logits, [signature], compiled)

    def answer(self, piece: Dataset) -> Iterator[tuple[Example, Answers]]:
        """Yield each question, in order, with its best answers. All answers of the piece are held in memory."""
        if not piece.examples:
            return
        tokenizer, windowing = self.fine_tuned.tokenizer, self.fine_tuned.windowing
        tokens = features.tokenize(tokenizer, piece.passages)
        windows = features.windows(tokenizer, piece.examples, tokens, windowing)
        logits = self.score(windows.inputs)
        answers = n_best_answers(piece.examples, piece.passages, tokens, windows, logits, *self.limits, self.null)
        yield from zip(piece.examples, answers, strict=True)

    def score(self, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return start and end logits [B, S] of any number of windows; 0 beyond the longest window of a batch.

        inputs: ids, mask and segments of the windows [B, S]. Raise IntegrityError if a logit is not finite.
        """
        starts, ends = np.zeros((2, *inputs["input_ids"].shape), np.float32)
        for rows, width in self._batches(inputs["input_mask"].sum(axis=1)):
            batch = {name: tf.constant(inputs[name][rows, :width]) for name in features.INPUTS}
            starts[rows, :width], ends[rows, :width] = self._score(batch)
        if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
            reason = "its training failed; use another checkpoint"
            if self.fine_tuned.encoder.dtype == tf.float16:
                reason = "they may overflow float16; use --compute float32"
            raise IntegrityError(f"the model's logits are not finite: {reason}")
        return starts, ends
