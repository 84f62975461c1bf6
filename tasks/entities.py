"""Entities in tags, and their precision, recall and F1 as conlleval computes them (Tjong Kim Sang and Buchholz 2000).

A tag is O, or one of B, I, E, S, L, U, alone or with a dash and a type. Tags are read as conlleval reads them, also
where they follow no scheme: an I- after O or after another type begins an entity. E- and L- end one, S- and U- are one
of a single word.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from bert.core.errors import InputError

Scheme = Literal["IOB1", "IOB2", "BIOES", "BILOU", "mixed"]
SAME_AS = {"L": "E", "U": "S"}  # BILOU's names of the same
LETTERS = frozenset("BIOESLU")


class Entity(NamedTuple):
    """Words of a sentence from `begin` up to, but without, `end`."""

    type: str
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many entities the file has, were predicted, and are in both with the same type, begin and end."""

    gold: int
    predicted: int
    correct: int

    @property
    def precision(self) -> float:
        """The share of the predicted entities that is correct; 0 if none was predicted."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of the file's entities that was found; 0 if there are none."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 if there are no entities on either side."""
        return 2 * self.correct / (self.gold + self.predicted) if self.gold + self.predicted else 0.0


@dataclass(frozen=True, kw_only=True)
class EntityScores:
    """Scores of all entities together (micro average) and of each type, as fractions."""

    overall: Counts
    types: dict[str, Counts]
    """by the name of the type, in alphabetical order"""
    sentences: int
    words: int
    correct_tags: int

    @property
    def accuracy(self) -> float:
        """The share of words with the right tag; it depends on the scheme, and O is most of it."""
        return self.correct_tags / self.words

    @property
    def undefined(self) -> dict[str, str]:
        """Why precision, recall or f1 is 0 where there is nothing to divide by, by their names."""
        in_file, predicted = "there are no entities in the file", "no entity is predicted"
        reasons = {} if self.overall.predicted else {"precision": predicted}
        reasons |= {} if self.overall.gold else {"recall": in_file}
        return reasons if len(reasons) < 2 else reasons | {"f1": f"{in_file}, and {predicted}"}


@lru_cache(maxsize=4096)
def parse(tag: str) -> tuple[str, str]:
    """Return the letter and the type of a tag: O, B, I, E or S; the type is "" if the tag has none.

    Raises InputError for what is no tag.
    """
    letter, dash, kind = tag.partition("-")
    if letter not in LETTERS or (letter == "O" and dash) or (dash and not kind):
        raise InputError(
            f"{tag[:100]!r} is no tag: it must be O, or one of B, I, E, S, L, U, alone or with a dash and a type"
        )
    return SAME_AS.get(letter, letter), kind


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence in their order. Raises InputError for what is no tag."""
    entities_read = []
    begin, open_type = 0, None  # the entity that the last word is in
    for place, tag in enumerate(tags):
        letter, kind = parse(tag)
        goes_on = letter in "IE" and kind == open_type
        if open_type is not None and not goes_on:
            entities_read.append(Entity(open_type, begin, place))
            open_type = None
        if letter != "O" and not goes_on:
            begin, open_type = place, kind
        if letter in "ES":
            entities_read.append(Entity(kind, begin, place + 1))
            open_type = None
    if open_type is not None:
        entities_read.append(Entity(open_type, begin, len(tags)))
    return entities_read


def score(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> EntityScores:
    """Score the predicted tags of sentences, which are read one by one.

    Raises InputError if the numbers of sentences or of their words differ, there are none, or something is no tag.
    """
    gold_types: Counter[str] = Counter()
    predicted_types: Counter[str] = Counter()
    correct_types: Counter[str] = Counter()
    sentences = words = correct_tags = 0
    for true, guess in itertools.zip_longest(gold, predicted):
        if true is None or guess is None:
            there, missing = ("the predictions", "the file") if true is None else ("the file", "the predictions")
            raise InputError(f"sentence {sentences}, counted from 0, is in {there} but not in {missing}")
        if len(true) != len(guess):
            raise InputError(
                f"sentence {sentences}, counted from 0, has {len(true)} words and {len(guess)} predicted tags; "
                "there must be one for each"
            )
        in_file, in_guess = entities(true), entities(guess)
        gold_types.update(entity.type for entity in in_file)
        predicted_types.update(entity.type for entity in in_guess)
        correct_types.update(entity.type for entity in set(in_file).intersection(in_guess))
        correct_tags += sum(parse(one) == parse(other) for one, other in zip(true, guess, strict=True))
        words += len(true)
        sentences += 1
    if not words:
        raise InputError("nothing to score: there are no words")
    types = {
        kind: Counts(gold=gold_types[kind], predicted=predicted_types[kind], correct=correct_types[kind])
        for kind in sorted(gold_types | predicted_types)
    }
    overall = Counts(gold=gold_types.total(), predicted=predicted_types.total(), correct=correct_types.total())
    return EntityScores(overall=overall, types=types, sentences=sentences, words=words, correct_tags=correct_tags)


def scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Return the scheme of a file's tags, from all of them; sentences are read one by one.

    IOB1: B- is only where an entity follows another one of its type, I- begins the others. IOB2: B- begins each.
    BIOES, BILOU: E-, S- or L-, U- occur. mixed: none of these; `entities` reads it all the same. A file without
    entities is IOB2. Raises InputError for what is no tag.
    """
    letters: set[str] = set()
    is_iob1 = is_iob2 = True
    for tags in sentences:
        letters.update(tag[:1] for tag in tags)
        in_order = entities(tags)
        for entity, follows in zip(in_order, _follow(in_order), strict=True):
            has_b = tags[entity.begin].startswith("B")
            is_iob1 &= has_b == follows
            is_iob2 &= has_b
    bioes, bilou = letters & {"E", "S"}, letters & {"L", "U"}
    if bioes or bilou:
        return "mixed" if bioes and bilou else "BIOES" if bioes else "BILOU"
    return "IOB2" if is_iob2 else "IOB1" if is_iob1 else "mixed"


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Return a sentence's tags, of any scheme, with B- at the first word of each entity and I- at the others."""
    written = ["O"] * len(tags)
    for kind, begin, end in entities(tags):
        dash = "-" if kind else ""
        written[begin:end] = [letter + dash + kind for letter in "B" + "I" * (end - begin - 1)]
    return written


def _follow(in_order: list[Entity]) -> list[bool]:
    """Return for each entity whether it begins where another one of its type ends."""
    pairs = itertools.pairwise(in_order)
    return [False, *(one.end == other.begin and one.type == other.type for one, other in pairs)][: len(in_order)]
