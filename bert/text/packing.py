"""Sequence packing: several instances in one row, so that a batch has fewer rows and less padding.

Samples, labels and losses are unchanged. Positions within an instance's own row become positions in the flattened rows
[R*T]. Each token has the number of its instance, to which its attention is limited, and its position within the
instance. Predictions stay in their order, without the unused ones between those of two instances, so that the scores of
the vocabulary are computed for few others.
"""

from collections.abc import Mapping

import numpy as np

MAX_ROW_COUNTS = 32  # limit on different numbers of rows, since each is compiled separately; only few occur


def first_fit(lengths: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the first column of each instance of `lengths` [n] in rows of `size` tokens.

    First fit decreasing: the longest first, each in the first row with enough space. It needs at most 11/9 of the
    minimum + 2/3 rows (Dosa 2007, "The tight bound of first fit decreasing bin-packing algorithm").
    """
    assert lengths.max(initial=0) <= size, "an instance is longer than a row"
    used = np.zeros(len(lengths), np.int64)
    rows, columns = np.zeros((2, len(lengths)), np.int64)
    for instance in np.argsort(-lengths, kind="stable"):
        row = int(np.argmax(used + lengths[instance] <= size))
        rows[instance], columns[instance] = row, used[row]
        used[row] += lengths[instance]
    return rows, columns


def rounded(rows: int, limit: int) -> int:
    """Return `rows` rounded up so that there are at most `MAX_ROW_COUNTS` different numbers up to `limit`."""
    step = -(-limit // MAX_ROW_COUNTS)
    return min(-(-rows // step) * step, limit)


def pack(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Pack a batch of n padded instances [n, T], as stored, into R <= n rows [R, T].

    `input_mask` becomes the number of a token's instance, 1 to n, or 0 for padding. The predictions of all instances
    follow one another in R rows [R, P], or in more rows if R are too few. New features are `position_ids` [R, T] and
    `first_tokens` [n], the position of each instance's [CLS] in the flattened rows.
    """
    mask = batch["input_mask"]
    count, size = mask.shape
    rows, columns = first_fit(mask.sum(axis=1), size)
    first = rows * size + columns
    shape = (rounded(int(rows.max(initial=0)) + 1, count), size)
    instance, token = np.nonzero(mask)

    def scatter(values: np.ndarray) -> np.ndarray:
        """Move one value per token [tokens] into the rows."""
        flat = np.zeros(shape[0] * size, np.int32)
        flat[first[instance] + token] = values
        return flat.reshape(shape)

    predicted = np.nonzero(batch["masked_lm_weights"])
    width = batch["masked_lm_weights"].shape[1]
    needed = -(-len(predicted[0]) // width)
    # As many rows as the tokens have, if they are enough: each different number of rows is compiled separately.
    height = shape[0] if needed <= shape[0] else rounded(needed, count)

    def joined(values: np.ndarray) -> np.ndarray:
        """Put the values of all predictions [n, P] one after the other."""
        flat = np.zeros(height * width, values.dtype)
        flat[: len(predicted[0])] = values[predicted]
        return flat.reshape(height, width)

    return dict(batch) | {
        "input_ids": scatter(batch["input_ids"][instance, token]),
        "segment_ids": scatter(batch["segment_ids"][instance, token]),
        "input_mask": scatter(instance + 1),
        "position_ids": scatter(token),
        "masked_lm_positions": joined((first[:, None] + batch["masked_lm_positions"]).astype(np.int32)),
        "masked_lm_ids": joined(batch["masked_lm_ids"]),
        "masked_lm_weights": joined(batch["masked_lm_weights"]),
        "first_tokens": first.astype(np.int32),
    }
