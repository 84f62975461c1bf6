"""Tokenised documents to BERT's training instances: pairs of segments (NSP) with masked tokens (MLM). Pure NumPy.

Only `plan` walks through the documents one instance after another, and it handles nothing but offsets; building and
masking work on whole batches. The masking serves instances made in advance and at read time alike.

    N instances, S tokens of a sequence, P predictions, V vocabulary, n tokens of all documents

It follows `create_pretraining_data.py` of google-research/bert, but for three things. The shorter target length is
drawn for each instance, not for each document: there, one book in ten became nothing but fragments. A stretch has two
sentences if the document has: there, a lone one always got a random partner, and more than half of the pairs were
random. And a masked token replaced at random never becomes a special one.
"""

import dataclasses
import itertools
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np

SPECIAL_PER_PAIR = 3  # [CLS] a [SEP] b [SEP]
COLUMNS = ("a_begin", "a_end", "b_begin", "b_end", "is_random")  # of a Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """How instances are cut and masked."""

    max_seq_length: int
    max_predictions_per_seq: int
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    whole_word_mask: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens:
    """What the vocabulary says: special ids, the ids a random replacement may take, and which ids continue a word."""

    pad: int
    cls: int
    sep: int
    mask: int
    ordinary: np.ndarray  # [<= V]
    is_continuation: np.ndarray  # [V] bool


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
    """For each instance, the token ranges of its two segments, and whether the second is a random one (label 1)."""

    a_begin: np.ndarray  # [N]
    a_end: np.ndarray
    b_begin: np.ndarray
    b_end: np.ndarray
    is_random: np.ndarray
    alone: int  # segments left out: a shard of one document has no other to take a second segment from

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
    """Goes through all documents once, pairing stretches of sentences with the next or, half the time, a random one.

    A segment is a range of whole sentences; both together have at most `max_seq_length - 3` tokens after the ends of
    the longer one are cut off at random.
    """
    room = shape.max_seq_length - SPECIAL_PER_PAIR
    starts, firsts = documents.sentences.tolist(), documents.documents.tolist()
    uniform = _uniform(rng)
    others = len(firsts) - 2  # documents to take a random segment from
    pairs, alone = array("q"), 0
    for document in range(len(firsts) - 1):
        sentence, stop = firsts[document], firsts[document + 1]
        while sentence < stop:
            target = room if next(uniform) >= shape.short_seq_prob else 2 + int(next(uniform) * (room - 1))
            end = bisect_left(starts, starts[sentence] + target, min(sentence + 2, stop), stop)
            count = end - sentence
            middle = sentence + 1 + int(next(uniform) * (count - 1))  # segment a: at least one, not all if possible
            if count == 1 and not others:
                alone += 1
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
    a_begin, a_end, b_begin, b_end, is_random = np.array(pairs, np.int64).reshape(-1, 5).T
    a_begin, a_end, b_begin, b_end = _truncate(a_begin, a_end, b_begin, b_end, room, rng)
    return Plan(a_begin=a_begin, a_end=a_end, b_begin=b_begin, b_end=b_end, is_random=is_random, alone=alone)


def _uniform(rng: np.random.Generator) -> Iterator[float]:
    """Numbers in [0, 1), drawn in blocks: one at a time costs NumPy twenty times as much."""
    return itertools.chain.from_iterable(rng.random(4096).tolist() for _ in itertools.repeat(None))


