"""Read one's own multiple choice: JSONL with {"id", "context", "choices": [...], "label"} in each line.

The first segment of a pair is the context, the second one of the choices. `label` is the index of the right choice,
from 0; without it, or with null, the right one is unknown. `id` may be missing: then it is the number of the line. An
optional `group` names a part of the file that is also scored on its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert.core import files
from bert.core.errors import InputError
from tasks.examples import ChoiceExample, Skipped

FEWEST = 2  # choices


def read(path: Path, skipped: Skipped, labels: bool = True) -> Iterator[ChoiceExample]:
    """Yield the examples of a file in order; all have as many choices as the first one, and a label if it has one.

    labels: False does not look at labels. A malformed line is left out and counted. Empty lines are no examples. Raise
    InputError at the end of a file whose labels count from 1.
    """
    first: ChoiceExample | None = None
    used, after_last = set[int | None](), False
    with files.open_text(path) as stream:
        for number, line in enumerate(files.read_lines(stream, path)):
            if not line.strip():
                continue
            try:
                example = _example(line, number, labels)
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


class _AfterLast(ValueError):
    """A label is the number of choices, which would be the last one if they were counted from 1."""


def _example(line: str, number: int, labels: bool) -> ChoiceExample:
    """Return the example of a line. Raise ValueError if it is malformed."""
    record = _object(line)
    identity, context, choices = record.get("id", number), record.get("context"), record.get("choices")
    label, group = record.get("label") if labels else None, record.get("group", "")
    if type(identity) not in (int, str):
        raise ValueError("'id' is neither a string nor an integer")
    if not isinstance(context, str) or not context.strip():
        raise ValueError("'context' is not a string, or empty")
    if not isinstance(choices, list) or len(choices) < FEWEST:
        raise ValueError(f"'choices' is not a list of at least {FEWEST}")
    if not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise ValueError("one of 'choices' is not a string, or empty")
    if label is not None and (type(label) is not int or not 0 <= label < len(choices)):
        error = _AfterLast if type(label) is int and label == len(choices) else ValueError
        raise error(f"'label' is not an index of the {len(choices)} choices, from 0")
    if not isinstance(group, str):
        raise ValueError("'group' is not a string")
    _check_writable(str(identity), group)
    pairs = tuple((context, choice) for choice in choices)
    return ChoiceExample(id=str(identity), pairs=pairs, label=label, group=group)


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
