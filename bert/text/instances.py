"""From tokenised documents to BERT's training instances: pairs of segments with masked tokens (MLM). Pure NumPy.

Objectives of a pair: `nsp`, next sentence prediction (Devlin et al. 2019): does the second segment follow the first in
the text, or is it a random one? `sop`, sentence order prediction (Lan et al. 2020, Megatron-LM): are the two
consecutive segments in order or swapped? `none`: the segments are consecutive, and there is no label.

Pairs are planned in advance, in one pass over all documents (`plan`), or drawn while reading, from stored chunks of
sentences (`chunks`, `draw`). In both cases a plan holds only offsets; `build` and `mask` work on batches of it.

    N instances, S tokens of a sequence, P predictions, V vocabulary, W words, n tokens of all documents

This follows `create_pretraining_data.py` of google-research/bert with four changes:
- The shorter target length is drawn for each instance, not for each document: there, one book in ten is cut entirely
  into short fragments.
- A chunk has at least two sentences if the document has: there, a chunk of one sentence always gets a random partner,
  and more than half of the pairs are random.
- The part of an overlong segment that is cut at its front is uniform, not a sum of coin flips.
- A masked token that is replaced at random never becomes a special token.
"""

import dataclasses
import itertools
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert.text.instance_config import FeatureSpec, InstanceConfig
from bert.text.tokenization import Tokenizer

# Draws numbers in [0, 1) for each instance: count -> [N, count]. A generator's method, or `hashing.Uniform`.
Uniform = Callable[[int], np.ndarray]

COLUMNS = ("a_begin", "a_end", "b_begin", "b_end", "label")  # the arrays of a PairPlan


