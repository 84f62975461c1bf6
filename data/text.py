"""Convert any text to documents: one file, or a folder of files at any depth, in .txt, JSON lines or Parquet.

    python -m data.text --source corpus/ --output workdir/corpus/text
    python -m data.text --source articles.jsonl.xz --output workdir/corpus/text

- `.txt`: the file is one document; hard-wrapped lines are joined.
- `.jsonl` (also .gz, .bz2, .xz): each line is one document, {"id": ..., "text": ...}; the id is optional.
- `.parquet`: each row is one document, with a column `text` and an optional column `id`; this needs pyarrow.

Each line of a text is a paragraph. A text of more than eight million characters becomes several documents.
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
from bert.storage import files, outputs
from data import books
from data.pipeline import parts, sources, tasks

JSON_LINES = (".jsonl", ".jsonl.gz", ".jsonl.bz2", ".jsonl.xz")
SUFFIXES = (".txt", *JSON_LINES, ".parquet")
ROWS = 64  # rows of Parquet read at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.Options):
    """Flags of `python -m data.text`."""

    source: Path
    """a .txt, .jsonl[.gz|.bz2|.xz] or .parquet file, or a folder with any mix of them"""


class Document(NamedTuple):
    """One text, or one piece of a long text."""

    id: str
    number: int  # of the piece, from 0
    text: str


def read_documents(path: Path, identifier: str, counts: Counter[str]) -> Iterator[Document]:
    """Yield the documents of a file. Count its encoding, and the control characters removed, in `counts`.

    Raise InputError, naming the line, if one is malformed; ValueError if the file is not text.
    """
    if path.name.lower().endswith(".txt"):
        return _plain(path, identifier, counts)
    records = _rows(path) if path.name.lower().endswith(".parquet") else _lines(path)
    return _documents(records, identifier, counts)


def _plain(path: Path, identifier: str, counts: Counter[str]) -> Iterator[Document]:
    encoding = sources.detect_encoding(path)
    with sources.open_text(path, encoding) as stream:
        for number, piece in enumerate(sources.stream_pieces(stream)):
            yield Document(identifier, number, "\n".join(books.paragraphs(_counted(piece, counts))))
    counts[f"in {encoding}"] += 1


def _documents(
    records: Iterator[tuple[int, str | None, str]], identifier: str, counts: Counter[str]
) -> Iterator[Document]:
    for line, record_id, text in records:
        for number, piece in enumerate(sources.pieces(text)):
            document_id = f"{identifier}:{line}" if record_id is None else record_id
            yield Document(document_id, number, _counted(piece, counts))


def _counted(text: str, counts: Counter[str]) -> str:
    """Return a text without control characters, which are counted."""
    text, removed = sources.without_controls(text)
    if removed:
        counts["control characters removed"] += removed
    return text


def _lines(path: Path) -> Iterator[tuple[int, str | None, str]]:
    with files.open_text(path) as text:
        stream = typing.cast(IO[bytes], typing.cast(io.TextIOWrapper, text).buffer)  # only \n ends a line
        number = 0
        while line := stream.readline(files.MAX_LINE + 1):
            number += 1
            if len(line) > files.MAX_LINE:
                raise InputError(f"{path}: line {number} has more than {files.MAX_LINE:,} bytes; split the document")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.isspace():
                yield number, *_record(line, f"{path}: line {number}")


def _record(line: bytes, where: str) -> tuple[str | None, str]:
    try:
        record = files.parse_json(line)
    except ValueError as error:
        raise InputError(f"{where} is not JSON ({error}); each line must be one document") from error
    if not isinstance(record, dict):
        raise InputError(f'{where} is not a JSON object; each line must be {{"id": ..., "text": ...}}')
    return _checked(record.get("id"), record.get("text"), where)


def _checked(identifier: object, text: object, where: str) -> tuple[str | None, str]:
    if not isinstance(text, str):
        raise InputError(f'{where} has no "text", or it is not a string; correct the document')
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
            all_columns = table.schema_arrow.names
            columns = [name for name in ("id", "text") if name in all_columns]
            if "text" not in columns:
                raise InputError(f"{path}: no column `text`, only {all_columns}; rename the text column")
            for batch in table.iter_batches(batch_size=ROWS, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, *_checked(row.get("id"), row["text"], f"{path}: row {number}")
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.filename:
            raise  # the file could not be opened
        raise InputError(f"{path}: damaged after row {number} ({error}); get the file again") from error


class TextStage(sources.SourceStage):
    """Text files to documents."""

    name = "text"

    @classmethod
    def read(cls, task: sources.SourceTask) -> sources.ReadResult:
        """Write the documents of one group of files. Count them by outcome."""
        options: Options = task.settings
        counts: Counter[str] = Counter(files=0, documents=0, empty=0, refused=0, pieces=0)
        refused: dict[str, str] = {}
        size = 0
        with parts.Writer(task.target) as writer:
            for path in task.files:
                name = sources.relative_name(path, options.source)
                counts["files"] += 1
                try:
                    for record in _records(read_documents(path, name, counts), counts):
                        size += writer.write(record)
                except UserError:
                    raise
                except ValueError as error:
                    refused[name] = str(error)
                    counts["refused"] += 1
        return sources.ReadResult(counts, writer.records, refused, counts["documents"], size)

    def check(self, result: outputs.StageResult) -> outputs.StageResult:
        if not result.counts["documents"]:
            counts = json.dumps(result.counts)
            raise InputError(f"{self.options.source}: no text in its files ({counts}); give text files")
        print(sources.summary(self.name, result), file=sys.stderr)
        return result


def _records(documents: Iterator[Document], counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield the records to write.

    A document of several pieces is counted once. A document is counted as empty if no piece of it has text.
    """
    written = True
    for document in documents:
        if not document.number:
            counts["empty"] += not written
            written = False
        if document.text and not document.text.isspace():
            counts["documents"] += not written
            counts["pieces"] += 1
            written = True
            yield {"id": f"text:{sources.piece_id(document.id, document.number)}", "text": document.text}
    counts["empty"] += not written


def is_text(name: str) -> bool:
    """Whether this stage reads files with this name."""
    return name.lower().endswith(SUFFIXES)


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.text", description=__doc__)
    texts = sources.find_files(options.source, is_text) if options.source.is_dir() else [options.source]
    if not options.source.exists():
        raise InputError(f"{options.source}: no such file or folder; check the path")
    if not texts or not is_text(texts[0].name):
        raise InputError(f"{options.source}: no text; give files named {' '.join(SUFFIXES)}, or a folder of them")
    tasks.build(TextStage(options, sources.group_files(texts)), options.output, options)


if __name__ == "__main__":
    from data import text  # a Dask worker can load a task of this module, not one of __main__

    cli.main(text.main)
