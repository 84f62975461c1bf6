"""Several labels of a text, in the forms in which files have them.

{"text": ..., "labels": ["toxic", "insult"]}    a list, in JSON lines; [] for a text without a label
toxic,insult                                    names in one field of a table; empty for none
['toxic', 'insult']                             a list as Python writes it into one
toxic=1 threat=0 insult=1                       a column for each label (--data.label_columns), -1 for unknown
"""

import ast
import io
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tasks.examples import writable

VALUES = {"0": 0, "1": 1, "-1": -1, "0.0": 0, "1.0": 1, "-1.0": -1, "false": 0, "true": 1}


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
        """Return the labels of a row, and those that are unknown. Raise ValueError if it does not say."""
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
        if isinstance(value, str):
            value = _listed(value) if value.strip().startswith("[") else value.split(self.separator)
            value = [name.strip() if isinstance(name, str) else name for name in value]
            value = [] if value == [""] else value
        if not isinstance(value, list) or not all(type(name) in (str, int) and str(name).strip() for name in value):
            raise ValueError(f"{self.label} is {value!r}, not a list of the names of labels; [] is none")
        return tuple(dict.fromkeys(writable(str(name), self.label) for name in value))


def _listed(text: str) -> Any:
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
