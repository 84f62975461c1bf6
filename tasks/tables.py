"""One's own texts with labels: .tsv, .csv or .jsonl with named columns, plain or compressed.

TSV has a header and is never quoted. CSV has a header and is quoted as RFC 4180 says. JSONL has an object on each line.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert.errors import InputError
from bert.storage import files
from tasks.examples import Skipped, TextExample

COMPRESSED = (".gz", ".bz2", ".xz")
MARK = "\ufeff"  # a byte order mark
ID = "id"  # column whose values predictions are written under, if there is one
LONGEST = 1 << 27  # characters of a field


def read(
    path: Path,
    text: Sequence[str],
    label: str | None,
    *,
    regression: bool,
    skipped: Skipped,
    where: Mapping[str, str] | None = None,
) -> Iterator[TextExample]:
    """Yield the rows of a file in order.

    text: the column of the text, or the two columns of a pair. label: its column; None reads no labels. regression:
    labels are numbers. where: read only rows that have these values, as {"language": "de"} of XNLI. A file without a
    header, which only TSV can be, has columns named by their numbers from 0: give "0". A malformed row is left out and
    counted. Raise InputError for a missing column, or for what is not of the format.
    """
    wanted = [*text, *([label] if label else []), *(where or ())]
    for number, (line, row) in enumerate(_rows(path, wanted)):
        if row is None:
            skipped.add(path, line, "not as many columns as the first line")
            continue
        if any(row[column] != value for column, value in (where or {}).items()):
            continue
        try:
            yield _example(row, text, label, regression, str(number))
        except ValueError as error:
            skipped.add(path, line, str(error))


def _example(
    row: Mapping[str, Any], text: Sequence[str], label: str | None, regression: bool, number: str
) -> TextExample:
    """Return the example of a row. Raise ValueError if it is malformed."""
    for column in text:
        if not isinstance(row.get(column), str) or not row[column].strip():
            raise ValueError(f"{column} is empty" if isinstance(row.get(column), str) else f"{column} is not a text")
    value = row[label] if label else None
    if label and regression:
        value = _number(value, label)
    elif label:
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise ValueError(f"{label} is {value!r}, not the name of a class")
        value = str(value)
    second = row[text[1]] if len(text) == 2 else None
    return TextExample(id=str(row.get(ID, number)), first=row[text[0]], second=second, label=value)


def _number(value: Any, label: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{label} is {value!r}, not a number")
    return number


def _rows(path: Path, wanted: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the number of each row's line and its values by column; None for a row without all columns."""
    name = path.name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    readers = {".tsv": _tsv, ".txt": _tsv, ".csv": _csv, ".jsonl": _jsonl}
    suffix = "." + name.rpartition(".")[2]
    if suffix not in readers:
        raise InputError(f"{path}: the name must end in .tsv, .csv or .jsonl, also with .gz, .bz2 or .xz behind it")
    with files.open_text(path) as stream:
        yield from readers[suffix](files.read_lines(stream, path), path, wanted)


def _tsv(lines: Iterator[str], path: Path, wanted: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    fields = (line.rstrip("\r\n").split("\t") for line in lines)
    header = next(fields, [""])
    header[0] = header[0].removeprefix(MARK)
    rows = enumerate(fields, 2)
    if all(name.isdecimal() for name in wanted):  # no header: the first line is a row
        first, header = header, [str(number) for number in range(len(header))]
        yield 1, dict(zip(header, first, strict=True))
    _check(header, wanted, path)
    for number, row in rows:
        if row != [""]:
            yield number, dict(zip(header, row, strict=True)) if len(row) == len(header) else None


def _csv(lines: Iterator[str], path: Path, wanted: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    csv.field_size_limit(LONGEST)
    reader = csv.reader(lines, strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"{path}: line {line}: not CSV ({error}); quote fields that have quotes in them"
            ) from error
        if row is None:
            break
        if header is None:
            header = [name.removeprefix(MARK) for name in row]
            _check(header, wanted, path)
        elif row:
            yield line, dict(zip(header, row, strict=True)) if len(row) == len(header) else None
    if header is None:
        _check([], wanted, path)


def _jsonl(lines: Iterator[str], path: Path, wanted: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = files.parse_json(line.removeprefix(MARK))
        except ValueError as error:
            raise InputError(f"{path}: line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}: line {number}: not a JSON object")
        if number == 1:
            _check(list(row), wanted, path)
        yield number, row if all(name in row for name in wanted) else None


def _check(header: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    """Raise InputError if a column is missing, or there twice."""
    for name in wanted:
        if header.count(name) != 1:
            listed = ", ".join(header[:8]) + (", ..." if len(header) > 8 else "")
            problem = "is there twice" if name in header else "is missing"
            raise InputError(f"{path}: the column {name!r} {problem}; it has {listed}")
