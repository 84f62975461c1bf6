"""Several instances in one row, so that less of a batch is padding: the same samples, labels and losses in fewer rows.

Nothing of an instance moves but its place: the labels stay as they were, [n, ...] in the order of the samples, and what
pointed into an instance's own row points into the flattened rows [R*T] instead. Tokens carry the number of their
instance, by which attention keeps to it, and their position in it.
"""

from collections.abc import Mapping

import numpy as np

SHAPES = 32  # different numbers of rows at most, for each is traced and compiled anew; few of them occur


def first_fit(lengths: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The row of each instance of `lengths` [n] and its first column there, in rows of `size` tokens.

    The longest come first, each in the first row that has room: at most 11/9 of the fewest rows possible, and 2/3 of
    one (Dosa 2007, "The tight bound of first fit decreasing bin-packing algorithm").
    """
    assert lengths.max(initial=0) <= size, "an instance is no longer than the data's rows"
    used = np.zeros(len(lengths), np.int64)
    rows, columns = np.zeros((2, len(lengths)), np.int64)
    for instance in np.argsort(-lengths, kind="stable"):
        row = int(np.argmax(used + lengths[instance] <= size))
        rows[instance], columns[instance] = row, used[row]
        used[row] += lengths[instance]
    return rows, columns


def rounded(rows: int, most: int) -> int:
    """`rows` and as many empty ones as leave no more than `SHAPES` different numbers up to `most`."""
    step = -(-most // SHAPES)
    return min(-(-rows // step) * step, most)


def pack(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A batch of n padded instances [n, T], as it is stored, in R <= n rows [R, T].

    `input_mask` becomes the number of a token's instance, 1 to n, 0 where there is padding; `position_ids` [R, T] and
    `first_tokens` [n], each instance's place of [CLS] in the flattened rows, are new.
    """
    mask = batch["input_mask"]
    count, size = mask.shape
    rows, columns = first_fit(mask.sum(axis=1), size)
    first = rows * size + columns
    shape = (rounded(int(rows.max(initial=0)) + 1, count), size)
    instance, token = np.nonzero(mask)

    def placed(values: np.ndarray) -> np.ndarray:
        """What each token has [tokens], at its place."""
        flat = np.zeros(shape[0] * size, np.int32)
        flat[first[instance] + token] = values
        return flat.reshape(shape)

    return dict(batch) | {
        "input_ids": placed(batch["input_ids"][instance, token]),
        "segment_ids": placed(batch["segment_ids"][instance, token]),
        "input_mask": placed(instance + 1),
        "position_ids": placed(token),
        "masked_lm_positions": (first[:, None] + batch["masked_lm_positions"]).astype(np.int32),
        "first_tokens": first.astype(np.int32),
    }
