"""Any text to documents: files of `.txt`, JSON lines or Parquet, one or a folder of them at any depth.

    python -m data.text --source corpus/ --output workdir/corpus/text
    python -m data.text --source articles.jsonl.xz --output workdir/corpus/text

A `.txt` file is one document. A line of `.jsonl` (also .gz .bz2 .xz) is one: {"id": ..., "text": ...}, the id may be
left out. A row of `.parquet` is one: a column `text` and, perhaps, `id`; this needs pyarrow. Lines of a text are
paragraphs; hard-wrapped `.txt` is joined first. A text of more than eight million characters becomes several documents.
"""

import dataclasses
import io
import json
import sys
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from bert import cli
from bert.errors import InputError, UsageError, UserError
from bert.storage import files, manifest
from data import books
from data.pipeline import parts, sources

JSON_LINES = (".jsonl", ".jsonl.gz", ".jsonl.bz2", ".jsonl.xz")
SUFFIXES = (".txt", *JSON_LINES, ".parquet")
MAX_LINE = 128 * 1024 * 1024  # bytes of JSON; a line is held in memory
ROWS = 64  # of Parquet, read at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.Options):
    """Flags of `python -m data.text`."""

    source: Path
    """folder of .txt, .jsonl[.gz|.bz2|.xz], .parquet files, mixed as you like, or one of them"""


class Document(NamedTuple):
    """One text, or the next piece of a long one."""

    id: str
    number: int  # of the piece, from 0
    text: str


def read(path: Path, identifier: str, counts: Counter[str]) -> Iterator[Document]:
    """The documents of a file. Raises InputError, naming the line, if one is malformed; ValueError if it is no text."""
    if path.name.lower().endswith(".txt"):
        return _plain(path, identifier, counts)
    records = _rows(path) if path.name.lower().endswith(".parquet") else _lines(path)
    return _documents(records, identifier)


def _plain(path: Path, identifier: str, counts: Counter[str]) -> Iterator[Document]:
    encoding = sources.encoding(path)
    with sources.open_text(path, encoding) as stream:
        for number, piece in enumerate(sources.stream_pieces(stream)):
            yield Document(identifier, number, "\n".join(books.paragraphs(piece)))
    counts[f"in {encoding}"] += 1


def _documents(records: Iterator[tuple[int, str | None, str]], identifier: str) -> Iterator[Document]:
    for line, given, text in records:
        for number, piece in enumerate(sources.pieces(text)):
            yield Document(f"{identifier}:{line}" if given is None else given, number, piece)


def _lines(path: Path) -> Iterator[tuple[int, str | None, str]]:
    with files.open_text(path) as text:
        stream = typing.cast(IO[bytes], typing.cast(io.TextIOWrapper, text).buffer)  # lines end at \n alone
        number = 0
        while line := stream.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise InputError(f"{path}: line {number} has more than {MAX_LINE:,} bytes; cut the document")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.isspace():
                yield number, *_record(line, f"{path}: line {number}")


def _record(line: bytes, where: str) -> tuple[str | None, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON ({error}); a line is one document") from error
    if not isinstance(record, dict):
        raise InputError(f'{where} is not a JSON object; wanted is {{"id": ..., "text": ...}}')
    return _checked(record.get("id"), record.get("text"), where)


def _checked(identifier: object, text: object, where: str) -> tuple[str | None, str]:
    if not isinstance(text, str):
        raise InputError(f'{where} has no "text" that is a string; give each document one')
    if isinstance(identifier, bool) or not isinstance(identifier, str | int | None):
        raise InputError(f'{where} has an "id" that is neither a string nor a number; correct or remove it')
    return None if identifier is None else str(identifier), text


def _rows(path: Path) -> Iterator[tuple[int, str | None, str]]:
    try:
        import pyarrow  # type: ignore[import-not-found,unused-ignore]
        from pyarrow import parquet  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise UsageError(f"{path}: reading Parquet needs pyarrow; pip install pyarrow") from error
    number = 0
    try:
        with parquet.ParquetFile(path) as table:
            columns_there = table.schema_arrow.names
            columns = [name for name in ("id", "text") if name in columns_there]
            if "text" not in columns:
                raise InputError(f"{path}: no column `text`, only {columns_there}; rename the one with the texts")
            for batch in table.iter_batches(batch_size=ROWS, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, *_checked(row.get("id"), row["text"], f"{path}: row {number}")
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.filename:
            raise  # it could not be opened
        raise InputError(f"{path}: damaged after row {number} ({error}); fetch it again") from error


def read_group(task: sources.Task) -> sources.Result:
    """Writes the documents of one group of files; counts them by what became of them."""
    options: Options = task.options
    counts: Counter[str] = Counter(files=0, documents=0, empty=0, refused=0, pieces=0)
    refused: dict[str, str] = {}
    size = 0
    with parts.Writer(task.target) as writer:
        for path in task.files:
            name = sources.name(path, options.source)
            counts["files"] += 1
            try:
                for document in _texts(read(path, name, counts), counts):
                    size += writer.write(document)
            except UserError:
                raise
            except ValueError as error:
                refused[name] = str(error)
                counts["refused"] += 1
    return sources.Result(counts, writer.records, refused, counts["documents"], size)


def _texts(found: Iterator[Document], counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """The records to write; a document counts once, however many pieces it has, and as empty if no piece has text."""
    written = True
    for document in found:
        if not document.number:
            counts["empty"] += not written
            written = False
        if document.text and not document.text.isspace():
            counts["documents"] += not written
            counts["pieces"] += 1
            written = True
            yield {"id": f"text:{sources.numbered(document.id, document.number)}", "text": document.text}
    counts["empty"] += not written


def finish(options: Options, made: manifest.StageResult) -> manifest.StageResult:
    """Says on the terminal what the manifest says."""
    if not made.counts["documents"]:
        counts = json.dumps(made.counts)
        raise InputError(f"{options.source}: no text in its files ({counts}); give text files")
    print(sources.summary("text", made), file=sys.stderr)
    return made


def is_text(name: str) -> bool:
    """Whether this stage reads files of that name."""
    return name.lower().endswith(SUFFIXES)


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.text", description=__doc__)
    found = sources.find(options.source, is_text) if options.source.is_dir() else [options.source]
    if not options.source.exists():
        raise InputError(f"{options.source}: no such file or folder; check the path")
    if not found or not is_text(found[0].name):
        raise InputError(f"{options.source}: no text; give files named {' '.join(SUFFIXES)}, or a folder of them")
    sources.build("text", options, read_group, sources.groups(found), lambda made: finish(options, made))


if __name__ == "__main__":
    cli.main(main)
