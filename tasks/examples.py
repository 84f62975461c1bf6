"""The examples of each kind of task, as the readers of files yield them."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bert.core import files
from bert.core.errors import InputError

MAX_LISTED = 3  # reasons in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class TextExample:
    """A text or a pair of texts, with its label."""

    id: str
    """what a prediction is written under: the file's own index, or the number of the row, from 0"""
    first: str
    second: str | None = None
    label: str | float | None = None
    """the name of the class; a number in regression; None where the file has no labels"""
    labels: tuple[str, ...] | None = None
    """the names of all its labels, where it can have several; None where the file has no labels"""
    unknown: tuple[str, ...] = ()
    """labels of which the file does not say whether it has them"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextGroup:
    """Texts whose embeddings are compared: a text, one like it, and any that are not; or two texts with a score."""

    id: str
    texts: tuple[str, ...]
    score: float | None = None
    """how alike both texts are; None where the texts have none"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceExample:
    """Several continuations or answers, each a pair of texts; one is right."""

    id: str
    pairs: tuple[tuple[str, str], ...]
    """both segments of each choice"""
    label: int | None = None
    """index of the right one; None where the file has no labels"""
    group: str = ""
    """part of the data set that is also scored on its own, as `middle` and `high` of RACE"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedSentence:
    """The words of a sentence, with a tag for each."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    """None where the file has no tags"""
    document: int = 0
    """number of the document in the file, from 0"""


def writable(text: str, column: str) -> str:
    """Return a text for outputs. Raise ValueError for half a surrogate pair, which no file can hold."""
    if files.SURROGATE.search(text):
        raise ValueError(f"{column} has half a surrogate pair")
    return text


def sentence(identity: str, text: str | Sequence[str]) -> TaggedSentence:
    """Return a sentence of words, or of a text, which is divided at white space.

    Raise InputError if it has no words, or an empty one.
    """
    words = text.split() if isinstance(text, str) else text
    if not words or not all(word.strip() for word in words):
        raise InputError(f"sentence {identity} has no words, or an empty one; give words with text")
    return TaggedSentence(id=identity, words=tuple(words))


@dataclass
class Skipped:
    """The number of items of a file that are left out, with the reasons of the first few."""

    strict: bool = False
    """raise InputError at the first one instead"""
    count: int = 0
    reasons: list[str] = field(default_factory=list)
    doubt: str = ""
    """a place of a file that is probably meant otherwise than it is read, and what to do then"""

    def add(self, path: Path, line: int, reason: str) -> None:
        """Leave out the item that begins in a line of a file, counted from 1."""
        where = f"{path}: line {line}: {reason}"
        if self.strict:
            raise InputError(where)
        self.count += 1
        if len(self.reasons) < MAX_LISTED:
            self.reasons.append(where)

    def report(self) -> None:
        """Print one line about what was left out, and one about a doubt, if there was anything."""
        if self.doubt:
            print(f"warning: {self.doubt}", file=sys.stderr)
        if self.count:
            more = " ..." if self.count > len(self.reasons) else ""
            print(f"note: {self.count} items are not used: {'; '.join(self.reasons)}{more}", file=sys.stderr)
