"""One's own texts with labels: .tsv, .csv, .jsonl or .parquet with named columns; all but Parquet may be compressed.

TSV has a header and is never quoted. CSV has a header and is quoted as RFC 4180 says. JSONL has an object on each line.
"""

import contextlib
import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert.core import files
from bert.core.errors import InputError, UsageError
from bert.core.parquet import read as read_parquet
from tasks.examples import Skipped, TextExample, writable
from tasks.label_sets import LabelSets, PositionsError

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
PARQUET = ".parquet"
QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"', re.DOTALL)  # a value as CSV has it, with quotes in it
ROWS = 1024  # of Parquet that are written at once
Add = Callable[[dict[str, Any]], object]  # adds a row to a file
ID = "id"  # column of the ids of predictions, if there is one


def conditions(where: Sequence[str]) -> dict[str, str]:
    """Return the values that a row must have, by column, from a list of COLUMN=VALUE."""
    return dict(condition.split("=", 1) for condition in where)


def read(
    path: Path,
    text: Sequence[str],
    label: str | None,
    *,
    regression: bool,
    skipped: Skipped,
    where: Mapping[str, str] | None = None,
    several: LabelSets | None = None,
) -> Iterator[TextExample]:
    """Yield the rows of a file in order.

    text: the column of the text, or the two columns of a pair. label: its column; None reads no labels. regression:
    labels are numbers. where: read only rows that have these values, such as {"language": "de"} of XNLI. several: reads
    all labels of a row, instead of one. Only a TSV file may lack a header; its columns then have the names "0", "1",
    ... A malformed row is left out and counted. Raise InputError for a missing column, or if the file does not have the
    format.
    """
    columns = [*text, *([label] if label else []), *(several.columns if several else ()), *(where or ())]
    tsv = kind_of(path) in (".tsv", ".txt")
    for number, (line, row) in enumerate(rows(path, columns)):
        if row is None:
            skipped.add(path, line, "not as many columns as the first line")
            continue
        if not has(row, where or {}):
            continue
        try:
            example = _example(row, text, label, regression, number)
            if several:
                positive, unknown = several.of(row)
                example = dataclasses.replace(example, labels=positive, unknown=unknown)
            if tsv and not skipped.doubt and any(QUOTED.fullmatch(row[column]) for column in text):
                skipped.doubt = (
                    f"{path}: line {line}: a value in quotes, with doubled quotes in it; .tsv is never quoted, so all "
                    "quotes are part of the text; if they are not, write .csv with commas"
                )
            yield example
        except PositionsError as error:  # of all rows, even of those that could be names
            raise InputError(f"{path}: line {line}: {error}") from error
        except ValueError as error:
            skipped.add(path, line, str(error))


def _example(
    row: Mapping[str, Any], text: Sequence[str], label: str | None, regression: bool, number: int
) -> TextExample:
    """Return the example of a row. Raise ValueError if it is malformed."""
    check_texts(row, text)
    value = row[label] if label else None
    if label and regression:
        value = as_number(value, label)
    elif label:
        value = _class(value, label)
    second = row[text[1]] if len(text) == 2 else None
    return TextExample(id=identity(row, number), first=row[text[0]], second=second, label=value)


def identity(row: Mapping[str, Any], number: int) -> str:
    """Return the id of a row; its number if it has none, or an empty one. Raise ValueError as `writable` does."""
    value = whole(row.get(ID))
    return str(number) if value is None or value == "" else writable(str(value), ID)


def whole(value: Any) -> Any:
    """Return a value of a table with gaps as it was meant: an integer for a whole number, None for NaN."""
    if isinstance(value, float):
        return None if math.isnan(value) else int(value) if value.is_integer() else value
    return value


def has(row: Mapping[str, Any], where: Mapping[str, str]) -> bool:
    """Return whether a row has these values. Numbers and booleans are compared as JSON text; "1" also means 1.0."""
    for column, wanted in where.items():
        value = row[column]
        names = {_as_text(value)}
        if isinstance(value, float) and value.is_integer():
            names.add(str(int(value)))
        if wanted not in names:
            return False
    return True


