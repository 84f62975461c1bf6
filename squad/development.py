"""The scores on a development set of questions, while a model is fine-tuned."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bert.config import BatchConfig
from bert.errors import InputError
from bert.inputs.records import Dataset
from bert.inputs.tokenization import Tokenizer
from bert.training import fine_tuning, loop, prediction
from bert.training.distributed import Communicator
from bert.training.step import Step
from squad import examples, features, metric
from squad.answers import MAX_ANSWER_LENGTH, n_best_answers
from squad.config import Windowing
from squad.examples import Example


class Questions:
    """A development set with its tokens and windows; it is held in memory."""

    def __init__(self, path: Path, tokenizer: Tokenizer, windowing: Windowing) -> None:
        """Raise InputError if a question is malformed, or has no gold answer and is not impossible."""
        self.dataset = examples.read_dataset(path)
        if not self.dataset.examples:
            raise InputError(f"{path}: no question; check the file")
        if self.dataset.version != "2.0":
            metric.check_answers(self.dataset.examples, path)
        self.tokens = features.tokenize(tokenizer, self.dataset.passages)
        self.windows = features.windows(tokenizer, self.dataset.examples, self.tokens, windowing)

    def scores(self, starts: np.ndarray, ends: np.ndarray, threshold: float | None) -> dict[str, float]:
        """Return exact match and F1, as fractions, of the best answers. starts, ends: logits of all windows [B, S].

        threshold: null odds above which there is no answer; None: every question gets one. NaN if a logit is not
        finite.
        """
        if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
            return {"exact_match": np.nan, "f1": np.nan}
        dataset = self.dataset
        answers = n_best_answers(
            dataset.examples,
            dataset.passages,
            self.tokens,
            self.windows,
            (starts, ends),
            n_best=1,
            max_answer_length=MAX_ANSWER_LENGTH,
            null=False,
        )
        texts = [found.best(threshold).text for found in answers]
        exact, f1 = _mean_scores(dataset.examples, texts, dataset.version)
        return {"exact_match": exact / 100, "f1": f1 / 100}


class DevelopmentSet:
    """Exact match and F1 on a development set; F1 tells which checkpoint is the best."""

    measure = "f1"

    def __init__(
        self,
        questions: Questions | None,
        data: Dataset,
        batch: BatchConfig,
        comm: Communicator,
        threshold: float | None,
    ) -> None:
        """questions: on rank 0, which computes the scores. data: their windows, of which each replica has its share."""
        self.questions, self.data, self.batch, self.comm = questions, data, batch, comm
        self.threshold = threshold

    def scores(self, step: Step, alive: Callable[[], None]) -> loop.Measures:
        """Return exact match and F1, as fractions."""
        logits = prediction.predict(step, self.data, self.batch, alive, by_position=True)

        def score() -> loop.Measures:
            assert self.questions is not None, "rank 0 has them"
            return self.questions.scores(logits["start"], logits["end"], self.threshold)

        return fine_tuning.on_rank_zero(score, self.comm)


def _mean_scores(questions: Sequence[Example], texts: Sequence[str], version: str) -> tuple[float, float]:
    """Return exact match and F1 in percent."""
    predictions = {question.id: text for question, text in zip(questions, texts, strict=True)}
    if version == "2.0":
        official = metric.score_v2(questions, predictions)
        return official["exact"], official["f1"]
    score = metric.score(questions, predictions)
    return score.exact_match, score.f1
