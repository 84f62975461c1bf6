"""Every token but the first is predicted once, with the context that the published perplexities give it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.gpt import windows
from extensions.gpt.windows import Window


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, int, int]:
    length = draw(st.integers(1, 40))
    return draw(st.integers(0, 300)), length, draw(st.integers(1, length))


def megatron(tokens: int, length: int, stride: int) -> list[tuple[int, int]]:
    """(place in the stream, begin of the window) of each counted target, by masks over windows of a fixed length.

    Megatron-LM makes a window for each `stride` targets, fills it up with padding, and for all but the first
    multiplies the mask of all places but the last `stride` by zero.
    """
    counted = []
    for number in range(max(-(-max(tokens - 1 - stride, 0) // stride) + 1, 1)):
        begin = number * stride
        mask = np.array([begin + place + 1 < tokens for place in range(length)])
        if stride != length and number:
            mask[: length - stride] = False
        counted += [(begin + place + 1, begin) for place in np.flatnonzero(mask).tolist()]
    return counted


@given(streams())
def test_targets_and_contexts_are_those_of_megatron(stream: tuple[int, int, int]) -> None:
    counted = [
        (window.begin + place + 1, window.begin)
        for window in windows.windows(*stream)
        for place in range(window.first, window.end - window.begin)
    ]
    assert counted == megatron(*stream)
    assert [target for target, _ in counted] == list(range(1, stream[0]))


@given(streams())
def test_the_number_of_windows_is_known_before(stream: tuple[int, int, int]) -> None:
    assert windows.count(*stream) == len(list(windows.windows(*stream)))


def test_no_window_is_longer_than_the_model() -> None:
    assert list(windows.windows(13, 7, 3)) == [Window(0, 7, 0), Window(3, 10, 4), Window(6, 12, 4)]
    assert list(windows.windows(8, 7, 7)) == [Window(0, 7, 0)]
    assert list(windows.windows(1, 7, 3)) == []


def test_a_stride_beyond_the_length_would_lose_targets() -> None:
    with pytest.raises(AssertionError, match="lost"):
        next(windows.windows(13, 7, 8))