def check_texts(row: Mapping[str, Any], text: Sequence[str]) -> None:
    """Raise ValueError if one of the columns has no text."""
    for column in text:
        if not isinstance(row.get(column), str) or not row[column].strip():
            raise ValueError(f"{column} is empty" if isinstance(row.get(column), str) else f"{column} is not a text")


def _class(value: Any, label: str) -> str:
    """Return the name of a class. A boolean is named as in JSON; 1.0 is named 1, which is the same number in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, str | int) or not str(value).strip():
        raise ValueError(f"{label} is {value!r}, not the name of a class")
    return writable(str(value), label)


def as_number(value: Any, label: str) -> float:
    """Return a finite number. Raise ValueError if it is none. label: its column."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{label} is {value!r}, not a number")
    return number


def rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the number of each row's line and its values by column; None for a row without all columns.

    columns: each of them must be there exactly once. Raise InputError as `read` does.
    """
    readers = {".tsv": _tsv, ".txt": _tsv, ".csv": _csv, ".jsonl": _jsonl}
    suffix = kind_of(path)
    if suffix == PARQUET:
        yield from _parquet(path, columns)
        return
    if suffix not in readers:
        raise InputError(
            f"{path}: the name must end in .tsv, .csv, .jsonl or .parquet; all but the last may have .gz, .bz2, .xz or "
            ".zst behind it"
        )
    with files.open_text(path) as stream:
        yield from readers[suffix](files.read_lines(stream, path), path, columns)


def kind_of(path: Path) -> str:
    """Return the suffix of a file's format in lower case, without a suffix of compression."""
    name = path.name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return "." + name.rpartition(".")[2]


def lines(path: Path, texts: Sequence[str] = ()) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a table as texts, with their numbers. The names of the columns come first, if there are any.

    A row of JSONL that lacks a column gives a list that is too short. Raise InputError if the file does not have its
    format, or if one of the columns `texts` has a value that is no text, such as a list.
    """
    if kind_of(path) not in (".csv", ".jsonl", PARQUET):
        with files.open_text(path) as stream:
            for number, line in enumerate(files.read_lines(stream, path), 1):
                yield number, line.removesuffix("\n").split("\t")
        return
    names: list[str] = []
    for number, row in rows(path, ()):
        if row is not None and not names:
            names = list(row)
            yield 1, names
        for name in texts:
            if row and not isinstance(row.get(name), str | None):
                raise InputError(f"{path}: line {number}: {name} is not a text but {json.dumps(row[name])[:40]}")
        yield number, [] if row is None else [_as_text(whole(row[name])) for name in names if name in row]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


@contextlib.contextmanager
def writer(path: Path) -> Iterator[Add]:
    """Yield a function that adds a row, with the same keys as the first one, to a file of the format that `rows` reads.

    The file appears at the end; "-" is standard output, with lines of JSON. In .tsv and .csv, each value of an object
    gets a separate column, and a list is written as JSON. Raise UsageError for another suffix, or without pyarrow for
    .parquet, InputError for a value that .tsv cannot hold.
    """
    if str(path) == "-":
        yield lambda row: print(json.dumps(row, ensure_ascii=False))
        return
    writers = {".jsonl": _write_jsonl, ".tsv": _write_tsv, ".csv": _write_csv, PARQUET: _write_parquet}
    suffix = path.suffix.lower()
    if suffix not in writers:
        raise UsageError(f"{path}: its name must end in .jsonl, .tsv, .csv or .parquet, uncompressed; rename it")
    with writers[suffix](path) as add:
        yield add


@contextlib.contextmanager
def _write_jsonl(path: Path) -> Iterator[Add]:
    with files.atomic_write(path) as stream:
        yield lambda row: stream.write(json.dumps(row, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def _write_tsv(path: Path) -> Iterator[Add]:
    with files.atomic_write(path) as stream:

        def write(values: Sequence[str]) -> None:
            if bad := next((value for value in values if re.search("[\t\r\n]", value)), None):
                raise InputError(f"{path}: {bad[:40]!a} has a tab or a line end, which .tsv cannot hold; give a .csv")
            stream.write("\t".join(values) + "\n")

        yield _flat(write)


@contextlib.contextmanager
def _write_csv(path: Path) -> Iterator[Add]:
    with files.atomic_write(path) as stream:
        yield _flat(lambda values: stream.write(",".join(map(_quoted, values)) + "\n"))


def _quoted(value: str) -> str:
    """Return a value in the form of RFC 4180. Python's writer does not quote a lone carriage return."""
    return '"' + value.replace('"', '""') + '"' if re.search('[",\r\n]', value) else value


