"""Tables: .csv and .tsv with a line of names, Parquet, and Arrow as `datasets` of Hugging Face writes it."""

from collections.abc import Iterator
from pathlib import Path

from bert.core import files
from bert.core.errors import DamagedFile, InputError
from bert.core.parquet import read as read_parquet
from data.layouts.rows import Columns, Row, missing
from data.pipeline import decoding

ROWS = 64  # rows of Arrow that become Python objects at once


def separated(path: Path, encoding: str, delimiter: str) -> Iterator[Row]:
    """Yield the rows of a table whose values are separated by a character, and quoted as in RFC 4180."""
    with decoding.open_text(path, encoding, newline="\n") as stream:
        rows = files.read_csv(files.read_lines(stream, path), path, delimiter)
        _, names = next(rows, (1, list[str]()))
        if len(set(names)) < len(names):
            raise InputError(f"{path}: its first line names two columns the same; it must be the names of columns")
        for number, (_, values) in enumerate(rows, start=2):
            same = len(values) == len(names)
            counts = f"{len(values)} values, but {len(names)} columns"
            yield Row("row", number, dict(zip(names, values, strict=False)) if same else counts)


def parquet(path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of a Parquet file, of its chosen columns. Raise InputError if it lacks one, or is damaged."""
    for number, values in enumerate(read_parquet(path, lambda names: _chosen(path, columns, names)), start=1):
        yield Row("row", number, values)


def arrow(path: Path, columns: Columns) -> Iterator[Row]:
    """Yield the rows of an Arrow file, a stream or a file of batches."""
    pyarrow = files.pyarrow(f"{path}: reading Arrow")
    number = 0
    try:
        with pyarrow.memory_map(str(path)) as source:
            try:
                batches = pyarrow.ipc.open_stream(source)
            except pyarrow.ArrowInvalid:
                table = pyarrow.ipc.open_file(source)
                batches = (table.get_batch(index) for index in range(table.num_record_batches))
                names = table.schema.names
            else:
                names = batches.schema.names
            chosen = _chosen(path, columns, names)
            for batch in batches:
                for begin in range(0, len(batch), ROWS):
                    for values in batch.select(chosen).slice(begin, ROWS).to_pylist():
                        number += 1
                        yield Row("row", number, values)
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, number, error) from error


def _chosen(path: Path, columns: Columns, names: list[str]) -> list[str]:
    """Return the wanted columns of a file. Raise InputError if it lacks one."""
    for name in (*columns.text, *([columns.id] if columns.id else [])):
        if name not in names:
            raise InputError(f"{path}: {missing(name, names)}; give --text_column and --id_column")
    return [name for name in names if name in (*columns.text, columns.key)]


def _damaged(path: Path, number: int, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.filename:
        return error  # the file could not be opened
    return DamagedFile(f"{path}: damaged after row {number} ({error}); get the file again")
