"""Tokenised documents to BERT's training instances: pairs of segments with masked tokens (MLM). Pure NumPy.

What a pair is for: `nsp`, next sentence prediction: does the second segment follow the first in the text, or is it a
random one? (Devlin et al. 2019). `sop`, sentence order prediction: do both stand in their order, or are they swapped?
(Lan et al. 2020, and Megatron-LM). `none`: both segments always follow each other, and nothing is asked.

Pairs are planned in advance, by one walk through all documents (`plan`), or drawn while reading, from chunks of
sentences that were stored (`chunks`, `draw`). Either way a plan is nothing but offsets, and building and masking
work on whole batches of it.

    N instances, S tokens of a sequence, P predictions, V vocabulary, W words, n tokens of all documents

It follows `create_pretraining_data.py` of google-research/bert, but for four things. The shorter target length is
drawn for each instance, not for each document: there, one book in ten became nothing but fragments. A chunk has two
sentences if the document has: there, a lone one always got a random partner, and more than half of the pairs were
random. How much of an overlong segment is cut at its front is uniform, not the sum of coin flips. And a masked token
replaced at random never becomes a special one.
"""

import dataclasses
import itertools
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bert.inputs.vocabulary import SPECIAL

# Draws that many numbers in [0, 1) for each instance: count -> [N, count]. A generator's, or `hashing.Uniform`.
Uniform = Callable[[int], np.ndarray]

