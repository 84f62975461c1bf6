"""Read SWAG: a sentence, the beginning of the next one, and four endings of that (Zellers et al. 2018).

The files are train.csv, val.csv and test.csv of github.com/rowanz/swagaf: CSV with quotes and a header. The first
segment of a pair is `sent1`, the second `sent2` and an ending.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from bert.errors import InputError
from bert.storage import files
from tasks.examples import ChoiceExample, Skipped

ENDINGS = ("ending0", "ending1", "ending2", "ending3")
REQUIRED = ("sent1", "sent2", *ENDINGS)
INDEX, SOURCE, LABEL = "", "gold-source", "label"  # columns that a file may lack
LABELS = {str(label): label for label in range(len(ENDINGS))}
GENERATED = "gen"  # a `gold-source` begins with it where annotators liked a generated ending best
MAX_SHOWN = 20  # characters of the file in a message


@dataclass(frozen=True)
class Header:
    """The number of columns, and the index of each by its name."""

    width: int
    index: dict[str, int]


class Row(NamedTuple):
    """A row of the file and its first line, from 1."""

    line: int
    fields: list[str]


def read(path: Path, skipped: Skipped, generated: bool = True) -> Iterator[ChoiceExample]:
    """Yield the rows of a file in order; their label is None in a file without the column `label`.

    generated: also yield rows whose right ending is a generated one, which only train.csv has. The id is the file's
    index, its unnamed first column, or else the number of the row. A malformed row is left out and counted. Raise
    InputError if the file is not CSV or lacks a column.
    """
    with files.open_text(path) as stream:
        rows = _rows(path, stream)
        header = _header(path, next(rows, Row(1, [])), () if generated else (SOURCE,))
        for number, row in enumerate(rows):
            if reason := _fault(row.fields, header):
                skipped.add(path, row.line, reason)
                continue
            text = {name: row.fields[index] for name, index in header.index.items()}
            if generated or not text[SOURCE].startswith(GENERATED):
                yield ChoiceExample(
                    id=text.get(INDEX, str(number)),
                    pairs=tuple((text["sent1"], f"{text['sent2']} {text[ending]}".lstrip()) for ending in ENDINGS),
                    label=LABELS[text[LABEL]] if LABEL in text else None,
                )


def _rows(path: Path, stream: IO[str]) -> Iterator[Row]:
    """Yield all rows of a CSV file that are not empty."""
    reader = csv.reader(files.read_lines(stream, path), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:  # a quote that does not end would join all rows up to the next one
            raise InputError(f"{path}: line {line}: not CSV ({error}); correct its quotes") from error
        if fields is None:
            return
        if fields:
            yield Row(line, fields)


def _header(path: Path, row: Row, needed: Sequence[str]) -> Header:
    names = [name.removeprefix("\ufeff") for name in row.fields]
    missing = [name for name in (*REQUIRED, *needed) if name not in names]
    if missing:
        raise InputError(
            f"{path}: no column {', '.join(missing)} in the header; give train.csv, val.csv or test.csv of SWAG "
            "(the files *_full.csv have other columns)"
        )
    twice = [name for name in (*REQUIRED, SOURCE, LABEL) if names.count(name) > 1]
    if twice:
        raise InputError(f"{path}: two columns {twice[0]} in the header; remove one")
    return Header(len(names), {name: index for index, name in reversed([*enumerate(names)])})  # the first of a name


def _fault(fields: list[str], header: Header) -> str:
    """Return what is wrong with a row, in words; "" if nothing is."""
    if len(fields) != header.width:
        return f"{len(fields)} columns, not {header.width}"
    empty = [name for name in ("sent1", *ENDINGS) if not fields[header.index[name]].strip()]
    if empty:
        return f"{empty[0]} is empty"
    label = fields[header.index[LABEL]] if LABEL in header.index else "0"
    return "" if label in LABELS else f"the label is {label[:MAX_SHOWN]!r}, not one of {', '.join(LABELS)}"
