"""Read SWAG: a sentence, the beginning of the next one, and four endings of that (Zellers et al. 2018).

The files are train.csv, val.csv and test.csv of github.com/rowanz/swagaf: CSV with quotes and a header. The first
segment of a pair is `sent1`, the second `sent2` and an ending.

HellaSwag (Zellers et al. 2019) is read, too, as github.com/rowanz/hellaswag and `datasets` have it: JSON lines or
Parquet with `ctx_a`, `ctx_b` and the list `endings`, which stand for these columns, and `ind`, which is the id.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bert.core import files
from bert.core.errors import InputError
from tasks import tables
from tasks.examples import ChoiceExample, Skipped
from tasks.label_sets import listed

ENDINGS = ("ending0", "ending1", "ending2", "ending3")
REQUIRED = ("sent1", "sent2", *ENDINGS)
INDEX, SOURCE, LABEL = "", "gold-source", "label"  # columns that a file may lack
HELLASWAG = {"ctx_a": "sent1", "ctx_b": "sent2", "ind": INDEX, LABEL: LABEL}  # its columns of one value
LISTED = "endings"  # its column of a list
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


def read(path: Path, skipped: Skipped, generated: bool = True, labels: bool = True) -> Iterator[ChoiceExample]:
    """Yield the rows of a file in order; their label is None in a file without the column `label`.

    labels: False does not read that column, in which distributed test sets have -1. generated: also yield rows whose
    right ending is a generated one, which only train.csv has. The id is the file's index, its unnamed first column, or
    else the number of the row. A malformed row is left out and counted. Raise InputError if the file is not CSV or
    lacks a column. Exactly one space precedes an ending, also if the file has a space there, as HellaSwag's has: a
    byte-level BPE would read two.
    """
    with contextlib.ExitStack() as stack:
        if tables.kind_of(path) in (".jsonl", tables.PARQUET):  # as `datasets` writes it
            rows = itertools.starmap(Row, tables.lines(path, (*REQUIRED, "ctx_a", "ctx_b")))
        else:
            lines = files.read_lines(stack.enter_context(files.open_text(path)), path)
            rows = itertools.starmap(Row, files.read_csv(lines, path))
        of_swag = _as_swag(rows)
        header = _header(path, next(of_swag, Row(1, [])), () if generated else (SOURCE,))
        if not labels:
            header.index.pop(LABEL, None)
        for number, row in enumerate(of_swag):
            if reason := _fault(row.fields, header):
                skipped.add(path, row.line, reason)
                continue
            text = {name: row.fields[index] for name, index in header.index.items()}
            if generated or not text[SOURCE].startswith(GENERATED):
                yield ChoiceExample(
                    id=text.get(INDEX, str(number)),
                    pairs=tuple(
                        (text["sent1"], f"{text['sent2'].rstrip()} {text[ending].lstrip()}".lstrip())
                        for ending in ENDINGS
                    ),
                    label=LABELS[text[LABEL]] if LABEL in text else None,
                )


def _as_swag(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield the rows of a file, the header first. Rows of HellaSwag get SWAG's columns.

    If such a row does not have four endings, all its endings are empty.
    """
    header = next(rows, Row(1, []))
    names = header.fields
    if not {"ctx_a", "ctx_b", LISTED} <= {*names}:
        yield header
        yield from rows
        return
    kept = [(names.index(name), of_swag) for name, of_swag in HELLASWAG.items() if name in names]
    yield Row(header.line, [*(of_swag for _, of_swag in kept), *ENDINGS])
    for line, fields in rows:
        if len(fields) != len(names):
            yield Row(line, [])
            continue
        try:
            endings = listed(fields[names.index(LISTED)])
        except ValueError:
            endings = []
        if len(endings) != len(ENDINGS) or not all(isinstance(ending, str) for ending in endings):
            endings = [""] * len(ENDINGS)
        yield Row(line, [*(fields[place] for place, _ in kept), *endings])


def _header(path: Path, row: Row, needed: Sequence[str]) -> Header:
    names = row.fields
    missing = [name for name in (*REQUIRED, *needed) if name not in names]
    if missing:
        raise InputError(
            f"{path}: no column {', '.join(missing)} in the header; give train.csv, val.csv or test.csv of SWAG "
            "(the files *_full.csv have other columns), or HellaSwag with ctx_a, ctx_b and endings"
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
