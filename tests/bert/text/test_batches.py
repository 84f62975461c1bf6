"""Every row is in a batch, beside rows of similar length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.text.batches import LENGTH_MULTIPLE, Batches

LONGEST = 61


@given(st.lists(st.integers(1, LONGEST), min_size=1, max_size=70), st.integers(1, 19))
def test_every_row_is_in_a_batch_that_is_wide_enough(lengths: list[int], size: int) -> None:
    seen: set[int] = set()
    last, rows = 0, set()
    for chosen, width in Batches(size, LONGEST)(np.array(lengths)):
        longest = max(lengths[row] for row in chosen)
        assert longest <= width < longest + LENGTH_MULTIPLE and width <= LONGEST
        assert last <= longest  # the shortest first
        last = longest
        rows.add(len(chosen))
        seen |= set(chosen.tolist())
    assert seen == set(range(len(lengths)))
    assert len(rows) == 1 and rows.pop() <= size


@pytest.mark.parametrize(("counts", "rows"), [([37, 20], 13), ([5, 300], 16)])
def test_later_calls_have_batches_of_as_many_rows(counts: list[int], rows: int) -> None:
    batches = Batches(16, LONGEST)
    found = [{len(chosen) for chosen, _ in batches(np.full(count, 7))} for count in counts]
    assert found[-1] == {rows}


def test_no_rows_make_no_batch() -> None:
    assert list(Batches(3, LONGEST)(np.zeros(0, int))) == []
