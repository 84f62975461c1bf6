"""Several labels of a text, in the forms in which files have them.

{"text": ..., "labels": ["toxic", "insult"]}    a list, in JSON lines; [] for a text without a label
toxic,insult                                    names in one field of a table; empty for none
['toxic', 'insult']                             a list as Python writes it into one
toxic=1 threat=0 insult=1                       a column for each label (--data.label_columns), -1 for unknown

A list of 0 and 1 with a place for each label, such as [1, 0, 1], does not name labels, and is refused in all spellings.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tasks.examples import writable

VALUES = {"0": 0, "1": 1, "-1": -1, "0.0": 0, "1.0": 1, "-1.0": -1, "false": 0, "true": 1}
VALUES |= {"no": 0, "yes": 1, "n": 0, "y": 1}
MARKS = re.compile(r"[\s,;:_|/()\[\]{}]+|(?<=[01])-(?=[01])")  # between and around values of 0 and 1 in a text
PLACES = re.compile("[01]+")  # such as 0110
ARRAY = re.compile(r"(?:[a-z]+\.)?(?:array|tensor)?\(?\[([^]]*)\](?:,.*)?\)?", re.DOTALL)  # of NumPy or PyTorch
PYTHON = re.compile(r"""\(['"].*['"],?\)|\{.*\}""", re.DOTALL)  # a tuple or a set of names
NONE = ("()", "{}", "set()")
REMEDY = "give a column of 0 and 1 for each label (--data.label_columns), or the names of the labels of a text"


class PositionsError(ValueError):
    """A list has 0 and 1 for each label, instead of the names of labels."""


@dataclass(frozen=True, kw_only=True)
class LabelSets:
    """How the rows of a file say which labels a text has."""

    label: str = "labels"
    """the column of the list, or of the names in one text"""
    separator: str = ","
    """between two names in a text"""
    each: tuple[str, ...] = ()
    """a column of 0 and 1 for each label, instead"""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a file must have."""
        return self.each or (self.label,)

    def of(self, row: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the labels of a row, and the labels that are unknown. Raise ValueError for malformed values."""
        if not self.each:
            return self._names(row[self.label]), ()
        values = {name: VALUES.get(str(row[name]).strip().lower()) for name in self.each}
        if wrong := [name for name, value in values.items() if value is None]:
            raise ValueError(f"{wrong[0]} is {row[wrong[0]]!r}, not 0, 1 or -1")
        positive, unknown = (tuple(name for name in self.each if values[name] == value) for value in (1, -1))
        if len(unknown) == len(self.each):
            raise ValueError("all labels are -1, unknown")
        return positive, unknown

    def _names(self, value: Any) -> tuple[str, ...]:
        names = _split(value, self.separator) if isinstance(value, str) else value
        if not isinstance(names, list) or not all(
            isinstance(name, str | int | float) and str(name).strip() for name in names
        ):
            raise ValueError(f"{self.label} is {value!r}, not a list of the names of labels; [] is none")
        parts = _zeros_and_ones(map(str, names))
        if len(set(parts)) < len(parts) or any(isinstance(name, bool) for name in names):
            raise PositionsError(f"{self.label} is {str(value)[:60]}, 0 or 1 for each label; {REMEDY}")
        if wrong := [name for name in names if isinstance(name, float) and not name.is_integer()]:
            raise ValueError(f"{self.label} has {wrong[0]!r}, not the name of a label")
        texts = (str(int(name)) if isinstance(name, float) else str(name) for name in names)
        return tuple(dict.fromkeys(writable(text, self.label) for text in texts))


def are_positions(names: Sequence[str]) -> bool:
    """Return whether the read names of labels are in fact values 0 and 1 for each label."""
    same_length = len({len(name) for name in names}) == 1 and all(map(PLACES.fullmatch, names))
    return same_length or bool(_zeros_and_ones(names))


def _zeros_and_ones(names: Iterable[str]) -> list[int]:
    """Return the values if these names, or their parts, are nothing but 0, 1 and -1; else none."""
    values = []
    for name in names:
        for part in [name] if name.isalnum() else MARKS.split(name):
            if part:
                value = VALUES.get((part + "0" if part.endswith(".") else part).lower())
                if value is None:
                    return []
                values.append(value)
    return values


def _split(text: str, separator: str) -> list[Any]:
    """Return the names in a text. Raise ValueError as `listed` does, PositionsError for an array of 0 and 1."""
    text = text.strip()
    array = ARRAY.fullmatch(text)
    if array and len(_zeros_and_ones([array[1]])) > 1 and not (text.startswith("[") and "," in text):
        raise PositionsError(f"{text[:60]!r} has 0 or 1 for each label; {REMEDY}")
    if text.startswith("[") or (array and not text.startswith("[")):
        names = listed(text)
    elif text in NONE:
        names = []
    elif PYTHON.fullmatch(text):
        names = listed(f"[{text[1:-1]}]")
    else:
        names = text.split(separator)
    names = [name.strip() if isinstance(name, str) else name for name in names]
    return [] if names == [""] else names


def listed(text: str) -> Any:
    """Return a list that Python or JSON has written as a text. Raise ValueError if it is none.

    Python joins strings without a comma between them, so that ['a' 'b'], as NumPy writes an array, would be one name.
    """
    try:
        value = ast.literal_eval(text.strip())
        kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline)]
    except (ValueError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError):
        raise ValueError(f"{text[:60]!r} is not a list of the names of labels") from None
    kinds = [kind for kind in kinds if kind not in (tokenize.NL, tokenize.NEWLINE)]
    if (tokenize.STRING, tokenize.STRING) in pairwise(kinds):
        raise ValueError(f"{text[:60]!r} has names without a comma between them; write a list")
    return value
