"""The scores on a development set of questions, while a model is fine-tuned."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.core.errors import InputError
from bert.runs import Run
from bert.text.tokenization import Tokenizer
from squad import examples, features, languages, metric
from squad.answers import MAX_ANSWER_LENGTH, n_best_answers
from squad.config import Windowing
from squad.examples import Example
from squad.languages import Language, Rules
from squad.model import load
from squad.predict import null_threshold
from tasks.model import Reader

BATCH = 32  # windows that are computed at once


class Questions:
    """A development set: texts, tokens and the places of its windows, whose inputs are in records."""

    def __init__(self, path: Path, language: Language | None) -> None:
        """language: whose rules of MLQA score it; None: SQuAD's rules.

        Raise InputError if a question is malformed, or has no gold answer and is not impossible.
        """
        self.path, self.dataset = path, examples.read_dataset(path)
        if not self.dataset.examples:
            raise InputError(f"{path}: no question; check the file")
        if self.dataset.version != "2.0":
            metric.check_answers(self.dataset.examples, path)
        self.rules = languages.rules(language, self.dataset, path, "--data.language")

    def write(self, tokenizer: Tokenizer, windowing: Windowing, workdir: Path) -> Path:
        """Return the folder with the records of the windows."""
        inputs = self.encode(tokenizer, windowing)
        return features.development_set(self.path, inputs, tokenizer, windowing, workdir)

    def encode(self, tokenizer: Tokenizer, windowing: Windowing) -> dict[str, np.ndarray]:
        """Return the inputs of the windows."""
        self.tokens = features.tokenize(tokenizer, self.dataset.passages)
        inputs, self.places, _ = features.windows(tokenizer, self.dataset.examples, self.tokens, windowing)
        return inputs

    def scores(self, starts: np.ndarray, ends: np.ndarray, threshold: float | None) -> dict[str, float]:
        """Return exact match and F1, in percent, of the best answers. starts, ends: logits of all windows [B, S].

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
            self.places,
            (starts, ends),
            n_best=1,
            max_answer_length=MAX_ANSWER_LENGTH,
            null=False,
        )
        texts = [one.best(threshold).text for one in answers]
        exact, f1 = _mean_scores(dataset.examples, texts, dataset.version, self.rules)
        return {"exact_match": exact, "f1": f1}


def scores(run: Run, path: Path, outputs: Callable[..., Sequence[Any]]) -> dict[str, float]:
    """Return F1 and exact match of the answers from the logits that `outputs` computes, as `HeadSpec.scores` says."""
    fine_tuned = load(run)
    questions = Questions(path, fine_tuned.kind.language)
    reader, count = Reader(fine_tuned, BATCH, outputs=outputs), len(questions.dataset.examples)
    with reader.counted("score", "questions", count):
        starts, ends = reader.outputs(questions.encode(run.tokenizer, fine_tuned.kind.windowing), count)
    found = questions.scores(starts, ends, null_threshold(fine_tuned, run.path, None))
    return {name: found[name] for name in fine_tuned.kind.metrics}


def _mean_scores(questions: Sequence[Example], texts: Sequence[str], version: str, rules: Rules) -> tuple[float, float]:
    """Return exact match and F1 in percent."""
    predictions = {question.id: text for question, text in zip(questions, texts, strict=True)}
    if version == "2.0":
        official = metric.score_v2(questions, predictions, rules=rules)
        return official["exact"], official["f1"]
    score = metric.score(questions, predictions, rules)
    return score.exact_match, score.f1
