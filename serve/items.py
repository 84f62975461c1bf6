"""What clients send, a type for each kind of question; requests are checked by these types and described from them."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from bert.core import checked_json
from squad.answers import N_BEST

T = TypeVar("T")
MOST_ANSWERS, MOST_WORDS = N_BEST, 100


class RequestError(ValueError):
    """A request that cannot be answered as it is; the message says why and what to send."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question about one or more passages."""

    question: str
    """the question"""
    context: str | list[str]
    """the passage, of any length, or several passages"""
    n_best: int = 3
    """number of candidates to return, 1 to 20"""

    def __post_init__(self) -> None:
        within("n_best", self.n_best, MOST_ANSWERS)
        has_text("question", self.question)
        if not self.context:
            raise ValueError("context is empty; send the text that has the answer")


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text or a pair of texts to classify, or to give a number."""

    text: str
    """the text"""
    second: str | None = None
    """the second text, for a model of pairs"""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Several continuations of a text, or several answers; one is right."""

    text: str
    """the first text of each pair, such as a passage"""
    choices: list[str]
    """the second texts, as many as the model was trained on, such as the question with each of its answers"""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence whose words are tagged."""

    text: str | None = None
    """the sentence; it is divided at white space"""
    words: list[str] | None = None
    """its words, instead of the text"""

    def __post_init__(self) -> None:
        if (self.text is None) == (self.words is None):
            raise ValueError("send either text or words")


@dataclass(frozen=True, kw_only=True)
class Masked:
    """A text with masked words."""

    text: str
    """the text, with [MASK] (of RoBERTa: <mask>) for each word to fill in"""
    top: int = 5
    """number of words to return for each mask, 1 to 100"""

    def __post_init__(self) -> None:
        within("top", self.top, MOST_WORDS)


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A text whose features are computed."""

    text: str
    """the text; what does not fit the model is cut off at its end"""
    pool: Literal["auto", "mean", "cls", "max"] = "auto"
    """mean: the average over all tokens; cls: the state of the first one; max: the largest values; auto: as the model
    was trained, with its normalisation, or mean"""


def parse_request(kind: type[T], fields: Any) -> T:
    """Return the item that a client has sent. Raise RequestError if it does not fit the type."""
    if not isinstance(fields, dict):
        raise RequestError("an input is no object")
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if unknown := sorted(fields.keys() - set(names)):
        raise RequestError(f"unknown field {unknown[0][:60]!a}; the fields are {', '.join(names)}")
    try:
        item: T = checked_json.take(kind, fields)
        return item
    except ValueError as error:
        raise RequestError(f"{error}; see /docs for what to send") from error


def within(name: str, value: int, most: int) -> None:
    """Raise ValueError unless a number is from 1 to `most`."""
    if not 1 <= value <= most:
        raise ValueError(f"{name} is {value}; send 1 to {most}")


def has_text(name: str, text: str) -> None:
    """Raise ValueError for a text without a word."""
    if not text.strip():
        raise ValueError(f"{name} is empty")