def _flat(write: Callable[[Sequence[str]], Any]) -> Add:
    """Return a function that writes the values of a row; before the first one, the names of its columns."""
    names: list[str] = []

    def add(row: dict[str, Any]) -> None:
        flat: dict[str, Any] = {}
        for key, value in row.items():
            flat.update(
                {f"{key}.{name}": part for name, part in value.items()} if isinstance(value, dict) else {key: value}
            )
        if not names:
            names.extend(flat)
            write(names)
        assert list(flat) == names, "all rows have the same columns"
        write([_as_text(value) for value in flat.values()])

    return add


@contextlib.contextmanager
def _write_parquet(path: Path) -> Iterator[Add]:
    pyarrow = files.pyarrow(f"{path}: writing Parquet")
    from pyarrow import parquet  # type: ignore[import-not-found,unused-ignore]

    waiting: list[dict[str, Any]] = []
    with files.atomic_write(path, "wb") as stream, contextlib.ExitStack() as stack:
        table: Any = None

        def write() -> None:
            nonlocal table
            schema = table.schema if table else _with_texts(pyarrow, pyarrow.Table.from_pylist(waiting).schema)
            table = table or stack.enter_context(parquet.ParquetWriter(stream, schema))
            table.write_table(pyarrow.Table.from_pylist(waiting, schema=schema))
            waiting.clear()

        def add(row: dict[str, Any]) -> None:
            waiting.append(row)
            if len(waiting) == ROWS:
                write()

        yield add
        if waiting or table is None:
            write()


def _with_texts(pyarrow: Any, schema: Any) -> Any:
    """Return a schema in which columns of only empty lists are lists of texts: later rows may have labels there."""
    empty, texts = pyarrow.list_(pyarrow.null()), pyarrow.list_(pyarrow.string())
    return pyarrow.schema([field.with_type(texts) if field.type == empty else field for field in schema])


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    files.check_regular(path)

    def choose(names: list[str]) -> None:
        _check(names, columns, path)

    yield from enumerate(read_parquet(path, choose), start=1)


def _tsv(lines: Iterator[str], path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    fields = (line.removesuffix("\n").split("\t") for line in lines)
    header = next(fields, [""])
    rows = enumerate(fields, 2)
    if columns and all(name.isdecimal() for name in columns):  # no header: the first line is a row
        first, header = header, [str(number) for number in range(len(header))]
        yield 1, dict(zip(header, first, strict=True))
    _check(header, columns, path)
    for number, row in rows:
        if row != [""]:
            yield number, dict(zip(header, row, strict=True)) if len(row) == len(header) else None


def _csv(lines: Iterator[str], path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    rows = files.read_csv(lines, path)
    _, header = next(rows, (1, list[str]()))
    _check(header, columns, path)
    for line, row in rows:
        yield line, dict(zip(header, row, strict=True)) if len(row) == len(header) else None


def _jsonl(lines: Iterator[str], path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    is_first = True
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = files.parse_json(line)
        except ValueError as error:
            raise InputError(f"{path}: line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}: line {number}: not a JSON object")
        if is_first:
            _check(list(row), columns, path)
            is_first = False
        yield number, row if all(name in row for name in columns) else None


def _check(header: Sequence[str], columns: Sequence[str], path: Path) -> None:
    """Raise InputError if a column is missing, or there twice."""
    for name in columns:
        if header.count(name) != 1:
            listed = ", ".join(header[:8]) + (", ..." if len(header) > 8 else "")
            problem = "is there twice" if name in header else "is missing"
            raise InputError(f"{path}: the column {name!r} {problem}; it has {listed or 'no columns'}")