SPECIAL_PER_PAIR = 3  # [CLS] a [SEP] b [SEP]
COLUMNS = ("a_begin", "a_end", "b_begin", "b_end", "label")  # of a Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """How instances are paired, cut and masked."""

    max_seq_length: int
    max_predictions_per_seq: int
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    whole_word_mask: bool = False
    max_ngram: int = 1
    pairs: Literal["nsp", "sop", "none"] = "nsp"

    @property
    def room(self) -> int:
        """Tokens of both segments together."""
        return self.max_seq_length - SPECIAL_PER_PAIR


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens:
    """What the vocabulary says: special ids, the ids a random replacement may take, and which ids continue a word."""

    pad: int
    cls: int
    sep: int
    mask: int
    ordinary: np.ndarray  # [<= V]
    is_continuation: np.ndarray  # [V] bool

    @classmethod
    def of(cls, vocab: Sequence[str]) -> "Tokens":
        """Those of a vocabulary with BERT's special tokens."""
        pad, _, first, sep, mask = (vocab.index(token) for token in SPECIAL)
        reserved = [token in SPECIAL or token.startswith("[unused") for token in vocab]
        return cls(
            pad=pad,
            cls=first,
            sep=sep,
            mask=mask,
            ordinary=np.flatnonzero(~np.array(reserved)),
            is_continuation=np.array([token.startswith("##") for token in vocab]),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Documents:
    """Documents of token ids, flat. None is empty.

    Sentence s is `ids[sentences[s]:sentences[s + 1]]`; document d holds sentences `documents[d]:documents[d + 1]`.
    """

    ids: np.ndarray  # [n] int32
    sentences: np.ndarray  # [sentences + 1]
    documents: np.ndarray  # [documents + 1]

    @classmethod
    def from_sentences(cls, ids: np.ndarray, sentences: np.ndarray, documents: np.ndarray) -> "Documents":
        """As the constructor, but empty sentences and documents are allowed, and dropped."""
        keep = np.diff(sentences) > 0
        kept_before = np.concatenate([[0], np.cumsum(keep)])
        return cls(
            ids=ids,
            sentences=np.concatenate([sentences[:1], sentences[1:][keep]]),
            documents=np.unique(kept_before[documents]),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Of each instance the token ranges of its segments and a label: 1 if the second is random, or both are swapped."""

    a_begin: np.ndarray  # [N]
    a_end: np.ndarray
    b_begin: np.ndarray
    b_end: np.ndarray
    label: np.ndarray
    alone: int  # chunks left out: too short for two segments, with no other document to take the second from

    def __len__(self) -> int:
        return len(self.a_begin)

    def rows(self, index: np.ndarray | slice) -> "Plan":
        """The instances at `index`."""
        return Plan(**{name: getattr(self, name)[index] for name in COLUMNS}, alone=self.alone)


def concatenate(plans: Sequence[Plan]) -> Plan:
    """All instances of several plans."""
    joined = {name: np.concatenate([getattr(plan, name) for plan in plans]) for name in COLUMNS}
    return Plan(**joined, alone=sum(plan.alone for plan in plans))


def plan(documents: Documents, shape: Shape, rng: np.random.Generator) -> Plan:
    """Goes through all documents once, pairing chunks of sentences with the next or, for NSP, half the time a random
    one.

    A segment is a range of whole sentences (half of one, if a lone one cannot have a random partner); both together
    have at most `shape.room` tokens after the ends of the longer one are cut off at random.
    """
    room = shape.room
    starts, firsts = documents.sentences.tolist(), documents.documents.tolist()
    uniform = _numbers(rng)
    others = len(firsts) - 2 if shape.pairs == "nsp" else 0  # documents to take a random segment from
    pairs, alone = array("q"), 0
    for document in range(len(firsts) - 1):
        sentence, stop = firsts[document], firsts[document + 1]
        while sentence < stop:
            target = room if next(uniform) >= shape.short_seq_prob else 2 + int(next(uniform) * (room - 1))
            end = bisect_left(starts, starts[sentence] + target, min(sentence + 2, stop), stop)
            count = end - sentence
            middle = sentence + 1 + int(next(uniform) * (count - 1))  # segment a: at least one, not all if possible
            if count == 1 and not others:
                half = (starts[sentence] + starts[end]) // 2
                if half == starts[sentence] or shape.pairs == "nsp":
                    alone += 1
                else:
                    pairs.extend((starts[sentence], half, half, starts[end], 0))
                sentence = end
            elif not others or (count > 1 and next(uniform) >= 0.5):
                pairs.extend((starts[sentence], starts[middle], starts[middle], starts[end], 0))
                sentence = end
            else:
                other = int(next(uniform) * others)
                other += other >= document
                first = firsts[other] + int(next(uniform) * (firsts[other + 1] - firsts[other]))
                wanted = starts[first] + target - (starts[middle] - starts[sentence])
                last = bisect_left(starts, wanted, first + 1, firsts[other + 1])
                pairs.extend((starts[sentence], starts[middle], starts[first], starts[last], 1))
                sentence = middle  # the sentences that the random segment took the place of are used again
    a_begin, a_end, b_begin, b_end, label = np.array(pairs, np.int64).reshape(-1, 5).T
    a_begin, a_end, b_begin, b_end = _truncate(a_begin, a_end, b_begin, b_end, room, rng.random((len(label), 2)))
    found = Plan(a_begin=a_begin, a_end=a_end, b_begin=b_begin, b_end=b_end, label=label, alone=alone)
    return _swap(found, rng.random(len(label)) < 0.5) if shape.pairs == "sop" else found


def chunks(documents: Documents, shape: Shape) -> np.ndarray:
    """Cuts every document into chunks of whole sentences, each as many as fill a sequence (the last one fewer).

    Returns [M + 1] sentence numbers: chunk m has sentences `cuts[m]:cuts[m + 1]`.
    """
    starts, firsts = documents.sentences.tolist(), documents.documents.tolist()
    cuts = array("q", [0])
    for document in range(len(firsts) - 1):
        sentence, stop = firsts[document], firsts[document + 1]
        while sentence < stop:
            sentence = bisect_left(starts, starts[sentence] + shape.room, min(sentence + 2, stop), stop)
            cuts.append(sentence)
    return np.array(cuts)


def draw(chunk: Documents, partner: Documents, foreign: np.ndarray, shape: Shape, uniform: Uniform) -> Plan:
    """One pair for each chunk, for NSP with its second segment half the time from the partner of the same number.

    chunk, partner: N documents each, a chunk a document, the partners' tokens counted on from the chunks' (as
    if both were concatenated). foreign: [N] whether the partner is of another document. A chunk of one sentence
    always takes its partner's text; if partners are not for it, it is cut in half.
    """
    u = uniform(6)  # [N, 6]
    first, last = chunk.documents[:-1], chunk.documents[1:]
    begin = chunk.sentences[first]
    shorter = u[:, 0] < shape.short_seq_prob
    target = np.where(shorter, 2 + (u[:, 1] * (shape.room - 1)).astype(np.int64), shape.room)
    end = np.clip(np.searchsorted(chunk.sentences, begin + target), np.minimum(first + 2, last), last)
    count = end - first
    middle = first + 1 + (u[:, 2] * (count - 1)).astype(np.int64)  # segment a: at least one, not all if possible
    is_random = ((count == 1) | (foreign & (u[:, 3] < 0.5))) & (shape.pairs == "nsp")
    other, stop = partner.documents[:-1], partner.documents[1:]
    other = other + (u[:, 4] * (stop - other)).astype(np.int64)
    halved = (count == 1) & ~is_random
    a_end = np.where(halved, (begin + chunk.sentences[end]) // 2, chunk.sentences[middle])
    offset = len(chunk.ids)
    wanted = partner.sentences[other] + target - (a_end - begin)
    until = np.clip(np.searchsorted(partner.sentences, wanted), other + 1, stop)
    b_begin = np.where(is_random, partner.sentences[other] + offset, a_end)
    b_end = np.where(is_random, partner.sentences[until] + offset, chunk.sentences[end])
    a_begin, a_end, b_begin, b_end = _truncate(begin, a_end, b_begin, b_end, shape.room, uniform(2))
    label = is_random.astype(np.int64)
    found = Plan(a_begin=a_begin, a_end=a_end, b_begin=b_begin, b_end=b_end, label=label, alone=0)
    return _swap(found, uniform(1)[:, 0] < 0.5) if shape.pairs == "sop" else found


def _swap(plan: Plan, swapped: np.ndarray) -> Plan:
    """The plan with the segments of some instances [N] in the other order, and labelled so."""
    return Plan(
        a_begin=np.where(swapped, plan.b_begin, plan.a_begin),
        a_end=np.where(swapped, plan.b_end, plan.a_end),
        b_begin=np.where(swapped, plan.a_begin, plan.b_begin),
        b_end=np.where(swapped, plan.a_end, plan.b_end),
        label=swapped.astype(np.int64),
        alone=plan.alone,
    )


def _numbers(rng: np.random.Generator) -> Iterator[float]:
    """Numbers in [0, 1), drawn in blocks: one at a time costs NumPy twenty times as much."""
    return itertools.chain.from_iterable(rng.random(4096).tolist() for _ in itertools.repeat(None))


def _truncate(
    a_begin: np.ndarray, a_end: np.ndarray, b_begin: np.ndarray, b_end: np.ndarray, room: int, u: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Takes tokens from the longer segment, one by one, until both fit; u [N, 2] is the share taken from its front."""
    a, b = a_end - a_begin, b_end - b_begin
    excess = np.maximum(a + b - room, 0)
    from_a = np.minimum(excess, np.maximum(a - b, 0))  # until they are equally long ...
    from_b = np.minimum(excess, np.maximum(b - a, 0))
    rest = excess - from_a - from_b  # ... then in turns
    from_a, from_b = from_a + rest // 2, from_b + (rest + 1) // 2
    front_a, front_b = (u[:, 0] * (from_a + 1)).astype(np.int64), (u[:, 1] * (from_b + 1)).astype(np.int64)
    return a_begin + front_a, a_end - from_a + front_a, b_begin + front_b, b_end - from_b + front_b


def build(text: np.ndarray, plan: Plan, shape: Shape, tokens: Tokens) -> dict[str, np.ndarray]:
    """The unmasked sequences [CLS] a [SEP] b [SEP] [PAD]... of a plan of token ids `text` [n].

    Returns input_ids, input_mask, segment_ids [N, S] and next_sentence_labels [N, 1], all int64.
    """
    at = np.arange(shape.max_seq_length)  # [S]
    first_sep = (plan.a_end - plan.a_begin + 1)[:, None]  # [N, 1]
    last_sep = first_sep + (plan.b_end - plan.b_begin + 1)[:, None]
    in_b = at > first_sep
    source = np.where(in_b, plan.b_begin[:, None] - first_sep - 1, plan.a_begin[:, None] - 1) + at  # [N, S]
    ids = text[np.clip(source, 0, len(text) - 1)].astype(np.int64)
    ids[:, 0] = tokens.cls
    ids[(at == first_sep) | (at == last_sep)] = tokens.sep
    ids[at > last_sep] = tokens.pad
    inside = at <= last_sep
    return {
        "input_ids": ids,
        "input_mask": inside.astype(np.int64),
        "segment_ids": (in_b & inside).astype(np.int64),
        "next_sentence_labels": plan.label[:, None],
    }


def mask(features: dict[str, np.ndarray], shape: Shape, tokens: Tokens, uniform: Uniform) -> dict[str, np.ndarray]:
    """Masks `masked_lm_prob` of each sequence's tokens: 80 % of them become [MASK], 10 % a random token, 10 % stay.

    Returns all features, `input_ids` masked, with masked_lm_positions, masked_lm_ids [N, P] int64, masked_lm_weights
    [N, P] float32; weight 0 is no prediction. With `whole_word_mask` all pieces of a word are masked, or none. With
    `max_ngram` above 1, runs of up to so many words are masked together, a run of n with probability ~ 1/n.
    """
    ids, inside = features["input_ids"], features["input_mask"] == 1
    candidates = inside & (ids != tokens.cls) & (ids != tokens.sep)  # [N, S]
    wanted = np.rint(inside.sum(1) * shape.masked_lm_prob).astype(np.int64)  # [N]; [CLS] and [SEP] count too
    wanted = np.clip(wanted, 1, shape.max_predictions_per_seq)
    begins = candidates.copy()
    if shape.whole_word_mask:
        begins[:, 1:] &= ~(tokens.is_continuation[ids[:, 1:]] & candidates[:, :-1])
    words = _Words.of(candidates, begins, features["segment_ids"] if shape.max_ngram > 1 else None)
    chosen = _choose(words, wanted, shape.max_ngram, uniform)
    row, column, slot = _places(chosen & candidates)  # slot: which prediction of its row
    count, size = ids.shape[0], shape.max_predictions_per_seq
    positions, labels = np.zeros((count, size), np.int64), np.zeros((count, size), np.int64)
    weights = np.zeros((count, size), np.float32)
    positions[row, slot], labels[row, slot], weights[row, slot] = column, ids[row, column], 1.0
    masked = ids.copy()
    u = uniform(2 * size).reshape(count, 2, size)[row, :, slot]  # [predictions, 2]
    masked[row, column] = _replace(ids[row, column], tokens, u)
    return {
        **features,
        "input_ids": masked,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": weights,
    }


def _places(found: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row and column of all that is true in `found` [N, S], and its number in its row."""
    row, column = np.divmod(np.flatnonzero(found), found.shape[1])  # many times as fast as np.nonzero
    return row, column, np.arange(len(row)) - np.searchsorted(row, row)


class _Words(NamedTuple):
    """The words of N sequences, W in the longest."""

    of_token: np.ndarray  # [N, S] the word of each token, as its place in the flattened `lengths`
    lengths: np.ndarray  # [N, W] their tokens, 0 past the last one
    segments: np.ndarray  # [N, W] the segment they stand in, if that matters

    @classmethod
    def of(cls, candidates: np.ndarray, begins: np.ndarray, segments: np.ndarray | None) -> "_Words":
        """From [N, S]: which tokens may be masked, which of these begin a word, and the segments of all."""
        number = np.cumsum(begins, axis=1)
        counts = number[:, -1:]
        size = int(counts.max(initial=1))
        of_token = np.maximum(number - 1, 0) + size * np.arange(len(begins))[:, None]
        further = np.bincount(of_token[candidates & ~begins], minlength=len(begins) * size)
        lengths = (np.arange(size) < counts) + further.reshape(-1, size)
        places = np.zeros(lengths.shape, np.int64)
        if segments is not None:
            first = np.flatnonzero(begins)
            places.ravel()[of_token.ravel()[first]] = segments.ravel()[first]
        return cls(of_token, lengths, places)


def _choose(words: _Words, wanted: np.ndarray, max_ngram: int, uniform: Uniform) -> np.ndarray:
    """Marks [N, S] the tokens of words in random order while they fit into `wanted` [N]; what does not is skipped."""
    lengths, rows = words.lengths, np.arange(len(wanted))
    count, tokens = lengths.shape[1], words.of_token.shape[1]
    # Numbers for as many words as there could be: what a row draws must not depend on the rows beside it.
    order = np.argsort(uniform(tokens)[:, :count] + (lengths == 0), axis=1)  # [N, W], absent ones last
    odds = 1 / np.arange(1, max_ngram + 1)
    # [N, W] how many words a run from here has; one word needs no draw.
    run = 1 + np.searchsorted(np.cumsum(odds / odds.sum())[:-1], uniform(tokens if max_ngram > 1 else 0))
    taken = np.zeros(lengths.shape, bool)
    left = wanted.copy()
    for turn in order.T:
        members = [(turn, (lengths[rows, turn] > 0) & ~taken[rows, turn])]  # the words of the run, where they are in it
        for step in range(1, max_ngram):
            at = np.minimum(turn + step, count - 1)
            goes_on = (run[rows, turn] > step) & (turn + step < count) & (lengths[rows, at] > 0)
            same_text = ~taken[rows, at] & (words.segments[rows, at] == words.segments[rows, turn])
            members.append((at, members[-1][1] & goes_on & same_text))
        size = sum(lengths[rows, at] * inside for at, inside in members)
        fits = size <= left
        for at, inside in members:
            taken[rows, at] |= inside & fits
        left -= size * fits
        if not left.any():
            break
    return taken.ravel()[words.of_token]


def _replace(ids: np.ndarray, tokens: Tokens, u: np.ndarray) -> np.ndarray:
    """What stands at masked tokens [M] instead, drawn with u [M, 2]."""
    anything = tokens.ordinary[(u[:, 1] * len(tokens.ordinary)).astype(np.int64)]
    return np.select([u[:, 0] < 0.8, u[:, 0] < 0.9], [np.full_like(ids, tokens.mask), ids], anything)
