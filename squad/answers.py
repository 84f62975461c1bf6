"""Scores of a window's tokens to answers: the best spans, cut from the passage itself.

A span may begin only at a token whose window gives it the most context, and its score is the sum of its start and end
logits (Devlin et al. 2018, section 4.2). All spans up to the longest answer are scored, not only those between the best
starts and the best ends, so the n-best list is exact. That there is no answer has the score of [CLS] as both, in the
window where it is lowest (github.com/google-research/bert, run_squad.py).

B windows, S positions, L longest answer, K answers wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from squad.examples import Example
from squad.features import Tokens, Windows


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One possible answer: passage[start : start + len(text)]."""

    text: str
    start: int
    probability: float
    start_logit: float
    end_logit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """A question's best answers, best first, and by how much the score of there being none is above the best's."""

    candidates: list[Candidate]
    null_odds: float

    def best(self, threshold: float | None) -> Candidate:
        """The best answer; none, which has no text, if the odds are above the threshold, unless that is None."""
        if threshold is not None and self.null_odds > threshold:
            return NOTHING
        return next((candidate for candidate in self.candidates if candidate.text), NOTHING)


NOTHING = Candidate(text="", start=0, probability=1.0, start_logit=0.0, end_logit=0.0)
WINDOWS = 512  # of which all spans are scored at once
Scored = tuple[float, int, float, float]  # score, first character, start logit, end logit


def best_spans(
    batch: Windows, start_logits: np.ndarray, end_logits: np.ndarray, n_best: int, max_answer_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions of first and last token, and scores, of each window's K best spans, best first [B, K].

    Spans that may not be have the score -inf.
    """
    at = np.arange(start_logits.shape[1])
    inside = (at >= batch.offset[:, None]) & (at < (batch.offset + batch.length)[:, None])  # [B, S]
    start = np.where(batch.max_context, start_logits, -np.inf)
    end = np.pad(np.where(inside, end_logits, -np.inf), ((0, 0), (0, max_answer_length - 1)), constant_values=-np.inf)
    some = [slice(first, first + WINDOWS) for first in range(0, len(start), WINDOWS)]
    first, last, scores = zip(*(_best(start[rows], end[rows], n_best, max_answer_length) for rows in some), strict=True)
    return np.concatenate(first), np.concatenate(last), np.concatenate(scores)


def _best(
    start: np.ndarray, end: np.ndarray, n_best: int, max_answer_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ends = np.lib.stride_tricks.sliding_window_view(end, max_answer_length, axis=1)  # [B, S, L]
    scores = (start[:, :, None] + ends).reshape(len(start), -1)
    wanted = min(n_best, scores.shape[1])
    best = np.sort(np.argpartition(-scores, wanted - 1, axis=1)[:, :wanted], axis=1)  # equal scores: earlier span first
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    best = np.take_along_axis(best, order, axis=1)
    first, more = np.divmod(best, max_answer_length)
    return first, first + more, np.take_along_axis(scores, best, axis=1)


def n_best_answers(
    questions: Sequence[Example],
    passages: Sequence[str],
    tokens: Tokens,
    batch: Windows,
    logits: tuple[np.ndarray, np.ndarray],
    n_best: int,
    max_answer_length: int,
    null: bool,
) -> list[Answers]:
    """For each question its best answers with different texts, and if `null` that there is none; always one.

    `logits` are the start and end scores of all windows [B, S]; probabilities are a softmax over the list.
    """
    first, last, scores = best_spans(batch, *logits, n_best, max_answer_length)
    shift = batch.first - batch.offset  # position in the window -> token of the passage
    found: list[dict[str, Scored]] = [{} for _ in questions]
    for flat in np.argsort(-scores, axis=None, kind="stable"):
        row, k = divmod(int(flat), scores.shape[1])
        score, answers = scores[row, k], found[batch.question[row]]
        if score == -np.inf:
            break  # sorted: the rest may not be either
        if len(answers) < n_best:
            passage = questions[batch.question[row]].passage
            place = tokens.row(passage)
            s, e = first[row, k], last[row, k]
            start, end = int(tokens.starts[place][s + shift[row]]), int(tokens.ends[place][e + shift[row]])
            logit_pair = (float(logits[0][row, s]), float(logits[1][row, e]))
            answers.setdefault(passages[passage][start:end], (float(score), start, *logit_pair))
    return [_probable(answers, none, null) for answers, none in zip(found, _null(batch, logits), strict=True)]


def _null(batch: Windows, logits: tuple[np.ndarray, np.ndarray]) -> list[Scored]:
    """For each question its lowest scores of [CLS]."""
    start, end = logits[0][:, 0], logits[1][:, 0]
    order = np.lexsort((start + end, batch.question))
    _, begins = np.unique(batch.question[order], return_index=True)  # every question has a window
    return [(float(start[row] + end[row]), 0, float(start[row]), float(end[row])) for row in order[begins]]


def _probable(answers: dict[str, Scored], none: Scored, null: bool) -> Answers:
    odds = none[0] - max((score for score, *_ in answers.values()), default=0.0)  # NOTHING's
    if null:
        answers = dict(sorted([*answers.items(), ("", none)], key=lambda item: -item[1][0]))
    if not answers:
        return Answers(candidates=[NOTHING], null_odds=odds)
    scores = np.array([score for score, *_ in answers.values()])
    weights = np.exp(scores - scores.max())
    candidates = [
        Candidate(text=text, start=start, probability=float(p), start_logit=start_logit, end_logit=end_logit)
        for (text, (_, start, start_logit, end_logit)), p in zip(answers.items(), weights / weights.sum(), strict=True)
    ]
    return Answers(candidates=candidates, null_odds=odds)
