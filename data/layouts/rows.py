"""Rows of named values, from which a text is taken: what all layouts of records share."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert.core import files
from bert.core.errors import InputError

LISTED = 10  # columns in a message


class Row(NamedTuple):
    """A record of a file."""

    place: str
    """line or row, for messages"""
    number: int
    """from 1"""
    values: Mapping[str, Any] | str
    """by column; or why it cannot be read"""


class Text(NamedTuple):
    """A text of a file."""

    number: int
    id: str | None
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of texts and of their ids."""

    text: tuple[str, ...]
    """joined by line ends"""
    id: str | None
    """None: `id`, if there is one; "": there are none"""

    @property
    def key(self) -> str | None:
        """The column of ids, if there may be one."""
        return "id" if self.id is None else self.id or None


def texts(rows: Iterator[Row], columns: Columns, path: Path, most: int) -> Iterator[Text | None]:
    """Yield the text of each row, or None for a bad row. There may be `most` bad rows.

    A row is bad if it cannot be read, or if a text or an id is missing, null or of another type. Raise InputError,
    naming the row, if there is one bad row more.
    """
    bad = 0
    for row in rows:
        reason = row.values if isinstance(row.values, str) else _wrong(row.values, columns)
        if reason is None:
            identifier = _identifier(row.values, columns)  # type: ignore[arg-type]
            parts = [row.values[name] for name in columns.text]  # type: ignore[index]
            named = None if identifier in (None, "") else str(identifier)  # a table has no other way to say none
            yield Text(row.number, named, "\n".join(parts))
            continue
        bad += 1
        if bad > most:
            more = f", the {bad:,}th bad one" if most else ""
            raise InputError(
                f"{path}: {row.place} {row.number:,}{more}: {reason}; correct it, or give --skip_bad or other columns"
            )
        yield None


def _wrong(values: Mapping[str, Any], columns: Columns) -> str | None:
    for name in columns.text:
        if name not in values:
            return missing(name, [*values])
        if not isinstance(values[name], str):
            kind = "null" if values[name] is None else type(values[name]).__name__
            return f"{name} is {kind}, not a text"
    identifier = _identifier(values, columns)
    if columns.id and columns.id not in values:
        return missing(columns.id, [*values])
    if isinstance(identifier, bool) or not isinstance(identifier, str | int | None):
        return f"{columns.id or 'id'} is neither a text nor a number"
    if isinstance(identifier, str) and files.SURROGATE.search(identifier):
        return f"{columns.id or 'id'} has half a surrogate pair"
    return None


def _identifier(values: Mapping[str, Any], columns: Columns) -> Any:
    """Return the id of a row. A table whose column has gaps has 1.0 for 1, and NaN for none."""
    value = values.get(columns.key) if columns.key else None
    if isinstance(value, float) and (math.isnan(value) or value.is_integer()):
        return None if math.isnan(value) else int(value)
    return value


def missing(name: str, names: Sequence[str]) -> str:
    """Return a message that a row, or a file, lacks a column, and which columns it has."""
    listed = ", ".join(map(ascii, names[:LISTED])) + (", ..." if len(names) > LISTED else "")
    other = " (articles of Wikimedia Enterprise are for data.wikipedia)" if "article_body" in names else ""
    return f"no column {name!a}, only {listed or 'none'}{other}"
