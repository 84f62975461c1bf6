"""From start and end logits to answers: the best spans of the passage.

The score of a span is the sum of its start and end logits (Devlin et al. 2018, section 4.2). A span may start only at a
token for which this window has the most context. All spans up to the maximum length are scored, not only those between
the best starts and the best ends, so the n-best list is exact. The score of no answer is the sum of both logits at
[CLS], in the window where it is lowest (github.com/google-research/bert, run_squad.py).

B windows, S positions, L longest answer, K best answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from squad.examples import Example

if TYPE_CHECKING:
    from squad.features import Places, Tokens

MAX_ANSWER_LENGTH = 30  # tokens, the default of commands (Devlin et al. 2018)
N_BEST = 20  # answers to a question, the default of squad.predict


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A possible answer: passage[start : start + len(text)]."""

    text: str
    start: int
    probability: float
    start_logit: float
    end_logit: float

    @property
    def end(self) -> int:
        """The character behind its last one."""
        return self.start + len(self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """A question's best answers, best first, and its null odds: score of no answer minus score of the best answer."""

    candidates: list[Candidate]
    null_odds: float

    def best(self, threshold: float | None) -> Candidate:
        """Return the best answer, or NO_ANSWER if the null odds are above `threshold`. None: always answer."""
        if threshold is not None and self.null_odds > threshold:
            return NO_ANSWER
        return next((candidate for candidate in self.candidates if candidate.text), NO_ANSWER)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedAnswers:
    """The best answers to one question in several passages, best first, with a softmax over all of them."""

    candidates: list[tuple[int, Candidate]]
    """each with the number of its passage; of one passage, one can be empty"""
    null_odds: float | None
    """score of no answer minus that of the best one; None if every question gets an answer"""
    null_probability: float
    """that no passage has an answer"""

    def best(self, threshold: float | None) -> tuple[int, Candidate]:
        """Return the best answer and its passage, or NO_ANSWER in passage 0, as `Answers.best` does."""
        if threshold is not None and self.null_odds is not None and self.null_odds > threshold:
            return 0, NO_ANSWER
        return next((entry for entry in self.candidates if entry[1].text), (0, NO_ANSWER))


NO_ANSWER = Candidate(text="", start=0, probability=1.0, start_logit=0.0, end_logit=0.0)
WINDOWS = 512  # windows whose spans are scored at once
Scored = tuple[float, int, float, float]  # score, first character, start logit, end logit


def best_spans(
    places: Places, start_logits: np.ndarray, end_logits: np.ndarray, n_best: int, max_answer_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first and last positions and the scores of each window's K best spans, best first, all [B, K].

    Invalid spans have the score -inf.
    """
    at = np.arange(start_logits.shape[1])
    inside = (at >= places.offset[:, None]) & (at < (places.offset + places.length)[:, None])  # [B, S]
    start = np.where(places.max_context, start_logits, -np.inf)
    end = np.pad(np.where(inside, end_logits, -np.inf), ((0, 0), (0, max_answer_length - 1)), constant_values=-np.inf)
    batches = [slice(first, first + WINDOWS) for first in range(0, len(start), WINDOWS)]
    best = (_best(start[rows], end[rows], n_best, max_answer_length) for rows in batches)
    first, last, scores = zip(*best, strict=True)
    return np.concatenate(first), np.concatenate(last), np.concatenate(scores)


def _best(
    start: np.ndarray, end: np.ndarray, n_best: int, max_answer_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ends = np.lib.stride_tricks.sliding_window_view(end, max_answer_length, axis=1)  # [B, S, L]
    scores = (start[:, :, None] + ends).reshape(len(start), -1)
    count = min(n_best, scores.shape[1])
    best = np.sort(np.argpartition(-scores, count - 1, axis=1)[:, :count], axis=1)  # equal scores: earlier span first
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    best = np.take_along_axis(best, order, axis=1)
    first, further = np.divmod(best, max_answer_length)
    return first, first + further, np.take_along_axis(scores, best, axis=1)


def n_best_answers(
    questions: Sequence[Example],
    passages: Sequence[str],
    tokens: Tokens,
    places: Places,
    logits: tuple[np.ndarray, np.ndarray],
    n_best: int,
    max_answer_length: int,
    null: bool,
) -> list[Answers]:
    """Return for each question its best answers with different texts, at least one, with a softmax over their scores.

    logits: start and end logits of all windows [B, S]. null: whether "" (no answer) is one of the answers.
    """
    first, last, scores = best_spans(places, *logits, n_best, max_answer_length)
    shift = places.first - places.offset  # position in the window -> token of the passage
    by_text: list[dict[str, Scored]] = [{} for _ in questions]
    for flat in np.argsort(-scores, axis=None, kind="stable"):
        row, k = divmod(int(flat), scores.shape[1])
        score, answers = scores[row, k], by_text[places.question[row]]
        if score == -np.inf:
            break  # sorted: all others are invalid too
        if len(answers) < n_best:
            passage = questions[places.question[row]].passage
            text = tokens.row(passage)
            s, e = first[row, k], last[row, k]
            start, end = int(tokens.starts[text][s + shift[row]]), int(tokens.ends[text][e + shift[row]])
            logit_pair = (float(logits[0][row, s]), float(logits[1][row, e]))
            answers.setdefault(passages[passage][start:end], (float(score), start, *logit_pair))
    return [
        _with_probabilities(answers, none, null) for answers, none in zip(by_text, _null(places, logits), strict=True)
    ]


def _null(places: Places, logits: tuple[np.ndarray, np.ndarray]) -> list[Scored]:
    """Return for each question the lowest score of [CLS]."""
    start, end = logits[0][:, 0], logits[1][:, 0]
    order = np.lexsort((start + end, places.question))
    _, begins = np.unique(places.question[order], return_index=True)  # every question has a window
    return [(float(start[row] + end[row]), 0, float(start[row]), float(end[row])) for row in order[begins]]


def _with_probabilities(answers: dict[str, Scored], none: Scored, null: bool) -> Answers:
    odds = none[0] - max((score for score, *_ in answers.values()), default=0.0)  # NO_ANSWER's
    if null:
        answers = dict(sorted([*answers.items(), ("", none)], key=lambda item: -item[1][0]))
    if not answers:
        return Answers(candidates=[NO_ANSWER], null_odds=odds)
    scores = np.array([score for score, *_ in answers.values()])
    weights = np.exp(scores - scores.max())
    candidates = [
        Candidate(text=text, start=start, probability=float(p), start_logit=start_logit, end_logit=end_logit)
        for (text, (_, start, start_logit, end_logit)), p in zip(answers.items(), weights / weights.sum(), strict=True)
    ]
    return Answers(candidates=candidates, null_odds=odds)


def among(of_passages: Sequence[Answers], null: bool, count: int) -> RankedAnswers:
    """Return the `count` best answers of one question in several passages, with a softmax over their scores.

    of_passages: the answers in each passage; the texts of its candidates differ. null: whether a passage may have no
    answer. If not, only a passage without words has an empty candidate, whose score has no meaning.
    """
    ranked = [(number, one) for number, answers in enumerate(of_passages) for one in answers.candidates]
    best = sorted((entry for entry in ranked if entry[1].text), key=lambda entry: -_score(entry[1]))[:count]
    none = min((_score(one) for _, one in ranked if not one.text), default=None) if null else None
    scores = np.array([_score(one) for _, one in best] + ([] if none is None else [none]))
    weights = np.exp(scores - scores.max()) if len(scores) else scores
    probabilities = weights / weights.sum()
    return RankedAnswers(
        candidates=[
            (number, replace(one, probability=float(p))) for (number, one), p in zip(best, probabilities, strict=False)
        ],
        null_odds=None if none is None else none - (_score(best[0][1]) if best else 0.0),
        null_probability=0.0 if none is None else float(probabilities[-1]),
    )


def _score(candidate: Candidate) -> float:
    return candidate.start_logit + candidate.end_logit
