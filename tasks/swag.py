"""Read SWAG: a sentence, the beginning of the next one, and four endings of that (Zellers et al. 2018).

The files are train.csv, val.csv and test.csv of github.com/rowanz/swagaf: CSV with quotes and a header. The first
segment of a pair is `sent1`, the second `sent2` and an ending.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bert.errors import InputError
from bert.storage import files
from tasks.examples import ChoiceExample, Skipped

ENDINGS = ("ending0", "ending1", "ending2", "ending3")
REQUIRED = ("sent1", "sent2", *ENDINGS)
LABELS = {str(label): label for label in range(len(ENDINGS))}
GENERATED = "gen"  # a `gold-source` begins with it where annotators liked a generated ending best
MAX_SHOWN = 20  # characters of the file in a message


class Row(NamedTuple):
    """A row of the file after the header, with its number, from 0, and its first line, from 1."""

    number: int
    line: int
    fields: list[str]


def read(path: Path, skipped: Skipped, generated: bool = True) -> Iterator[ChoiceExample]:
    """Yield the rows of a file in order; their label is None in a file without the column `label`.

    generated: also yield rows whose right ending is a generated one, which only train.csv has. The id is the file's
    index, its unnamed first column, or else the number of the row. A malformed row is left out and counted. Raise
    InputError if the file is not CSV or lacks a column.
    """
    with files.open_text(path) as stream:
        reader = csv.reader(files.read_lines(stream, path), strict=True)
        columns = _columns(path, reader, generated)
        for row in _rows(path, reader):
            if reason := _fault(row, columns):
                skipped.add(path, row.line, reason)
            elif generated or not row.fields[columns["gold-source"]].startswith(GENERATED):
                yield _example(row, columns)


def _columns(path: Path, reader: Iterator[list[str]], generated: bool) -> dict[str, int]:
    """Return the index of each column by its name in the header."""
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise InputError(f"{path}: line 1: not CSV ({error}); give the file as published") from error
    columns = {name.removeprefix("\ufeff"): index for index, name in enumerate(header)}
    missing = [name for name in (*REQUIRED, *([] if generated else ["gold-source"])) if name not in columns]
    if missing:
        raise InputError(
            f"{path}: no column {', '.join(missing)} in the header; give train.csv, val.csv or test.csv of SWAG "
            "(the files *_full.csv have other columns)"
        )
    return columns


def _rows(path: Path, reader: "csv._reader") -> Iterator[Row]:
    number = 0
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:  # a quote that does not end would join all rows up to the next one
            raise InputError(f"{path}: line {line}: not CSV ({error}); correct its quotes") from error
        if fields is None:
            return
        if fields:  # else the line is empty
            yield Row(number, line, fields)
            number += 1


def _fault(row: Row, columns: dict[str, int]) -> str:
    """Return what is wrong with a row, in words; "" if nothing is."""
    if len(row.fields) != len(columns):
        return f"{len(row.fields)} columns, not {len(columns)}"
    empty = [name for name in ("sent1", *ENDINGS) if not row.fields[columns[name]].strip()]
    if empty:
        return f"{empty[0]} is empty"
    label = row.fields[columns["label"]] if "label" in columns else "0"
    return "" if label in LABELS else f"the label is {label[:MAX_SHOWN]!r}, not one of {', '.join(LABELS)}"


def _example(row: Row, columns: dict[str, int]) -> ChoiceExample:
    def text(name: str) -> str:
        return row.fields[columns[name]]

    return ChoiceExample(
        id=text("") if "" in columns else str(row.number),
        pairs=tuple((text("sent1"), f"{text('sent2')} {text(ending)}".lstrip()) for ending in ENDINGS),
        label=LABELS[text("label")] if "label" in columns else None,
    )
