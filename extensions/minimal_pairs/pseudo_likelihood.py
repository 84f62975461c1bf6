"""Log probabilities of the tokens of texts by a masked language model, of which pseudo-log-likelihoods are the sums.

- `masked`: each token is masked in turn and predicted from all others (Salazar et al. 2020, "Masked Language Model
  Scoring").
- `word_l2r`: as `masked`, but the tokens behind it in the same word are masked, too (Kauf and Ivanova 2023, "A Better
  Way to Do Masked Language Model Scoring"). Otherwise the later pieces of a rare word give away the earlier ones.
- `unmasked`: nothing is masked, and all tokens of a row are predicted in one pass, [CLS] and [SEP] too.

A pair of sentences that differs in one token has the same copy of both where that token is masked. Such a copy is
computed once.

R rows, W positions of a group of rows, C copies, P places of a copy, Q words that are asked for.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bert.core.errors import UsageError
from bert.masked_words import MaskedWords
from bert.text import sampler
from bert.text.batches import LENGTH_MULTIPLE, padded
from bert.text.tokenization import WordPieceTokenizer

Method = Literal["masked", "word_l2r", "unmasked"]

UNPADDED = 32  # tokens: shorter rows are computed at their own length, longer ones padded to a multiple
GROUP = 1 << 20  # ids of masked copies that are in memory at once


class _Copies(NamedTuple):
    """What is computed of R rows: copies, and the words that are asked for, sorted by copy."""

    ids: np.ndarray  # [C, W]
    lengths: np.ndarray  # [C]
    places: np.ndarray  # [C, P] positions at which words are predicted
    words: np.ndarray  # [Q, 3] copy, which of its places, token id
    order: np.ndarray  # [Q] number of each word among the tokens of all rows


def log_probabilities(
    model: MaskedWords, rows: Sequence[np.ndarray], method: Method
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of each row, the longest first, and the log probabilities of its tokens.

    rows: token ids with [CLS] and [SEP] and at least one token between them, none longer than the model's positions.
    The result has all tokens of a row for `unmasked`, and otherwise those between [CLS] and [SEP]. Raise UsageError if
    the tokenizer does not tell which pieces go on with a word, IntegrityError if the model's scores are not finite.
    """
    continues = _continuations(model, method)
    lengths = np.array([len(row) for row in rows], np.int64)
    widths = np.array([_width(length, model.config.max_position_embeddings) for length in lengths.tolist()])
    for width in np.unique(widths)[::-1].tolist():
        members = np.flatnonzero(widths == width)
        step = max(1, GROUP // width**2)
        for begin in range(0, len(members), step):
            chosen = members[begin : begin + step]
            ids, _ = padded([rows[row] for row in chosen], width, model.tokenizer.pad_id)
            if method == "unmasked":
                counts, copies = lengths[chosen], _unmasked(ids, lengths[chosen])
            else:
                counts = lengths[chosen] - 2
                copies = _masked(ids, lengths[chosen], model.tokenizer.mask_id, continues)
            of_tokens = np.empty(len(copies.order))
            of_tokens[copies.order] = _ask(model, copies)
            yield from zip(chosen.tolist(), np.split(of_tokens, np.cumsum(counts)[:-1]), strict=True)


def _continuations(model: MaskedWords, method: Method) -> np.ndarray | None:
    """Return which tokens of the vocabulary go on with a word [V], or None if the method does not ask."""
    if method != "word_l2r":
        return None
    if not isinstance(model.tokenizer, WordPieceTokenizer):
        raise UsageError("word_l2r: needs a WordPiece vocabulary, whose ## tells the pieces of a word; score by masked")
    return model.tokenizer.is_continuation


def _width(length: int, limit: int) -> int:
    return length if length <= UNPADDED else sampler.padded_length(length, LENGTH_MULTIPLE, limit)


def _unmasked(ids: np.ndarray, lengths: np.ndarray) -> _Copies:
    """Return the rows [R, W] as they are, with a word at each of their places."""
    row, place = np.nonzero(np.arange(ids.shape[1]) < lengths[:, None])
    places = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    return _Copies(ids, lengths, places, np.stack([row, place, ids[row, place]], axis=1), np.arange(len(row)))


def _masked(ids: np.ndarray, lengths: np.ndarray, mask: int, continues: np.ndarray | None) -> _Copies:
    """Return a copy of the rows [R, W] for each token between [CLS] and [SEP], in which it is masked; none twice."""
    inner = lengths - 2
    row = np.repeat(np.arange(len(ids)), inner)  # [C], as the next
    place = 1 + np.arange(len(row)) - np.repeat(np.cumsum(inner) - inner, inner)
    masked, words = ids[row], ids[row, place]
    masked[np.arange(len(row)), place] = mask
    if continues is not None:
        number = np.cumsum(~continues[ids], axis=1)  # [R, W] of the word
        behind = np.arange(ids.shape[1]) > place[:, None]
        masked[behind & (number[row] == number[row, place][:, None])] = mask
    keys = np.ascontiguousarray(np.concatenate([masked, place[:, None].astype(np.int32)], axis=1))
    _, first, copy = np.unique(keys.view(f"V{keys.itemsize * keys.shape[1]}").ravel(), True, True)
    order = np.argsort(copy, kind="stable")
    queries = np.stack([copy, np.zeros_like(copy), words], axis=1)[order]
    return _Copies(masked[first], lengths[row[first]], place[first, None], queries, order)


def _ask(model: MaskedWords, copies: _Copies) -> np.ndarray:
    """Return the log probability of each word [Q]. All batches of a group but the last have one shape."""
    total, size = copies.places.shape
    batch = max(1, model.batch // size)
    answers = []
    for begin in range(0, total, batch):
        end = min(begin + batch, total)
        count = min(batch, 1 << (end - begin - 1).bit_length())  # few different shapes: each one is compiled
        rows = np.minimum(np.arange(begin, begin + count), total - 1)  # the last ones may be a copy that no word is in
        first, last = np.searchsorted(copies.words[:, 0], [begin, end])
        copy, number, word = copies.words[first:last].T
        places = np.stack([np.repeat(np.arange(count), size), copies.places[rows].ravel()], axis=1)
        mask = np.arange(copies.ids.shape[1]) < copies.lengths[rows, None]
        queries = np.stack([(copy - begin) * size + number, word], axis=1)
        answers.append(model.ask(copies.ids[rows], mask, places, queries))
    return np.concatenate(answers)
