"""Texts and pairs of texts as model input: [CLS] first [SEP], or [CLS] first [SEP] second [SEP].

n examples, S positions.
"""

from collections.abc import Sequence

import numpy as np

from bert.errors import UsageError
from bert.inputs.tokenization import Tokenizer

NAMES = ("input_ids", "input_mask", "segment_ids")  # features of every record


def pairs(
    tokenizer: Tokenizer, firsts: Sequence[str], seconds: Sequence[str | None], length: int, first_length: int = 0
) -> dict[str, np.ndarray]:
    """Return ids, mask and segments [n, length] int32 of texts (second None) and pairs of texts.

    first_length: tokens to keep of the first text of a pair; 0 keeps all that fit. What does not fit then is cut from
    the longer text, token by token, as `_truncate_seq_pair` of google-research/bert does.
    """
    count = len(firsts)
    ids, splits = tokenizer.encode([*firsts, *(second or "" for second in seconds)])
    lengths = np.diff(splits)
    first, second = lengths[:count], lengths[count:]
    paired = np.array([text is not None for text in seconds], bool)
    if first_length:
        first = np.where(paired, np.minimum(first, first_length), first)
    special = np.where(paired, tokenizer.special_tokens(paired=True), tokenizer.special_tokens(paired=False))
    if length < (most := int(special.max(initial=0))):
        raise UsageError(f"data.length {length}: the special tokens alone are {most}; give a larger value")
    first, second = shares(first, second, length - special)
    rows = np.full((count, length), tokenizer.pad_id, np.int32)
    mask, segments = np.zeros_like(rows), np.zeros_like(rows)
    for row in range(count):
        one = ids[splits[row] : splits[row] + first[row]]
        other = ids[splits[count + row] : splits[count + row] + second[row]] if paired[row] else None
        line = tokenizer.row(one, other)
        end = len(line.ids)
        rows[row, :end], segments[row, :end], mask[row, :end] = line.ids, line.segments, 1
    return dict(zip(NAMES, (rows, mask, segments), strict=True))


def shares(first: np.ndarray, second: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many tokens of each text are kept [n], so that both together have at most `room` [n].

    Tokens are taken from the longer text; from the second one if they are equally long.
    """
    kept = np.minimum(first, np.maximum(room - second, room - room // 2))
    return kept, np.minimum(second, room - kept)
