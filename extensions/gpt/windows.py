"""Divide a stream of tokens into windows that fit a model, so that each token but the first is predicted once.

Windows of `length` inputs begin every `stride` tokens. The first one counts all of its targets. Each later one counts
only its last `stride` targets, which see at least `length - stride` tokens of context. A stride of 32 is
`--overlapping-eval 32` of Megatron-LM; a stride of `length` makes windows without overlap.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Window(NamedTuple):
    """Inputs are tokens[begin:end], targets tokens[begin + 1:end + 1]; targets from place `first` on are counted."""

    begin: int
    end: int
    first: int  # place in the window, from 0


def windows(tokens: int, length: int, stride: int) -> Iterator[Window]:
    """Yield the windows of a stream of this many tokens; every target is counted in exactly one of them."""
    assert 1 <= stride <= length, "targets between windows would be lost"
    targets = tokens - 1
    counted, begin = 0, 0
    while counted < targets:
        end = min(begin + length, targets)
        yield Window(begin, end, counted - begin)
        counted, begin = end, begin + stride


def count(tokens: int, length: int, stride: int) -> int:
    """Return the number of windows of a stream of this many tokens."""
    return max(0, -(-(tokens - 1 - length) // stride)) + (tokens > 1)
