"""Question sets: read with every fault named, and the answer spans that training learns from.

A set is one JSON object as SQuAD 1.1 and 2.0 have it, data > paragraphs > qas, of which plausible answers are not read;
or JSONL, {"id", "question", "context"[, "answers"][, "is_impossible"]} a line, which is read in pieces and may have any
length. Both may be compressed (.gz, .bz2, .xz).
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bert.errors import InputError
from bert.storage import files

T = TypeVar("T")
KINDS = {dict: "an object", list: "a list", str: "a string", int: "an integer", float: "a number", bool: "a boolean"}
LEVELS = (("data", "article"), ("paragraphs", "paragraph"), ("qas", "question"))
QUESTIONS, CHARACTERS = 1024, 2_000_000  # of a piece, the latter in the passages of its questions


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A malformed item: where it is and why, and the id that still is to be answered, if it has one of its own."""

    id: str | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A question set or a piece of one; equal passages are held once."""

    passages: list[str]
    examples: list[Example]
    faults: Sequence[Fault] = ()
    version: str = "1.1"
    """2.0 where the file says so or a question is impossible"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Where the answer of `example` is: passage[start:end], in characters; nowhere if it is impossible."""

    example: Example
    start: int = -1
    end: int = -1


@dataclass(frozen=True, kw_only=True)
class Spans:
    """What training can learn from, and by id what it cannot: nothing is left out in silence."""

    spans: list[Span]
    inferred: list[str]
    """Questions whose answer is not at its offset; the nearest occurrence was taken."""
    dropped: dict[str, str]
    """Questions left out, with the reason."""


class Raw(NamedTuple):
    """A question as it stands in the file."""

    place: str
    paragraph: Any
    qa: Any


def read(path: Path, *, strict: bool = True) -> Dataset:
    """A whole question set.

    Raises InputError, with the file and the id or place of the item, if it is no question set or, if `strict`, for the
    first item that is malformed.
    """
    (dataset,) = pieces(path, strict=strict, questions=math.inf, characters=math.inf)
    return dataset


def pieces(
    path: Path, *, strict: bool, questions: float = QUESTIONS, characters: float = CHARACTERS
) -> Iterator[Dataset]:
    """A question set in pieces of bounded size, in order; raises as `read` does."""
    claimed, raws = _raws(path)
    seen: set[str] = set()
    passages: dict[str, int] = {}
    examples: list[Example] = []
    faults: list[Fault] = []
    size, first = 0, None

    def piece() -> Dataset:
        is_2 = claimed.startswith(("2", "v2")) or any(example.impossible for example in examples)
        version = "2.0" if is_2 else "1.1"
        return Dataset(passages=list(passages), examples=examples, faults=faults, version=version)

    for raw in raws:
        try:
            if isinstance(raw, Fault):
                raise InputError(raw.reason)
            example, context = _example(raw, seen)
        except InputError as error:
            if strict:
                raise InputError(f"{path}: {error}") from error
            faults.append(Fault(id=None if isinstance(raw, Fault) else _free(raw.qa, seen), reason=str(error)))
            first = first or str(error)
        else:
            examples.append(replace(example, passage=passages.setdefault(context, len(passages))))
            size += len(context)
        if len(examples) + len(faults) >= questions or size >= characters:
            yield piece()
            passages, examples, faults, size = {}, [], [], 0
    if not seen:
        raise InputError(f"{path}: {first or 'no questions in the file'}; is it a SQuAD question set?")
    if examples or faults:
        yield piece()


def locate(passage: str, answer: Answer) -> int | None:
    """Where `answer` starts: at its offset, else at its nearest occurrence; None if it is not in the passage."""
    if answer.start >= 0 and passage.startswith(answer.text, answer.start):
        return answer.start
    before = passage.rfind(answer.text, 0, max(answer.start, 0) + len(answer.text))
    after = passage.find(answer.text, max(answer.start, 0))
    found = [start for start in (before, after) if start >= 0]
    return min(found, key=lambda start: abs(start - answer.start), default=None)


def spans(dataset: Dataset, *, impossible: bool) -> Spans:
    """The first answer of each question as a character span; impossible questions are dropped unless wanted."""
    found, inferred, dropped = [], [], {}
    for example in dataset.examples:
        if example.impossible and impossible:
            found.append(Span(example=example))
            continue
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


def _raws(path: Path) -> tuple[str, Iterator[Raw | Fault]]:
    """The version that the file claims, and its questions."""
    if ".jsonl" in path.suffixes[-2:]:
        return "", _lines(path)
    with files.open_text(path) as stream:
        text = stream.read()
    try:
        tree = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); a file of one question a line is to be named .jsonl") from error
    claimed = tree.get("version") if isinstance(tree, dict) else None
    return str(claimed), _nested(tree, "", LEVELS)


def _lines(path: Path) -> Iterator[Raw | Fault]:
    with files.open_text(path) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.removeprefix("\ufeff"))
            except (ValueError, RecursionError) as error:
                yield Fault(id=None, reason=f"line {number}: not JSON ({error})")
            else:
                yield Raw(f"line {number}", record, record)


def _nested(record: Any, place: str, levels: Sequence[tuple[str, str]]) -> Iterator[Raw | Fault]:
    (key, name), *below = levels
    try:
        items = _get(record, key, list, place or "the top level")
    except InputError as error:
        yield Fault(id=None, reason=str(error))
        return
    for number, item in enumerate(items):
        here = f"{place}, {name} {number}".removeprefix(", ")
        if below:
            yield from _nested(item, here, below)
        else:
            yield Raw(here, record, item)


def _example(raw: Raw, seen: set[str]) -> tuple[Example, str]:
    """The question, whose passage has no number yet, and its passage; its id is added to those that were `seen`."""
    identity = _text(raw.qa, "id", raw.place)
    place = f"{raw.place} (id {identity!r})"
    if identity in seen:
        raise InputError(f"{place}: the id occurs twice; ids must be unique in the file")
    answers = []
    for n, answer in enumerate(_get(raw.qa, "answers", list, place, default=[])):
        below = f"{place}, answer {n}"
        answers.append(Answer(text=_text(answer, "text", below), start=_get(answer, "answer_start", int, below)))
    example = Example(
        id=identity,
        question=_text(raw.qa, "question", place),
        passage=-1,
        answers=tuple(answers),
        impossible=_get(raw.qa, "is_impossible", bool, place, default=False),
    )
    context = _text(raw.paragraph, "context", place)
    seen.add(identity)
    return example, context


def _free(qa: Any, seen: set[str]) -> str | None:
    """The id of a malformed question, unless another has it; it is now `seen`."""
    identity = qa.get("id") if isinstance(qa, dict) else None
    if not isinstance(identity, str) or identity in seen:
        return None
    seen.add(identity)
    return identity


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
