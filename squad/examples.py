"""SQuAD files: read with every fault named, and the answer spans that training learns from.

A question set is one JSON object, data > paragraphs > qas; version 1.1 is learnt from and scored, version 2.0 is read
too, its impossible questions marked, so that every question of any such file can be answered.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bert import files
from bert.errors import InputError

T = TypeVar("T")
KINDS = {dict: "an object", list: "a list", str: "a string", int: "an integer", float: "a number", bool: "a boolean"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A gold answer and the character offset in the passage where the file claims that it starts."""

    text: str
    start: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One question about the passage `Dataset.passages[passage]`."""

    id: str
    question: str
    passage: int
    answers: tuple[Answer, ...]
    impossible: bool = False


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A question set; equal passages are held once."""

    passages: list[str]
    examples: list[Example]


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Where the answer of `example` is: passage[start:end], in characters."""

    example: Example
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Spans:
    """What training can learn from, and by id what it cannot: nothing is left out in silence."""

    spans: list[Span]
    inferred: list[str]
    """Questions whose answer is not at its offset; the nearest occurrence was taken."""
    dropped: dict[str, str]
    """Questions left out, with the reason."""


def read(path: Path) -> Dataset:
    """Reads a SQuAD file (.json, or compressed as .gz, .bz2, .xz).

    Raises InputError, with the file and the id or place of the item, for whatever is malformed.
    """
    with files.open_text(path) as stream:
        try:
            tree = json.load(stream)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"{path}: not JSON ({error})") from error
    passages: dict[str, int] = {}
    examples: dict[str, Example] = {}
    for place, context, qa in _questions(tree, str(path)):
        example = _example(qa, place, passages.setdefault(context, len(passages)))
        if example.id in examples:
            raise InputError(f"{place}: the id {example.id!r} occurs twice; ids must be unique in the file")
        examples[example.id] = example
    if not examples:
        raise InputError(f"{path}: no questions in the file; is it a SQuAD question set?")
    return Dataset(passages=list(passages), examples=list(examples.values()))


def locate(passage: str, answer: Answer) -> int | None:
    """Where `answer` starts: at its offset, else at its nearest occurrence; None if it is not in the passage."""
    if answer.start >= 0 and passage.startswith(answer.text, answer.start):
        return answer.start
    before = passage.rfind(answer.text, 0, max(answer.start, 0) + len(answer.text))
    after = passage.find(answer.text, max(answer.start, 0))
    found = [start for start in (before, after) if start >= 0]
    return min(found, key=lambda start: abs(start - answer.start), default=None)


def spans(dataset: Dataset) -> Spans:
    """The first answer of each question as a character span."""
    found, inferred, dropped = [], [], {}
    for example in dataset.examples:
        if example.impossible or not example.answers:
            dropped[example.id] = "impossible" if example.impossible else "no answer given"
            continue
        answer = example.answers[0]
        start = locate(dataset.passages[example.passage], answer) if answer.text.strip() else None
        if start is None:
            dropped[example.id] = "the answer is not in its passage" if answer.text.strip() else "the answer is blank"
            continue
        if start != answer.start:
            inferred.append(example.id)
        found.append(Span(example=example, start=start, end=start + len(answer.text)))
    return Spans(spans=found, inferred=inferred, dropped=dropped)


def _questions(tree: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """Each question with its place in words and its passage."""
    for a, article in enumerate(_get(tree, "data", list, path)):
        place = f"{path}: article {a}"
        for p, paragraph in enumerate(_get(article, "paragraphs", list, place)):
            below = f"{place}, paragraph {p}"
            context = _text(paragraph, "context", below)
            for q, qa in enumerate(_get(paragraph, "qas", list, below)):
                yield f"{below}, question {q}", context, qa


def _example(qa: Any, place: str, passage: int) -> Example:
    identity = _text(qa, "id", place)
    place = f"{place} (id {identity!r})"
    answers = []
    for n, answer in enumerate(_get(qa, "answers", list, place, default=[])):
        below = f"{place}, answer {n}"
        answers.append(Answer(text=_text(answer, "text", below), start=_get(answer, "answer_start", int, below)))
    return Example(
        id=identity,
        question=_text(qa, "question", place),
        passage=passage,
        answers=tuple(answers),
        impossible=_get(qa, "is_impossible", bool, place, default=False),
    )


def _get(record: Any, key: str, kind: type[T], place: str, default: T | None = None) -> T:
    if type(record) is not dict:
        raise InputError(f"{place}: {_kind(record)}, not an object")
    if key not in record:
        if default is not None:
            return default
        raise InputError(f"{place}: no {key!r}; its keys are {', '.join(map(repr, sorted(record))) or 'none'}")
    value = record[key]
    if type(value) is not kind:  # not isinstance: true is an int in Python but not in JSON
        raise InputError(f"{place}: {key!r} is {_kind(value)}, not {KINDS[kind]}")
    return value


def _text(record: Any, key: str, place: str) -> str:
    text = _get(record, key, str, place)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place}: {key!r} has half a surrogate pair at character {error.start}") from error
    return text


def _kind(value: Any) -> str:
    return "null" if value is None else KINDS[type(value)]
