"""Rows of Parquet files, read with bounded memory. Needs pyarrow."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bert.core import files
from bert.core.errors import DamagedFile, InputError

ROWS = 64  # read at once, at most
BYTES = 64 << 20  # of the rows that are read at once, at most, unless one is larger
BUFFER = 1 << 20  # bytes of a column that are read at once; without it, all that a row group has of it

Choose = Callable[[list[str]], list[str] | None]


def read(path: Path, choose: Choose) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file.

    choose: called with the names of the columns; returns those to read, or None for all. Raise DamagedFile, naming the
    row, for what cannot be read; InputError if rows have more than `files.MAX_LINE` bytes on average.
    """
    pyarrow = files.pyarrow(f"{path}: reading Parquet")
    from pyarrow import parquet  # type: ignore[import-not-found,unused-ignore]

    number = 0
    try:
        with parquet.ParquetFile(path, buffer_size=BUFFER) as table:
            columns = choose(table.schema_arrow.names)
            for group in range(table.num_row_groups):
                size = _at_once(table.metadata.row_group(group), path, number)
                for batch in table.iter_batches(size, row_groups=[group], columns=columns):
                    for row in batch.to_pylist():
                        number += 1
                        yield row
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.filename:
            raise  # the file could not be opened
        raise DamagedFile(f"{path}: damaged after row {number} ({error}); get the file again") from error


def _at_once(group: Any, path: Path, number: int) -> int:
    """Return how many rows of a row group to read at once. A file of a few kilobytes can hold gigabytes."""
    mean = group.total_byte_size // max(1, group.num_rows)
    if mean > files.MAX_LINE:
        raise InputError(
            f"{path}: rows after row {number} have {mean:,} bytes on average, more than {files.MAX_LINE:,}; divide them"
        )
    return max(1, min(ROWS, BYTES // max(1, mean)))
