"""Texts of each row of one's own files: pairs, also with a score, and texts with any number of others."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert.core import files
from extensions.embeddings import sts
from tasks import tables
from tasks.examples import Skipped, TextGroup


def read(
    path: Path, text: Sequence[str], score: str | None, *, skipped: Skipped, where: Mapping[str, str] | None = None
) -> Iterator[TextGroup]:
    """Yield the texts of any number of columns of each row; the rest is as in `tables.read`.

    score: the column of a number. A file of pairs with a score may also have one of the layouts of `sts`. Column 0
    alone of a .txt is the whole line.
    """
    columns = [*text, *([score] if score else []), *(where or ())]
    as_distributed = sts.rows(path, columns) if score and not where else None
    if tables.kind_of(path) == ".txt" and columns == ["0"]:
        as_distributed = _whole_lines(path, skipped)
    for number, (line, row) in enumerate(as_distributed or tables.rows(path, columns)):
        if row is None:
            skipped.add(path, line, "not as many columns as the first line")
            continue
        if not tables.has(row, where or {}):
            continue
        try:
            tables.check_texts(row, text)
            value = tables.as_number(row[score], score) if score else None
            yield TextGroup(id=tables.identity(row, number), texts=tuple(row[column] for column in text), score=value)
        except ValueError as error:
            skipped.add(path, line, str(error))


def _whole_lines(path: Path, skipped: Skipped) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines that are not empty; a tab is white space, and the first one a doubt."""
    with files.open_text(path) as stream:
        for number, line in enumerate(files.read_lines(stream, path), 1):
            text = line.removesuffix("\n")
            if "\t" in text.strip() and not skipped.doubt:
                skipped.doubt = f"{path}: line {number}: a tab is part of the text in .txt; for a table, name it .tsv"
            if text:
                yield number, {"0": text}
