"""Texts and pairs of texts as model input: [CLS] first [SEP], or [CLS] first [SEP] second [SEP].

What does not fit is cut off, or read in windows that overlap. n examples, W windows, S positions.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert.core.errors import UsageError
from bert.model.heads import INPUTS as NAMES
from bert.text.tokenization import Tokenizer
from bert.text.windows import cut

MOST_UNKNOWN = 0.01  # share of [UNK] above which there is a warning, as for pretraining


@dataclass
class EncodingCounts:
    """How many inputs were made of texts, and how much of the texts did not fit or is not in the vocabulary."""

    inputs: int = 0
    long: int = 0
    """inputs that do not fit at once"""
    tokens: int = 0
    lost: int = 0
    """tokens that are cut off"""
    unknown: int = 0
    """tokens that are [UNK]"""
    empty: int = 0
    """inputs with a text that has no token, such as one of zero-width spaces"""

    @property
    def loses(self) -> bool:
        """Whether there is something to report."""
        return self.long > 0 or self.empty > 0 or self.unknown > MOST_UNKNOWN * self.tokens

    def add(self, tokens: np.ndarray, in_one_input: np.ndarray, read: np.ndarray) -> None:
        """Count texts. tokens: of each. in_one_input: how many one input can hold. read: how many all inputs read."""
        self.inputs += len(tokens)
        self.long += int((in_one_input < tokens).sum())
        self.tokens += int(tokens.sum())
        self.lost += int((tokens - read).sum())

    def report(self, where: object, length: int) -> None:
        """Print a line for each kind of loss. where: the file. length: tokens of an input."""
        if self.unknown > MOST_UNKNOWN * self.tokens:
            share = f"{self.unknown / self.tokens:.1%} of all tokens are [UNK]"
            print(f"warning: {where}: {share}: these words are not in the model's vocabulary", file=sys.stderr)
        if self.empty:
            many = f"{self.empty:,} of {self.inputs:,} inputs"
            print(
                f"note: {where}: {many} have a text without a token, of which the model reads nothing", file=sys.stderr
            )
        if not self.long:
            return
        many = f"{self.long:,} of {self.inputs:,} inputs ({self.long / self.inputs:.1%}) do not fit {length} tokens"
        what = "are read in windows"
        if self.lost:
            what = f"are cut; {self.lost / self.tokens:.1%} of all tokens are not read (--data.length, --windows)"
        print(f"note: {where}: {many} and {what}", file=sys.stderr)


def pairs(
    tokenizer: Tokenizer,
    firsts: Sequence[str],
    seconds: Sequence[str | None],
    length: int,
    first_length: int = 0,
    seen: EncodingCounts | None = None,
    odd_to_longer: bool = False,
) -> dict[str, np.ndarray]:
    """Return ids, mask and segments [n, length] int32 of texts (second None) and pairs of texts.

    first_length: tokens to keep of the first text of a pair; 0 keeps all that fit. What does not fit then is cut from
    the longer text, token by token, as `_truncate_seq_pair` of google-research/bert does. seen: counts what is cut.
    odd_to_longer: as in `shares`.
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
        raise _too_short(length, most)
    first, second = shares(first, second, length - special, odd_to_longer)
    if seen:
        seen.add(lengths[:count] + lengths[count:], first + second, first + second)
        seen.unknown += int((ids == tokenizer.unk_id).sum())
        seen.empty += int(((lengths[:count] == 0) | (paired & (lengths[count:] == 0))).sum())
    rows, mask, segments = _empty(tokenizer, count, length)
    for row in range(count):
        one = ids[splits[row] : splits[row] + first[row]]
        other = ids[splits[count + row] : splits[count + row] + second[row]] if paired[row] else None
        line = tokenizer.row(one, other)
        end = len(line.ids)
        rows[row, :end], segments[row, :end], mask[row, :end] = line.ids, line.segments, 1
    return dict(zip(NAMES, (rows, mask, segments), strict=True))


def windows(
    tokenizer: Tokenizer, texts: Sequence[str], length: int, stride: int, seen: EncodingCounts | None = None
) -> dict[str, np.ndarray]:
    """Return ids, mask and segments [W, length] int32 of the windows of texts, in order; a text that fits is one.

    `window` is the number of a window in its text, `windows` how many that text has, both [W, 1] int64. stride: tokens
    from the start of a window to the start of the next one. seen: counts the texts that do not fit.
    """
    ids, splits = tokenizer.encode(texts)
    room = length - tokenizer.special_tokens(paired=False)
    if room < 1:
        raise _too_short(length, length - room)
    tokens = np.diff(splits)
    if seen:
        seen.add(tokens, np.minimum(tokens, room), tokens)
        seen.unknown += int((ids == tokenizer.unk_id).sum())
        seen.empty += int((tokens == 0).sum())
    spans = [cut(int(count), room, stride) for count in tokens]
    numbers = [(number, len(cuts)) for cuts in spans for number in range(len(cuts))]
    flat = [(begin + first, count) for begin, cuts in zip(splits, spans, strict=False) for first, count in cuts]
    rows, mask, segments = _empty(tokenizer, len(flat), length)
    for row, (begin, count) in enumerate(flat):
        line = tokenizer.row(ids[begin : begin + count]).ids
        rows[row, : len(line)], mask[row, : len(line)] = line, 1
    of_text = np.array(numbers, np.int64).reshape(-1, 2)
    return dict(zip(NAMES, (rows, mask, segments), strict=True)) | {"window": of_text[:, :1], "windows": of_text[:, 1:]}


def _empty(tokenizer: Tokenizer, count: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids, mask and segments [count, length] int32 of rows without tokens."""
    rows = np.full((count, length), tokenizer.pad_id, np.int32)
    return rows, np.zeros_like(rows), np.zeros_like(rows)


def _too_short(length: int, special: int) -> UsageError:
    return UsageError(f"data.length {length}: the special tokens alone are {special}; give a larger value")


def shares(
    first: np.ndarray, second: np.ndarray, room: np.ndarray, odd_to_longer: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many tokens of each text are kept [n], so that both together have at most `room` [n].

    Tokens are removed from the longer text, and from the second one if both are equally long. odd_to_longer: if both
    are cut and `room` is odd, the longer text keeps one token more, or the second one if both are equally long, as in
    tokenizers.
    """
    half = np.where(odd_to_longer & (first <= second), room // 2, room - room // 2)
    of_first = np.minimum(first, np.maximum(room - second, half))
    return of_first, np.minimum(second, room - of_first)
