"""Apply a fine-tuned model to question datasets: windows, logits, answers."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from squad import features
from squad.answers import MAX_ANSWER_LENGTH, N_BEST, Answers, n_best_answers
from squad.examples import Dataset, Example
from squad.features import Tokens, Windows
from squad.model import AnswerSpans
from tasks import model
from tasks.model import FineTuned


class Read(NamedTuple):
    """Questions whose windows are made."""

    piece: Dataset
    tokens: Tokens  # of its passages
    windows: Windows


class Reader(model.Reader[AnswerSpans]):
    """Answer questions in batches of windows of similar length."""

    def __init__(
        self,
        fine_tuned: FineTuned[AnswerSpans],
        *,
        batch: int,
        limit: float | None,
        n_best: int = N_BEST,
        max_answer_length: int = MAX_ANSWER_LENGTH,
        compiled: bool = True,
    ) -> None:
        """batch, compiled: as in `tasks.model.Reader`. n_best: maximum number of answers to a question.

        limit: null odds above it mean no answer; None: every question gets an answer, and "" is not a candidate.
        max_answer_length: in tokens.
        """
        super().__init__(fine_tuned, batch, compiled)
        self.limit, self.sizes = limit, (n_best, max_answer_length)
        self.cut = 0  # questions with tokens cut off, since the last report

    def answer(self, piece: Dataset) -> Iterator[tuple[Example, Answers]]:
        """Yield each question, in order, with its best answers. All answers of the piece are held in memory."""
        if not piece.examples:
            return
        read = self.prepare(piece)
        self.cut += read.windows.cut
        start, end = self.outputs(read.windows.inputs, len(piece.examples))
        yield from zip(piece.examples, self.finish(read, (start, end)), strict=True)

    def prepare(self, piece: Dataset, most: int = sys.maxsize) -> Read:
        """Return the windows of all questions. Raise InputError if they are more than `most`."""
        tokenizer, windowing = self.fine_tuned.tokenizer, self.fine_tuned.kind.windowing
        tokens = features.tokenize(tokenizer, piece.passages)
        return Read(piece, tokens, features.windows(tokenizer, piece.examples, tokens, windowing, most))

    def finish(self, read: Read, logits: tuple[np.ndarray, np.ndarray]) -> list[Answers]:
        """Return the best answers to each question. logits: start and end logits of all windows [B, S]."""
        piece, places, null = read.piece, read.windows.places, self.limit is not None
        return n_best_answers(piece.examples, piece.passages, read.tokens, places, logits, *self.sizes, null)

    def report(self, where: object) -> None:
        """Print one line if questions were cut since the last report. where: the file."""
        if self.cut:
            most = self.fine_tuned.kind.windowing.max_query_length
            many = f"{self.cut:,} questions have more than {most} tokens and are cut, as in training"
            print(f"note: {where}: {many} (windows.max_query_length)", file=sys.stderr)
        self.cut = 0
