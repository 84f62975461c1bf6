"""Read question datasets, report malformed questions, and find the answer spans for training.

A dataset is one JSON object in the format of SQuAD 1.1 or 2.0, data > paragraphs > qas (plausible answers are ignored),
or JSONL with one {"id", "question", "context"[, "answers"][, "is_impossible"]} per line, which is read in pieces and
may have any length. Both may be compressed (.gz, .bz2, .xz). Parquet has rows with the same columns, in one file or in
a folder with all files of a set, such as train-00000-of-00002.parquet. An id may be an integer.

`answers` is a list of {"text", "answer_start"} or, as Hugging Face's `datasets` writes it, an object {"text": [...],
"answer_start": [...]}; there, empty lists mean that the question is impossible, and in Parquet so does an empty list of
objects. null stands for a missing value. To answer questions, no gold answer is needed, and none is looked at.
"""

import functools
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bert.core import files, manifest, parquet
from bert.core.errors import InputError

T = TypeVar("T")
TYPE_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
}
MAX_JSON = 256 << 20  # characters of a file that is parsed as a whole and held in memory; SQuAD 2.0's has 42 million
LEVELS = (("data", "article"), ("paragraphs", "paragraph"), ("qas", "question"))
SHOWN, SHOWN_KEYS = 100, 20  # in an error message: characters of an id or a key, and keys
LARGEST_ID = 2**63  # of an integer of 64 bits
REQUIRED, COLUMNS = {"id", "question", "context"}, {"id", "question", "context", "answers", "is_impossible"}
PART = re.compile(r"(.*?)-?(\d{5})-of-(\d{5})(?:-[0-9a-f]+)?\.parquet")  # name of the set, number, count
NUMBERED = re.compile(r"\d{4}\.parquet")  # as Hugging Face's branch refs/convert/parquet names the files of a set
QUESTIONS, CHARACTERS = 1024, 2_000_000  # limits of a piece: questions, and characters in their passages


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A gold answer and its character offset in the passage according to the file."""

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
    """A malformed question: its place and problem, and its id if it has a unique one."""

    id: str | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A question dataset or a piece of one; equal passages are stored once."""

    passages: list[str]
    examples: list[Example]
    faults: Sequence[Fault] = ()
    version: str = "1.1"
    """2.0 if the file says so or a question is impossible"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """The answer of `example` in its passage, passage[start:end] in characters; -1 if it is impossible."""

    example: Example
    start: int = -1
    end: int = -1


@dataclass(frozen=True, kw_only=True)
class Spans:
    """The answer spans for training, and the ids of the questions that are left out."""

    spans: list[Span]
    inferred: list[str]
    """Questions whose answer is not at its offset; the nearest occurrence is used."""
    dropped: dict[str, str]
    """Questions left out, with the reason."""


class Raw(NamedTuple):
    """A question as parsed from JSON, with its place in the file."""

    place: str
    paragraph: Any
    qa: Any


def read_dataset(path: Path, *, strict: bool = True) -> Dataset:
    """Read a whole question dataset.

    Raises InputError, naming the file and the place, if it is not a question dataset or, with `strict`, at the first
    malformed question.
    """
    (dataset,) = read_pieces(path, strict=strict, questions=math.inf, characters=math.inf)
    return dataset


def count(path: Path) -> int | None:
    """Return the number of well-formed questions in a dataset; None if it is a pipe."""
    if not (path.is_file() or path.is_dir()):
        return None
    return sum(len(piece.examples) for piece in read_pieces(path, strict=False, gold=False))


def content_hash(path: Path) -> str:
    """Return the hash of a file, or of the files in a folder."""
    return manifest.content_hash(path) if path.is_dir() else files.sha256(path)


def read_pieces(
    path: Path, *, strict: bool, gold: bool = True, questions: float = QUESTIONS, characters: float = CHARACTERS
) -> Iterator[Dataset]:
    """Read a question dataset in pieces of bounded size, in order. Raises as `read_dataset` does.

    gold: also read the answers; without them no form of them makes a question malformed.
    """
    claimed_version, raws = _raw_questions(path)
    seen: set[str] = set()
    passages: dict[str, int] = {}
    examples: list[Example] = []
    faults: list[Fault] = []
    size, first = 0, None

    def piece() -> Dataset:
        is_2 = claimed_version.startswith(("2", "v2")) or any(example.impossible for example in examples)
        version = "2.0" if is_2 else "1.1"
        return Dataset(passages=list(passages), examples=examples, faults=faults, version=version)

    for raw in raws:
        try:
            if isinstance(raw, Fault):
                raise InputError(raw.reason)
            example, context = _example(raw, seen, gold)
        except InputError as error:
            if strict:
                raise InputError(f"{path}: {error}") from error
            faults.append(Fault(id=None if isinstance(raw, Fault) else _unused_id(raw.qa, seen), reason=str(error)))
            first = first or str(error)
        else:
            examples.append(replace(example, passage=passages.setdefault(context, len(passages))))
            size += len(context)
        if len(examples) + len(faults) >= questions or size >= characters:
            yield piece()
            passages, examples, faults, size = {}, [], [], 0
    if not seen:
        raise InputError(f"{path}: {first or 'no questions in the file'}; give a dataset in SQuAD format")
    if examples or faults:
        yield piece()


def locate(passage: str, answer: Answer) -> int | None:
    """Return where `answer` starts: at its offset or else at the nearest occurrence; None if it is not there."""
    if answer.start >= 0 and passage.startswith(answer.text, answer.start):
        return answer.start
    before = _rfind(passage[: max(answer.start, 0) + len(answer.text)], answer.text)
    after = passage.find(answer.text, max(answer.start, 0))
    starts = [start for start in (before, after) if start >= 0]
    return min(starts, key=lambda start: abs(start - answer.start), default=None)


def _rfind(text: str, part: str) -> int:
    """Return `text.rfind(part)`, by `find` on reversed texts: `rfind` can take time in the product of both lengths."""
    at = text[::-1].find(part[::-1])
    return at if at < 0 else len(text) - at - len(part)


def spans(dataset: Dataset, *, impossible: bool) -> Spans:
    """Return the first answer of each question as a character span. impossible: keep impossible questions."""
    answer_spans, inferred, dropped = [], [], {}
    for example in dataset.examples:
        if example.impossible and impossible:
            answer_spans.append(Span(example=example))
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
        answer_spans.append(Span(example=example, start=start, end=start + len(answer.text)))
    return Spans(spans=answer_spans, inferred=inferred, dropped=dropped)


def _raw_questions(path: Path) -> tuple[str, Iterator[Raw | Fault]]:
    """Return the version that the file claims, and its questions."""
    if path.is_dir() or path.suffix.lower() == ".parquet":
        return "", _rows(_parts(path))
    if path.suffix.lower() == ".arrow":
        raise InputError(
            f"{path}: Arrow is not read here; write it as Parquet with the method to_parquet of `datasets`"
        )
    if ".jsonl" in path.suffixes[-2:]:
        return "", _lines(path)
    text = files.read_text(path, MAX_JSON, "give it as .jsonl, one question per line, which may have any length")
    try:
        tree = files.parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); name a file with one question per line .jsonl") from error
    version = tree.get("version") if isinstance(tree, dict) else None
    return str(version), _nested(tree, "", LEVELS)


def _parts(path: Path) -> list[Path]:
    """Return the Parquet files of a set: the file `path`, or all files in the folder `path`.

    Raise InputError if a folder lacks files of the set, or has several sets. Print a warning if the file `path` is only
    a part of its set.
    """
    if not path.is_dir():
        _tell_part(path)
        return [path]
    paths = sorted(each for each in path.glob("*.parquet") if not each.name.startswith("."))
    if not paths:
        raise InputError(f"{path}: a folder without a .parquet file; give a file of questions, or a folder of Parquet")
    if all(NUMBERED.fullmatch(each.name) for each in paths):
        if missing := [n for n, each in enumerate(paths) if int(each.stem) != n]:
            raise InputError(f"{path}: {missing[0]:04d}.parquet is missing; give all files of the set")
        return paths
    parts = [PART.fullmatch(each.name) for each in paths]
    sets = {part[1] if part else each.name for part, each in zip(parts, paths, strict=True)}
    if len(sets) > 1:
        raise InputError(
            f"{path}: has several sets, such as {', '.join(sorted(sets)[:3])}; give the files of one alone"
        )
    if len(paths) != int(parts[0][3] if parts[0] else 1):
        of = parts[0] and int(parts[0][3])
        raise InputError(f"{path}: {len(paths)} files, but {paths[0].name} is one of {of}; give all files of the set")
    return paths


@functools.cache  # once for each file, however often it is read
def _tell_part(path: Path) -> None:
    if (part := PART.fullmatch(path.name)) and int(part[3]) > 1:
        of, remedy = f"one of {int(part[3])} files of the set", "for all of them, give a folder that has these alone"
        print(f"warning: {path}: {of}; {remedy}", file=sys.stderr)


def _rows(paths: Sequence[Path]) -> Iterator[Raw]:
    def choose(names: list[str]) -> list[str] | None:
        return [name for name in names if name in COLUMNS] if {*names} >= REQUIRED else None  # all, for the message

    for path in paths:
        files.check_regular(path)
        for number, row in enumerate(parquet.read(path, choose), 1):
            answers = row.get("answers")
            if isinstance(answers, list) and all(isinstance(answer, dict) for answer in answers):
                row["answers"] = {key: [answer.get(key) for answer in answers] for key in ("text", "answer_start")}
            yield Raw(f"{path.name}, row {number}" if len(paths) > 1 else f"row {number}", row, row)


def _lines(path: Path) -> Iterator[Raw | Fault]:
    with files.open_text(path) as stream:
        for number, line in enumerate(files.read_lines(stream, path), 1):
            if not line.strip():
                continue
            try:
                record = files.parse_json(line)
            except ValueError as error:
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


def _example(raw: Raw, seen: set[str], gold: bool) -> tuple[Example, str]:
    """Return the question, without the number of its passage, and its passage. Its id is added to `seen`."""
    integer_id = _integer_id(raw.qa)
    identity = _text(raw.qa, "id", raw.place) if integer_id is None else integer_id
    place = f"{raw.place} (id {_shown(identity)})"
    if identity in seen:
        raise InputError(f"{place}: the id occurs twice; make ids unique in the file")
    answers, impossible = _gold(raw.qa, place) if gold else ((), False)
    question = _text(raw.qa, "question", place)
    example = Example(id=identity, question=question, passage=-1, answers=answers, impossible=impossible)
    context = _text(raw.paragraph, "context", place)
    seen.add(identity)
    return example, context


def _integer_id(qa: Any) -> str | None:
    """Return the id of a question as text if it is a whole number (a table with gaps has 1.0 for 1); else None."""
    identity = qa.get("id") if isinstance(qa, dict) else None
    if type(identity) is float and identity.is_integer():
        identity = int(identity)
    return str(identity) if type(identity) is int and abs(identity) <= LARGEST_ID else None


def _gold(qa: dict[str, Any], place: str) -> tuple[tuple[Answer, ...], bool]:
    """Return the gold answers of a question, and whether it is impossible."""
    fields = {key: value for key, value in qa.items() if value is not None}
    listed, in_columns = fields.get("answers", []), isinstance(fields.get("answers"), dict)
    if in_columns:
        texts, starts = (_get(listed, key, list, f"{place}, answers") for key in ("text", "answer_start"))
        if len(texts) != len(starts):
            raise InputError(f"{place}, answers: {len(texts)} texts, but {len(starts)} starts")
        listed = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    answers = []
    for n, answer in enumerate(_get(fields | {"answers": listed}, "answers", list, place)):
        below = f"{place}, answer {n}"
        if isinstance(answer, dict) and type(start := answer.get("answer_start")) is float and start.is_integer():
            answer = answer | {"answer_start": int(start)}
        answers.append(Answer(text=_text(answer, "text", below), start=_get(answer, "answer_start", int, below)))
    impossible = _get(fields, "is_impossible", bool, place, default=in_columns and not answers)
    return tuple(answers), impossible


def _unused_id(qa: Any, seen: set[str]) -> str | None:
    """Return the id of a malformed question, unless it is in `seen`, to which it is added."""
    identity = _integer_id(qa) or (qa.get("id") if isinstance(qa, dict) else None)
    if not isinstance(identity, str) or identity in seen:
        return None
    seen.add(identity)
    return identity


def _get(record: Any, key: str, kind: type[T], place: str, default: T | None = None) -> T:
    if type(record) is not dict:
        raise InputError(f"{place}: {_type_name(record)}, not an object")
    if key not in record:
        if default is not None:
            return default
        keys = [_shown(name) for name in sorted(record)[:SHOWN_KEYS]] + ["..."] * (len(record) > SHOWN_KEYS)
        raise InputError(f"{place}: no {key!r}; its keys are {', '.join(keys) or 'none'}")
    value = record[key]
    if type(value) is not kind:  # not isinstance: true is an int in Python but not in JSON
        raise InputError(f"{place}: {key!r} is {_type_name(value)}, not {TYPE_NAMES[kind]}")
    return value


def _text(record: Any, key: str, place: str) -> str:
    text = _get(record, key, str, place)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place}: {key!r} has half a surrogate pair at character {error.start}") from error
    return text


def _shown(text: str) -> str:
    """Return a text from the file as an error message shows it."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")


def _type_name(value: Any) -> str:
    return "null" if value is None else TYPE_NAMES[type(value)]
