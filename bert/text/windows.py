"""Overlapping windows over a text that is longer than the model's input, and which of them reads each token best.

The rule is that of Devlin et al. 2018 (github.com/google-research/bert, run_squad.py): windows start every `stride`
tokens, and a token that several of them hold is read in the one with the most context on both sides.
"""

from functools import lru_cache

import numpy as np

LENGTH_WEIGHT = 0.01  # of a window; it decides between windows with the same context


def cut(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return first token and length of each window of at most `room` tokens over a text of `tokens` tokens."""
    step, last = min(stride, room), max(0, tokens - room)
    return [(first, min(room, tokens - first)) for first in range(0, last + step, step)]


def most_context(begin: np.ndarray, end: np.ndarray, tokens: int, room: int, stride: int) -> np.ndarray:
    """Return, for each span of tokens begin:end [n], the window of `cut` that gives it the most context [n].

    Of the windows that hold the first token, that is the one with the greatest min(tokens left of the span, tokens
    right of it) + 0.01 * window length, the first of several. A window that ends within the span has less than none
    on the right, so it is chosen only where no window holds the whole span.
    """
    spans = np.array(cut(tokens, room, stride))
    first, length = spans[:, 0], spans[:, 1]
    step, begin, end = min(stride, room), begin[:, None], end[:, None]
    last = np.minimum(begin // step, len(spans) - 1)  # the last window that has the first token; few others do
    near = np.maximum(last - np.arange(-(-room // step), -1, -1), 0)
    stop = first[near] + length[near]
    context = np.minimum(begin - first[near], stop - end) + LENGTH_WEIGHT * length[near]
    best = np.argmax(np.where(begin < stop, context, -np.inf), axis=1)
    return np.take_along_axis(near, best[:, None], axis=1)[:, 0]


@lru_cache(maxsize=128)
def best_window(tokens: int, room: int, stride: int) -> np.ndarray:
    """Return for each token of a text the window of `cut` with the most context [tokens]."""
    at = np.arange(tokens)
    return most_context(at, at + 1, tokens, room, stride)
