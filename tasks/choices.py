"""Read one's own multiple choice: JSONL or Parquet with {"id", "context", "choices": [...], "label"} in each row.

The first segment of a pair is the context, the second one of the choices; with a `question` about the context, the
pairs are those of `tasks.race`. `label` is the right choice: its index from 0, as a number or as a text, a letter from
A on, or its text; without it, or with null or "", the right one is unknown. `id` may be missing: then it is the number
of the line. An optional `group` names a part of the file that is also scored on its own.

Rows of published sets are read, too, as `datasets` has them: HellaSwag (`ctx`, `endings`, `label`), ARC and
CommonsenseQA (`question`, `choices` with `text` and `label`, `answerKey`), OpenBookQA (`question_stem`), MMLU
(`question`, `choices`, `answer`), and RACE (`article`, `question`, `options`, `answer`).
"""

import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert.core import files
from bert.core.errors import InputError
from tasks import tables
from tasks.examples import ChoiceExample, Skipped
from tasks.race import with_answer

FEWEST = 2  # choices
OWN = ("context", "choices")  # the keys of one's own files; the next line has the keys of published sets
PUBLISHED = (("ctx", "endings"), ("question", "choices"), ("question_stem", "choices"), ("article", "options"))
LABELS = ("label", "answerKey", "answer")  # the first one that a row has


def read(path: Path, skipped: Skipped, labels: bool = True) -> Iterator[ChoiceExample]:
    """Yield the examples of a file in order; all have as many choices as the first one, and a label if it has one.

    labels: False does not read labels. A malformed line is left out and counted. Empty lines are ignored. At the end of
    the file, raise InputError if its labels count from 1.
    """
    first: ChoiceExample | None = None
    used, after_last = set[int | None](), False
    for number, record in _records(path):
        try:
            example = _example(_object(record) if isinstance(record, str) else record, number, labels)
            first = first or example
            _check_like(first, example)
        except ValueError as error:
            after_last |= isinstance(error, _AfterLast)
            skipped.add(path, number + 1, str(error))
            continue
        used.add(example.label)
        yield example
    if after_last and 0 not in used:
        raise InputError(f"{path}: the labels seem to count the choices from 1; count them from 0")


def _records(path: Path) -> Iterator[tuple[int, str | dict[str, Any]]]:
    """Yield the lines that are not empty, or the rows of Parquet, numbered from 0."""
    if tables.kind_of(path) == tables.PARQUET:
        yield from ((number - 1, row) for number, row in tables.rows(path, ()) if row is not None)
        return
    with files.open_text(path) as stream:
        yield from ((n, line) for n, line in enumerate(files.read_lines(stream, path)) if line.strip())


class _AfterLast(ValueError):
    """A label is the number of choices, which would be the last one if they were counted from 1."""


def _example(record: dict[str, Any], number: int, labels: bool) -> ChoiceExample:
    """Return the example of a row. Raise ValueError if it is malformed."""
    keys = next((keys for keys in (OWN, *PUBLISHED) if {*keys} <= record.keys()), OWN)
    of_label = next((key for key in LABELS if key in record), LABELS[0])
    listed = f"; its keys are {', '.join(map(repr, [*record][:8]))}" if not {*keys} <= record.keys() else ""
    context: Any = record.get(keys[0])
    choices: Any = record.get(keys[1])
    names: Any = None  # of the choices
    if isinstance(choices, dict):
        choices, names = choices.get("text"), choices.get("label")
    identity, group = tables.whole(record.get("id", number)), record.get("group", "")
    identity = number if identity in (None, "") else identity
    if type(identity) not in (int, str):
        raise ValueError("'id' is neither a string nor an integer")
    if not isinstance(context, str) or not context.strip():
        raise ValueError(f"{keys[0]!r} is not a string, or empty{listed}")
    if not isinstance(choices, list) or len(choices) < FEWEST:
        raise ValueError(f"{keys[1]!r} is not a list of at least {FEWEST}{listed}")
    if not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise ValueError(f"one of {keys[1]!r} is not a string, or empty")
    if not isinstance(group, str):
        raise ValueError("'group' is not a string")
    _check_writable(str(identity), group)
    label = _index(tables.whole(record.get(of_label)), choices, names, of_label) if labels else None
    if keys[0] in ("context", "article") and (question := record.get("question")) is not None:
        if not isinstance(question, str):
            raise ValueError("'question' is not a string")
        pairs = tuple((with_answer(question, choice), context) for choice in choices)
    else:
        pairs = tuple((context, choice) for choice in choices)
    return ChoiceExample(id=str(identity), pairs=pairs, label=label, group=group)


def _index(label: Any, choices: list[str], names: Any, key: str) -> int | None:
    """Return the index that a label means; None without a label. names: of the choices, if the file has them.

    Raise ValueError if the label means no choice, or could mean several.
    """
    if label in (None, ""):
        return None
    index = label
    if isinstance(label, str):
        known = names if isinstance(names, list) else list(string.ascii_uppercase[: len(choices)])
        meant = {place for place, (name, text) in enumerate(zip(known, choices, strict=False)) if label in (name, text)}
        if known is names and label in names:
            meant = {names.index(label)}
        elif label.isascii() and label.isdecimal() and known is not names:
            meant.add(int(label))
        if len(meant) > 1:
            raise ValueError(f"{key!r} is {label[:20]!r}, which could be several of the choices; give an index from 0")
        index = meant.pop() if meant else label
    if type(index) is not int or not 0 <= index < len(choices):
        error = _AfterLast if type(index) is int and index == len(choices) else ValueError
        raise error(f"{key!r} is {str(label)[:20]!r}: not an index of the {len(choices)} choices, from 0, or a letter")
    return index


def _object(line: str) -> dict[str, Any]:
    try:
        record = files.parse_json(line)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def _check_like(first: ChoiceExample, example: ChoiceExample) -> None:
    """Raise ValueError if an example does not have what the file's first one has, so that no batch can hold both."""
    if len(example.pairs) != len(first.pairs):
        raise ValueError(f"{len(example.pairs)} choices, where the first example has {len(first.pairs)}")
    if (example.label is None) != (first.label is None):
        raise ValueError("no label, unlike the first example" if example.label is None else "the first to have a label")


def _check_writable(*names: str) -> None:
    """Raise ValueError for a name with half of a surrogate pair, which no file of predictions can hold."""
    if any("\ud800" <= character < "\ue000" for name in names for character in name):
        raise ValueError("'id' or 'group' has half a surrogate pair")
