"""Batches of texts of similar length for inference, so that little padding is computed."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bert.text import sampler

LENGTH_MULTIPLE = 16  # tokens: batches are padded to a multiple; training, which compiles more, takes a larger one


class Batches:
    """Divides rows of tokens into batches of similar length.

    All batches have the same number of rows, also in later calls with as many rows. So only widths differ, and little
    is compiled anew.
    """

    def __init__(self, size: int, longest: int) -> None:
        """size: maximum number of rows in a batch. longest: maximum number of tokens in a row."""
        self.size, self.longest = size, longest
        self._rows = 0

    def __call__(self, lengths: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """Yield for each batch the indices of its rows and its number of positions, the shortest rows first.

        lengths: of all rows, in tokens. The first batch is filled up with copies of the shortest row.
        """
        if not len(lengths):
            return
        order = np.argsort(lengths, kind="stable")
        self._rows = max(self._rows, math.ceil(len(order) / math.ceil(len(order) / self.size)))
        rows = min(self._rows, len(order))
        for chosen in np.concatenate([np.repeat(order[:1], -len(order) % rows), order]).reshape(-1, rows):
            yield chosen, sampler.padded_length(int(lengths[chosen].max()), LENGTH_MULTIPLE, self.longest)


def padded(rows: Sequence[np.ndarray], width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids of rows, filled up to `width`, and the mask of what are tokens, both [n, width] int32."""
    ids, mask = np.full((len(rows), width), pad_id, np.int32), np.zeros((len(rows), width), np.int32)
    for place, row in enumerate(rows):
        ids[place, : len(row)], mask[place, : len(row)] = row, 1
    return ids, mask
