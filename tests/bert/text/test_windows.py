"""Windows cover every token, and each token has the one with most context."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from bert.text import windows


@given(st.integers(0, 90), st.integers(1, 23), st.integers(1, 29))
def test_every_passage_token_is_in_a_window_and_none_is_longer_than_its_room(tokens, room, stride):
    spans = windows.cut(tokens, room, stride)
    seen = {first + k for first, length in spans for k in range(length)}
    assert seen == set(range(tokens))
    assert all(length <= room for _, length in spans)
    assert [sum(span) == tokens for span in spans] == [False] * (len(spans) - 1) + [True]  # it stops at the end


@example(382, 381, 128)  # the second window is so much shorter that its length counts for more than a token
@given(st.integers(0, 90), st.integers(1, 23), st.integers(1, 29))
def test_each_token_has_one_window_and_it_is_the_one_with_most_context(tokens, room, stride):
    spans, best = windows.cut(tokens, room, stride), windows.best_window(tokens, room, stride)
    assert best.shape == (tokens,)
    for token in range(tokens):
        scores = [
            min(token - first, first + length - 1 - token) + length / 100 if first <= token < first + length else -1
            for first, length in spans
        ]
        assert best[token] == scores.index(max(scores))


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=30)


@given(SIZES, st.integers(1, 23), st.integers(1, 29))
def test_each_span_has_the_window_with_most_context_of_those_that_hold_its_first_token(sizes, room, stride):
    end = np.cumsum(sizes)
    begin = end - sizes
    spans = windows.cut(int(end[-1]), room, stride)
    best = windows.most_context(begin, end, int(end[-1]), room, stride)
    for here, there, window in zip(begin, end, best, strict=True):
        scores = [
            min(here - first, first + length - there) + length / 100 if first <= here < first + length else -np.inf
            for first, length in spans
        ]
        assert window == scores.index(max(scores))
    assert (np.diff(best) >= 0).all()  # so the order of spans is that of the windows


@given(SIZES, st.integers(0, 13), st.integers(1, 29))
def test_a_span_lies_within_its_window_where_windows_overlap_by_its_length(sizes, more, stride):
    room = stride + max(sizes) - 1 + more
    end = np.cumsum(sizes)
    spans = np.array(windows.cut(int(end[-1]), room, stride))
    best = windows.most_context(end - sizes, end, int(end[-1]), room, stride)
    assert (end <= spans[best].sum(axis=1)).all()
