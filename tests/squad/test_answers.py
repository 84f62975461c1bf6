"""Scores become the best answers, cut from the passage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squad import answers
from squad.examples import Example
from squad.features import Places, Tokens

PASSAGE = "ab cd ef gh ij kl mn op qr"  # 9 tokens of 2 letters
N = 9


def one_question(spans, best, size=13, offset=3):
    """A question about PASSAGE read through windows `spans`; `best` lists each window's max-context tokens."""
    count = len(spans)
    max_context = np.zeros((count, size), bool)
    for row, tokens in enumerate(best):
        max_context[row, [offset + token - spans[row][0] for token in tokens]] = True
    nothing = np.zeros((count, size), np.int32)
    first, length = np.array(spans).T
    batch = Places(nothing[:, 0], nothing[:, 0] + offset, first, length, max_context)
    starts = 3 * np.arange(N)
    tokens = Tokens(np.zeros(N, np.int32), np.array([0, N]), starts, starts + 2)
    return [Example(id="q", question="?", passage=0, answers=())], tokens, batch


def predict(spans, best, start, end, n_best=20, longest=30, null=False):
    questions, tokens, batch = one_question(spans, best)
    found = answers.n_best_answers(questions, [PASSAGE], tokens, batch, (start, end), n_best, longest, null)
    return found[0] if null else found[0].candidates


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 30))
def test_the_best_spans_are_those_of_a_full_search(seed, longest, n_best):
    rng = np.random.default_rng(seed)
    start, end = rng.normal(size=(2, 2, 13))
    spans, best = [(0, 6), (4, 5)], [range(5), range(5, 9)]
    scored: dict[str, float] = {}
    for row, (first, length) in enumerate(spans):
        for s in best[row]:
            for e in range(s, min(s + longest, first + length)):
                score = start[row, 3 + s - first] + end[row, 3 + e - first]
                text = PASSAGE[3 * s : 3 * e + 2]
                scored[text] = max(score, scored.get(text, -np.inf))
    expected = sorted(scored, key=lambda text: -scored[text])[:n_best]
    found = predict(spans, best, start, end, n_best, longest)
    assert [candidate.text for candidate in found] == expected
    weights = np.exp([scored[text] for text in expected])
    assert [candidate.probability for candidate in found] == pytest.approx(weights / weights.sum())


def test_scores_outside_the_passage_or_of_a_poorer_window_do_not_count():
    start, end = np.zeros((2, 2, 13))
    start[0, 0] = end[0, 0] = start[1, 12] = end[1, 12] = 99  # [CLS] and padding
    start[0, 3 + 5] = end[0, 3 + 5] = 50  # token 5 has more context in the other window
    start[1, 3 + 2], end[1, 3 + 2] = 3, 2  # token 6
    assert predict([(0, 6), (4, 5)], [range(5), range(5, 9)], start, end, longest=1)[0].text == "mn"


def test_an_answer_never_ends_before_it_starts():
    start, end = np.zeros((2, 1, 13))
    start[0, 8], end[0, 5] = 9, 9
    best = predict([(0, 9)], [range(9)], start, end)
    assert all(candidate.text for candidate in best)
    assert {best[0].text[:2], best[0].text[-2:]} & {"kl", "ef"}


def test_a_passage_without_a_word_is_answered_with_nothing():
    start, end = np.ones((2, 1, 13))
    assert predict([(0, 0)], [[]], start, end) == [answers.NO_ANSWER]
    found = predict([(0, 0)], [[]], start, end, null=True)
    assert [candidate.text for candidate in found.candidates] == [""]
    assert found.best(np.inf) == answers.NO_ANSWER
    assert np.isfinite(found.null_odds)


def test_no_answer_has_its_lowest_score_in_any_window_and_odds_over_the_best_answer():
    start, end = np.zeros((2, 2, 13))
    start[:, 0], end[:, 0] = [2.5, 0.75], [1.0, 1.5]  # 3.5 in the first window, 2.25 in the second
    start[0, 3 + 1], end[0, 3 + 2] = 3, 2  # "cd ef" 5, alone 3 and 2, others less
    found = predict([(0, 6), (4, 5)], [range(5), range(5, 9)], start, end, n_best=9, null=True)
    assert found.null_odds == 2.25 - 5
    (none,) = (candidate for candidate in found.candidates if not candidate.text)
    assert (none.start_logit, none.end_logit) == (0.75, 1.5)
    scores = [candidate.start_logit + candidate.end_logit for candidate in found.candidates]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 9 + 1
    weights = np.exp(scores)
    assert [c.probability for c in found.candidates] == pytest.approx(weights / weights.sum())


@pytest.mark.parametrize(("threshold", "text"), [(None, "cd"), (0.5, "cd"), (0.25, "cd"), (0.2, ""), (-np.inf, "")])
def test_the_answer_is_none_only_above_the_threshold(threshold, text):
    start, end = np.zeros((2, 1, 13))
    start[0, 3 + 1], end[0, 3 + 1], start[0, 0] = 5, 5, 10.25
    found = predict([(0, 9)], [range(9)], start, end, longest=1, null=True)
    assert found.candidates[0].text == ""
    assert found.best(threshold).text == text


def test_windows_are_scored_alike_in_one_go_and_in_many(monkeypatch):
    rng = np.random.default_rng(3)
    start, end = rng.normal(size=(2, 7, 13))
    whole = predict([(0, 6)] * 7, [range(6)] * 7, start, end, n_best=11)
    monkeypatch.setattr(answers, "WINDOWS", 3)
    assert predict([(0, 6)] * 7, [range(6)] * 7, start, end, n_best=11) == whole