def feature_spec(config: InstanceConfig) -> FeatureSpec:
    """Return the features of an instance, named as by google-research/bert."""
    sequence, predictions = config.max_seq_length, config.max_predictions_per_seq
    return {
        name: {"shape": [size], "dtype": dtype}
        for name, size, dtype in (
            ("input_ids", sequence, "int64"),
            ("input_mask", sequence, "int64"),
            ("segment_ids", sequence, "int64"),
            ("masked_lm_positions", predictions, "int64"),
            ("masked_lm_ids", predictions, "int64"),
            ("masked_lm_weights", predictions, "float32"),
            ("next_sentence_labels", 1, "int64"),
        )
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens:
    """What the tokenizer says: special ids, ids for random replacement, and which ids continue a word."""

    pad: int
    cls: int
    sep: int
    mask: int
    special: tuple[int, ...]  # further special tokens, which are never masked
    ordinary: np.ndarray  # [<= V]
    first: np.ndarray  # [V] uint8, as the next one: see `Tokenizer.joins`
    last: np.ndarray

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Tokens":
        """Read it from a tokenizer."""
        first, last = tokenizer.joins()
        return cls(
            pad=tokenizer.pad_id,
            cls=tokenizer.cls_id,
            sep=tokenizer.sep_id,
            mask=tokenizer.mask_id,
            special=tokenizer.special,
            ordinary=tokenizer.ordinary,
            first=first,
            last=last,
        )

    def continues(self, before: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return whether each token goes on with the word of the one before it [...] bool."""
        continues: np.ndarray = (self.first[ids] & self.last[before]) != 0
        return continues


@dataclasses.dataclass(frozen=True, kw_only=True)
class Documents:
    """Documents of token ids, flat; none is empty.

    Sentence s is `ids[sentences[s]:sentences[s + 1]]`; document d holds sentences `documents[d]:documents[d + 1]`.
    """

    ids: np.ndarray  # [n] int32
    sentences: np.ndarray  # [sentences + 1]
    documents: np.ndarray  # [documents + 1]

    @classmethod
    def from_sentences(cls, ids: np.ndarray, sentences: np.ndarray, documents: np.ndarray) -> "Documents":
        """Make documents without the empty sentences and documents among these arrays."""
        is_kept = np.diff(sentences) > 0
        kept_before = np.concatenate([[0], np.cumsum(is_kept)])
        return cls(
            ids=ids,
            sentences=np.concatenate([sentences[:1], sentences[1:][is_kept]]),
            documents=np.unique(kept_before[documents]),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairPlan:
    """The token ranges of each instance's segments, and a label: 1 if the second is random or both are swapped."""

    a_begin: np.ndarray  # [N]
    a_end: np.ndarray
    b_begin: np.ndarray
    b_end: np.ndarray
    label: np.ndarray
    skipped: int  # chunks left out: too short for two segments, and no other document to take the second from

    def __len__(self) -> int:
        return len(self.a_begin)

    def rows(self, index: np.ndarray | slice) -> "PairPlan":
        """Return the instances at `index`."""
        return PairPlan(**{name: getattr(self, name)[index] for name in COLUMNS}, skipped=self.skipped)


def concatenate(plans: Sequence[PairPlan]) -> PairPlan:
    """Return all instances of several plans."""
    joined = {name: np.concatenate([getattr(plan, name) for plan in plans]) for name in COLUMNS}
    return PairPlan(**joined, skipped=sum(plan.skipped for plan in plans))


def plan(documents: Documents, config: InstanceConfig, rng: np.random.Generator) -> PairPlan:
    """Plan pairs in one pass over all documents: the second segment follows the first or, for NSP, is random half the
    time.

    A segment is a range of whole sentences (half a sentence, if it is the only one and no random partner is possible).
    The ends of the longer segment are cut off at random until both have at most `config.max_text` tokens.
    """
    max_text = config.max_text
    if config.undivided:
        bounds = documents.sentences[chunks(documents, config, _numbers(rng))]
        first, behind = bounds[:-1], bounds[1:]
        columns = {"a_begin": first, "a_end": behind, "b_begin": behind, "b_end": behind}
        single = PairPlan(**columns, label=np.zeros_like(first), skipped=0)
        return _truncate(single, max_text, rng.random((len(single), 2)))
    starts, firsts = documents.sentences.tolist(), documents.documents.tolist()
    uniform = _numbers(rng)
    others = len(firsts) - 2 if config.pairs == "nsp" else 0  # documents for random segments
    pairs, skipped = array("q"), 0
    for document in range(len(firsts) - 1):
        sentence, stop = firsts[document], firsts[document + 1]
        while sentence < stop:
            target = _target(config, uniform)
            end = bisect_left(starts, starts[sentence] + target, min(sentence + 2, stop), stop)
            count = end - sentence
            middle = sentence + 1 + int(next(uniform) * (count - 1))  # segment a: at least one, not all if possible
            if count == 1 and not others:
                half = (starts[sentence] + starts[end]) // 2
                if half == starts[sentence] or config.pairs == "nsp":
                    skipped += 1
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
                target_end = starts[first] + target - (starts[middle] - starts[sentence])
                last = bisect_left(starts, target_end, first + 1, firsts[other + 1])
                pairs.extend((starts[sentence], starts[middle], starts[first], starts[last], 1))
                sentence = middle  # the sentences that the random segment replaced are used in the next pair
    columns = dict(zip(COLUMNS, np.array(pairs, np.int64).reshape(-1, 5).T, strict=True))
    pair_plan = PairPlan(**columns, skipped=skipped)
    cuts = rng.random((len(pair_plan), 2))
    if config.pairs == "sop":
        pair_plan = _swap(pair_plan, rng.random(len(pair_plan)) < 0.5)
    return _truncate(pair_plan, max_text, cuts)


def _target(config: InstanceConfig, uniform: Iterator[float]) -> int:
    """Return how many tokens of text the next instance is to have."""
    return config.max_text if next(uniform) >= config.short_seq_prob else 2 + int(next(uniform) * (config.max_text - 1))


def chunks(documents: Documents, config: InstanceConfig, uniform: Iterator[float] | None = None) -> np.ndarray:
    """Cut every document into chunks of whole sentences that fill a sequence (the last one may be shorter).

    uniform: numbers in [0, 1), with which some chunks are shorter. With `single_sentences` each sentence is a chunk.
    Returns sentence numbers [M + 1]: chunk m has sentences `cuts[m]:cuts[m + 1]`.
    """
    if config.single_sentences:
        return np.arange(len(documents.sentences))
    starts, firsts = documents.sentences.tolist(), documents.documents.tolist()
    cuts = array("q", [0])
    for document in range(len(firsts) - 1):
        sentence, stop = firsts[document], firsts[document + 1]
        while sentence < stop:
            target = _target(config, uniform) if uniform else config.max_text
            least = min(sentence + config.fewest, stop)
            sentence = bisect_left(starts, starts[sentence] + target, least, stop)
            cuts.append(sentence)
    return np.array(cuts)


class Division(NamedTuple):
    """N chunks, each divided into a first segment and the text behind it; all arrays are [N]."""

    begin: np.ndarray  # as the next two, a place in the ids of all chunks
    middle: np.ndarray  # the end of the first segment
    end: np.ndarray
    second: np.ndarray  # tokens of a second segment from elsewhere
    is_single: np.ndarray  # bool: the chunk is a single sentence; it is cut in half if no other text is taken
    takes_other: np.ndarray  # bool: the second segment is to be from another document


class Partners(NamedTuple):
    """Text of other documents for N chunks: a second segment begins at one of some sentences, [N] by their numbers."""

    ids: np.ndarray  # [n]
    sentences: np.ndarray  # as in `Documents`
    first: np.ndarray  # it begins at one of the sentences first .. last-1 ...
    last: np.ndarray
    end: np.ndarray  # ... and ends before this one
    exists: np.ndarray  # bool: there is such text


def divide(chunk: Documents, config: InstanceConfig, u: np.ndarray) -> Division:
    """Divide each of N chunks, stored as documents, behind a random sentence.

    u: [N, 4] numbers in [0, 1).
    """
    first, last = chunk.documents[:-1], chunk.documents[1:]
    begin = chunk.sentences[first]
    shorter = u[:, 0] < config.short_seq_prob
    target = np.where(shorter, 2 + (u[:, 1] * (config.max_text - 1)).astype(np.int64), config.max_text)
    end = np.clip(np.searchsorted(chunk.sentences, begin + target), np.minimum(first + config.fewest, last), last)
    is_single = end - first == 1
    middle = first + 1 + (u[:, 2] * (end - first - 1)).astype(np.int64)  # segment a: at least one, not all if possible
    begin, middle, end = (chunk.sentences[sentence] for sentence in (first, middle, end))
    until = np.where(is_single, begin + target, np.minimum(end, begin + config.max_text))
    return Division(
        begin=begin,
        middle=middle,
        end=end,
        second=np.maximum(until - middle, 1),
        is_single=is_single,
        takes_other=(is_single | (u[:, 3] < 0.5)) & (config.pairs == "nsp"),
    )


def draw(
    divided: Division,
    partners: Partners,
    offset: int,
    config: InstanceConfig,
    u: np.ndarray,
    uniform: Uniform,
) -> PairPlan:
    """Draw one pair for each of N divided chunks.

    The second segment comes from the partner if `takes_other` is true and the partner exists, otherwise from the chunk.
    A segment from a partner begins at a random sentence. It is about as long as the text that it replaces: otherwise a
    model could read the label from the lengths. The plan's token ranges are indices into the ids of all chunks,
    followed by the ids of all partners. offset: number of ids of all chunks. u: [N] numbers in [0, 1) that choose
    the first sentence of a segment from a partner.
    """
    is_random = divided.takes_other & partners.exists
    start = partners.first + (u * (partners.last - partners.first)).astype(np.int64)
    other_begin, other_end = _second_segment(divided, partners, start, config.max_text)
    halved = divided.is_single & ~is_random
    a_end = np.where(halved, (divided.begin + divided.end) // 2, divided.middle)
    if config.undivided:
        a_end = divided.end
    b_begin = np.where(is_random, other_begin + offset, a_end)
    b_end = np.where(is_random, other_end + offset, divided.end)
    label = is_random.astype(np.int64)
    pair_plan = PairPlan(a_begin=divided.begin, a_end=a_end, b_begin=b_begin, b_end=b_end, label=label, skipped=0)
    cuts = uniform(2)
    if config.pairs != "sop":
        return _truncate(pair_plan, config.max_text, cuts)
    is_swapped = uniform(1)[:, 0] < 0.5
    return _truncate(_swap(pair_plan, is_swapped), config.max_text, cuts)


def _second_segment(
    divided: Division, partners: Partners, start: np.ndarray, max_text: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first token and the end [N] of second segments that begin at sentence `start` [N].

    A segment begins earlier if the text after `start` is too short. If the sequence is to be full, the segment ends
    with the sentence that fills it, and `_truncate` cuts the excess. Otherwise it ends with the sentence whose end is
    nearest to the drawn length.
    """
    tokens, length = partners.sentences, divided.second
    is_full = divided.middle - divided.begin + length >= max_text
    latest = np.searchsorted(tokens, tokens[partners.end] - length, side="right") - 1  # with enough text behind it
    start = np.maximum(np.minimum(start, latest), partners.first)
    begin, least = tokens[start], np.minimum(start + 1, partners.end)
    above = np.clip(np.searchsorted(tokens, begin + length), least, partners.end)
    below = np.maximum(above - 1, least)
    is_nearer = tokens[above] - begin - length > begin + length - tokens[below]
    return begin, tokens[np.where(is_nearer & ~is_full, below, above)]


def _swap(plan: PairPlan, swapped: np.ndarray) -> PairPlan:
    """Return the plan with the segments of the instances `swapped` [N] exchanged and labelled 1."""
    return PairPlan(
        a_begin=np.where(swapped, plan.b_begin, plan.a_begin),
        a_end=np.where(swapped, plan.b_end, plan.a_end),
        b_begin=np.where(swapped, plan.a_begin, plan.b_begin),
        b_end=np.where(swapped, plan.a_end, plan.b_end),
        label=swapped.astype(np.int64),
        skipped=plan.skipped,
    )


def _numbers(rng: np.random.Generator) -> Iterator[float]:
    """Yield numbers in [0, 1), drawn in blocks, which is twenty times as fast as one at a time."""
    return itertools.chain.from_iterable(rng.random(4096).tolist() for _ in itertools.repeat(None))


def _truncate(plan: PairPlan, max_text: int, u: np.ndarray) -> PairPlan:
    """Cut the longer segment, token by token, until both fit. u: [N, 2] the share that is cut at the front.

    Where both are cut, the second segment may lose one token more. So segments are swapped before they are cut:
    otherwise their lengths would show that they are swapped.
    """
    a, b = plan.a_end - plan.a_begin, plan.b_end - plan.b_begin
    excess = np.maximum(a + b - max_text, 0)
    from_a = np.minimum(excess, np.maximum(a - b, 0))  # until they are equally long ...
    from_b = np.minimum(excess, np.maximum(b - a, 0))
    rest = excess - from_a - from_b  # ... then in turns
    from_a, from_b = from_a + rest // 2, from_b + (rest + 1) // 2
    front_a, front_b = (u[:, 0] * (from_a + 1)).astype(np.int64), (u[:, 1] * (from_b + 1)).astype(np.int64)
    return PairPlan(
        a_begin=plan.a_begin + front_a,
        a_end=plan.a_end - from_a + front_a,
        b_begin=plan.b_begin + front_b,
        b_end=plan.b_end - from_b + front_b,
        label=plan.label,
        skipped=plan.skipped,
    )


def build(text: np.ndarray, plan: PairPlan, config: InstanceConfig, tokens: Tokens) -> dict[str, np.ndarray]:
    """Build the unmasked sequences [CLS] a [SEP] b [SEP] [PAD]... or [CLS] a [SEP] [PAD]... of a plan. text: ids [n].

    Returns input_ids, input_mask, segment_ids [N, S] and next_sentence_labels [N, 1], all int64.
    """
    at = np.arange(config.max_seq_length)  # [S]
    first_sep = (plan.a_end - plan.a_begin + 1)[:, None]  # [N, 1]
    last_sep = first_sep if config.undivided else first_sep + (plan.b_end - plan.b_begin + 1)[:, None]
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


def wanted_predictions(features: Mapping[str, np.ndarray], config: InstanceConfig) -> np.ndarray:
    """Return how many tokens of each sequence are to be masked [N]: `masked_lm_prob` of all, [CLS] and [SEP] included.

    With `whole_word_mask` or `max_ngram` fewer are masked where no word, or run of words, is short enough.
    """
    wanted = np.rint(features["input_mask"].sum(1) * config.masked_lm_prob).astype(np.int64)
    return np.clip(wanted, 1, config.max_predictions_per_seq)


def mask(
    features: dict[str, np.ndarray], config: InstanceConfig, tokens: Tokens, uniform: Uniform
) -> dict[str, np.ndarray]:
    """Mask `masked_lm_prob` of each sequence's tokens: by `mask_shares` they become [MASK], a random token, or stay.

    Returns the features with masked `input_ids`, masked_lm_positions, masked_lm_ids [N, P] int64 and masked_lm_weights
    [N, P] float32, 0 for an unused prediction. With `whole_word_mask` all pieces of a word are masked, or none. With
    `max_ngram` above 1, runs of up to that many words, or else tokens, are masked together, a run of n with probability
    ~ 1/n.
    """
    ids, inside = features["input_ids"], features["input_mask"] == 1
    candidates = inside & ~np.isin(ids, (tokens.cls, tokens.sep, *tokens.special))  # [N, S]
    budget = wanted_predictions(features, config)
    begins = candidates.copy()
    if config.whole_word_mask:
        begins[:, 1:] &= ~(tokens.continues(ids[:, :-1], ids[:, 1:]) & candidates[:, :-1])
    words = _Words.from_tokens(candidates, begins, features["segment_ids"] if config.max_ngram > 1 else None)
    chosen = _choose(words, budget, config.max_ngram, uniform)
    row, column, slot = _positions(chosen & candidates)  # slot: index among the predictions of the row
    count, size = ids.shape[0], config.max_predictions_per_seq
    positions, labels = np.zeros((count, size), np.int64), np.zeros((count, size), np.int64)
    weights = np.zeros((count, size), np.float32)
    positions[row, slot], labels[row, slot], weights[row, slot] = column, ids[row, column], 1.0
    masked = ids.copy()
    u = uniform(2 * size).reshape(count, 2, size)[row, :, slot]  # [predictions, 2]
    masked[row, column] = _replace(ids[row, column], tokens, config.mask_shares, u)
    return {
        **features,
        "input_ids": masked,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": weights,
    }


def _positions(selected: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row, column and index within the row of all true elements of `selected` [N, S]."""
    row, column = np.divmod(np.flatnonzero(selected), selected.shape[1])  # much faster than np.nonzero
    return row, column, np.arange(len(row)) - np.searchsorted(row, row)


class _Words(NamedTuple):
    """The words of N sequences, at most W in each."""

    of_token: np.ndarray  # [N, S] the word of each token, as an index into the flattened `lengths`
    lengths: np.ndarray  # [N, W] tokens of each word, 0 after the last word
    segments: np.ndarray  # [N, W] segment of each word, or zeros

    @classmethod
    def from_tokens(cls, candidates: np.ndarray, begins: np.ndarray, segments: np.ndarray | None) -> "_Words":
        """candidates, begins, segments: [N, S] tokens that may be masked, tokens that begin a word, segment ids."""
        number = np.cumsum(begins, axis=1)
        counts = number[:, -1:]
        size = int(counts.max(initial=1))
        of_token = np.maximum(number - 1, 0) + size * np.arange(len(begins))[:, None]
        further = np.bincount(of_token[candidates & ~begins], minlength=len(begins) * size)
        lengths = (np.arange(size) < counts) + further.reshape(-1, size)
        word_segments = np.zeros(lengths.shape, np.int64)
        if segments is not None:
            first = np.flatnonzero(begins)
            word_segments.ravel()[of_token.ravel()[first]] = segments.ravel()[first]
        return cls(of_token, lengths, word_segments)


def _choose(words: _Words, budget: np.ndarray, max_ngram: int, uniform: Uniform) -> np.ndarray:
    """Choose words in random order while their tokens fit into `budget` [N]; return their tokens as a mask [N, S]."""
    lengths, rows = words.lengths, np.arange(len(budget))
    count, tokens = lengths.shape[1], words.of_token.shape[1]
    # As many numbers as there could be words: what a row draws must not depend on the other rows.
    order = np.argsort(uniform(tokens)[:, :count] + (lengths == 0), axis=1)  # [N, W], padding last
    odds = 1 / np.arange(1, max_ngram + 1)
    # [N, W] words in a run that starts here; without n-grams nothing is drawn.
    run = 1 + np.searchsorted(np.cumsum(odds / odds.sum())[:-1], uniform(tokens if max_ngram > 1 else 0))
    chosen = np.zeros(lengths.shape, bool)
    left = budget.copy()
    for turn in order.T:
        members = [
            (turn, (lengths[rows, turn] > 0) & ~chosen[rows, turn])
        ]  # words of the run, and whether they are in it
        for step in range(1, max_ngram):
            at = np.minimum(turn + step, count - 1)
            goes_on = (run[rows, turn] > step) & (turn + step < count) & (lengths[rows, at] > 0)
            same_text = ~chosen[rows, at] & (words.segments[rows, at] == words.segments[rows, turn])
            members.append((at, members[-1][1] & goes_on & same_text))
        size = sum(lengths[rows, at] * inside for at, inside in members)
        fits = size <= left
        for at, inside in members:
            chosen[rows, at] |= inside & fits
        left -= size * fits
        if not left.any():
            break
    return chosen.ravel()[words.of_token]


def _replace(ids: np.ndarray, tokens: Tokens, shares: Sequence[float], u: np.ndarray) -> np.ndarray:
    """Return the replacements of masked tokens [M], drawn with u [M, 2]."""
    random_ids = tokens.ordinary[(u[:, 1] * len(tokens.ordinary)).astype(np.int64)]
    masked, random, _ = shares
    return np.select([u[:, 0] < masked, u[:, 0] < 1 - random], [np.full_like(ids, tokens.mask), ids], random_ids)
