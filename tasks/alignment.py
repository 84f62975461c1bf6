"""Words as word pieces in windows of a fixed length, and back: which position of which window stands for each word.

A word is read at its first piece (Devlin et al. 2018, section 5.3); its other pieces have no tag. A word without any
piece, as U+00AD alone, becomes [UNK], so that no later word takes its tag. A sentence that is longer than a window is
cut into windows that overlap, and each word is read in the one where it has the most context on both sides. A word that
is longer than their overlap can be cut by all of them; it is read in a window of its own, in the middle.

W windows, S positions, n words of all sentences together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from bert.text.windows import cut, most_context

NO_LABEL = -1  # of positions without loss
SPECIAL = 2  # positions of [CLS] and [SEP] in each window
SHORTEST = SPECIAL + 1


class Pieces(Protocol):
    """The needed part of `bert.text.tokenization.Tokenizer`, whose module imports TensorFlow."""

    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int

    def encode_words(self, words: Sequence[str], /) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of the pieces of all words, flat, and their row splits [len(words) + 1]."""


@dataclass(frozen=True, kw_only=True)
class Windows:
    """The windows of some sentences, in order, without windows in which no word is read.

    The words of all sentences, in order, are read at `row` and `position`. That is also the order of the positions: a
    word is read after all words before it, in the same window or in a later one.
    """

    input_ids: np.ndarray  # [W, S] int32
    input_mask: np.ndarray  # [W, S] int32
    segment_ids: np.ndarray  # [W, S] int32, zeros
    sentence: np.ndarray  # [W] number of the sentence
    row: np.ndarray  # [n] window in which the word is read
    position: np.ndarray  # [n] position there of its first piece
    splits: np.ndarray  # [sentences + 1] sentence i has the words splits[i]:splits[i + 1]


@dataclass(frozen=True, kw_only=True)
class _Words:
    """The pieces of the words of all sentences, flat; each word has at least one."""

    ids: np.ndarray
    splits: np.ndarray  # [n + 1] word i has the pieces splits[i]:splits[i + 1]


def windows(tokenizer: Pieces, sentences: Sequence[Sequence[str]], length: int, stride: int) -> Windows:
    """Return the windows [CLS] pieces [SEP] of sentences, which are sequences of words.

    length: positions of a window, S. stride: pieces from the start of a window to the start of the next one in the same
    sentence. If a word has too many pieces for a window, its last pieces are left out.
    """
    assert length >= SHORTEST and stride >= 1, "the configuration checks both"
    room = length - SPECIAL
    words = _words(tokenizer, [word for sentence in sentences for word in sentence], room)
    splits = np.cumsum([0, *map(len, sentences)])
    cuts: list[tuple[int, int, int]] = []  # sentence, first of all pieces and number of pieces of each window
    row = np.zeros(splits[-1], np.int64)
    for number, (begin, end) in enumerate(pairwise(splits)):
        if begin < end:
            best, spans = _read_in(words.splits[begin : end + 1], room, stride)
            row[begin:end] = len(cuts) + best
            cuts += [(number, words.splits[begin] + first, count) for first, count in spans]
    table = np.array(cuts, np.int64).reshape(-1, 3)
    sentence, first, count = table.T
    position = 1 + words.splits[:-1] - first[row]
    return Windows(
        **_inputs(tokenizer, words.ids, first, count, length),
        sentence=sentence,
        row=row,
        position=position,
        splits=splits,
    )


def labels(batch: Windows, tags: Sequence[np.ndarray]) -> np.ndarray:
    """Return the label of each position [W, S] int32 for the tags of the words of each sentence, as integers.

    A position has the label -1 if no word is read there.
    """
    flat = np.concatenate([np.zeros(0, np.int32), *tags])
    assert [len(row) for row in tags] == np.diff(batch.splits).tolist(), "one tag for each word"
    result = np.full(batch.input_ids.shape, NO_LABEL, np.int32)
    result[batch.row, batch.position] = flat
    return result


def collect(batch: Windows, predicted: np.ndarray) -> list[np.ndarray]:
    """Return the values of each sentence's words [words, ...]. predicted: the values of all positions [W, S, ...]."""
    values = predicted[batch.row, batch.position]
    return [values[begin:end] for begin, end in pairwise(batch.splits)]


def _words(tokenizer: Pieces, words: Sequence[str], room: int) -> _Words:
    """Return the pieces of each word: [UNK] if it has none, the first ones if it has more than `room`."""
    ids, splits = tokenizer.encode_words(words)
    counts = np.diff(splits)
    kept_counts = np.clip(counts, 1, room)
    new_splits = np.concatenate([[0], np.cumsum(kept_counts)])
    word = np.repeat(np.arange(len(words)), kept_counts)
    source = splits[word] + np.arange(new_splits[-1]) - new_splits[word]  # where each piece is in `ids`
    source[counts[word] == 0] = len(ids)
    return _Words(ids=np.append(ids, tokenizer.unk_id)[source], splits=new_splits)


def _read_in(splits: np.ndarray, room: int, stride: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Return the window in which each word of a sentence is read, and first piece and length of these windows."""
    begin, end, tokens = splits[:-1] - splits[0], splits[1:] - splits[0], int(splits[-1] - splits[0])
    spans = cut(tokens, room, stride)
    if len(spans) == 1:
        return np.zeros(len(begin), np.int64), spans
    chosen, first = most_context(begin, end, tokens, room, stride), np.array(spans)[:, 0]
    is_cut = end > first[chosen] + room  # such a word is the last one that its window has, so the order stays
    own = np.clip(begin - (room - (end - begin)) // 2, 0, tokens - room)
    _, words, best = np.unique(2 * chosen + is_cut, return_index=True, return_inverse=True)
    return best, [(int(own[word]), room) if is_cut[word] else spans[chosen[word]] for word in words]


def _inputs(
    tokenizer: Pieces, ids: np.ndarray, first: np.ndarray, count: np.ndarray, length: int
) -> dict[str, np.ndarray]:
    """Return the features [W, S] of windows that have the pieces first:first + count [W] of `ids`."""
    at, last = np.arange(length), count[:, None] + 1
    source = np.where((at > 0) & (at < last), first[:, None] + at - 1, len(ids))
    input_ids = np.append(ids, tokenizer.pad_id).astype(np.int32)[source]
    input_ids[:, 0] = tokenizer.cls_id
    input_ids[at == last] = tokenizer.sep_id
    input_mask = (at <= last).astype(np.int32)
    return {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": np.zeros_like(input_mask)}