def _truncate(
    a_begin: np.ndarray, a_end: np.ndarray, b_begin: np.ndarray, b_end: np.ndarray, room: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Takes tokens from the longer segment, one by one, until both fit; from its front or back with equal chance."""
    a, b = a_end - a_begin, b_end - b_begin
    excess = np.maximum(a + b - room, 0)
    from_a = np.minimum(excess, np.maximum(a - b, 0))  # until they are equally long ...
    from_b = np.minimum(excess, np.maximum(b - a, 0))
    rest = excess - from_a - from_b  # ... then in turns
    from_a, from_b = from_a + rest // 2, from_b + (rest + 1) // 2
    front_a, front_b = rng.binomial(from_a, 0.5), rng.binomial(from_b, 0.5)
    return a_begin + front_a, a_end - from_a + front_a, b_begin + front_b, b_end - from_b + front_b


def build(documents: Documents, plan: Plan, shape: Shape, tokens: Tokens) -> dict[str, np.ndarray]:
    """The unmasked sequences [CLS] a [SEP] b [SEP] [PAD]...

    Returns input_ids, input_mask, segment_ids [N, S] and next_sentence_labels [N, 1], all int64.
    """
    at = np.arange(shape.max_seq_length)  # [S]
    first_sep = (plan.a_end - plan.a_begin + 1)[:, None]  # [N, 1]
    last_sep = first_sep + (plan.b_end - plan.b_begin + 1)[:, None]
    in_b = at > first_sep
    source = np.where(in_b, plan.b_begin[:, None] - first_sep - 1, plan.a_begin[:, None] - 1) + at  # [N, S]
    ids = documents.ids[np.clip(source, 0, len(documents.ids) - 1)].astype(np.int64)
    ids[:, 0] = tokens.cls
    ids[(at == first_sep) | (at == last_sep)] = tokens.sep
    ids[at > last_sep] = tokens.pad
    inside = at <= last_sep
    return {
        "input_ids": ids,
        "input_mask": inside.astype(np.int64),
        "segment_ids": (in_b & inside).astype(np.int64),
        "next_sentence_labels": plan.is_random[:, None],
    }


def mask(
    features: dict[str, np.ndarray], shape: Shape, tokens: Tokens, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Masks `masked_lm_prob` of each sequence's tokens: 80 % of them become [MASK], 10 % a random token, 10 % stay.

    Returns all features, `input_ids` masked, with masked_lm_positions, masked_lm_ids [N, P] int64, masked_lm_weights
    [N, P] float32; weight 0 is no prediction. With `whole_word_mask` all pieces of a word are masked, or none.
    """
    ids, inside = features["input_ids"], features["input_mask"] == 1
    candidates = inside & (ids != tokens.cls) & (ids != tokens.sep)  # [N, S]
    wanted = np.rint(inside.sum(1) * shape.masked_lm_prob).astype(np.int64)  # [N]; [CLS] and [SEP] count too
    wanted = np.clip(wanted, 1, shape.max_predictions_per_seq)
    begins = candidates.copy()
    if shape.whole_word_mask:
        begins[:, 1:] &= ~(tokens.is_continuation[ids[:, 1:]] & candidates[:, :-1])
    chosen = _choose(candidates, begins, wanted, rng)
    row, column = np.nonzero(chosen)
    slot = np.arange(len(row)) - np.searchsorted(row, row)  # which prediction of its row
    count, size = ids.shape[0], shape.max_predictions_per_seq
    positions, labels = np.zeros((count, size), np.int64), np.zeros((count, size), np.int64)
    weights = np.zeros((count, size), np.float32)
    positions[row, slot], labels[row, slot], weights[row, slot] = column, ids[row, column], 1.0
    masked = ids.copy()
    masked[row, column] = _replace(ids[row, column], tokens, rng)
    return {
        **features,
        "input_ids": masked,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": weights,
    }


def _choose(candidates: np.ndarray, begins: np.ndarray, wanted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Marks [N, S] words in random order while they fit into `wanted` [N] tokens; one that does not is skipped."""
    rows = np.arange(len(candidates))
    word = np.maximum(np.cumsum(begins, axis=1) - 1, 0)  # [N, S] the number of each token's word
    words = int(begins.sum(1).max(initial=1))
    lengths = np.bincount((rows[:, None] * words + word)[candidates], minlength=len(rows) * words).reshape(-1, words)
    order = np.argsort(rng.random(lengths.shape) + (lengths == 0), axis=1)  # [N, words], absent ones last
    taken = np.zeros(lengths.shape, bool)
    left = wanted.copy()
    for turn in order.T:
        length = lengths[rows, turn]
        fits = (length > 0) & (length <= left)
        taken[rows, turn] = fits
        left -= length * fits
        if not left.any():
            break
    return candidates & np.take_along_axis(taken, word, axis=1)


def _replace(ids: np.ndarray, tokens: Tokens, rng: np.random.Generator) -> np.ndarray:
    draw = rng.random(len(ids))
    anything = rng.choice(tokens.ordinary, len(ids))
    return np.select([draw < 0.8, draw < 0.9], [np.full_like(ids, tokens.mask), ids], anything)
