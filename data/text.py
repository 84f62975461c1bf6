"""Convert any text to documents: one file, or a folder of files at any depth.

    python -m data.text --source corpus/ --output workdir/corpus/text
    python -m data.text --source articles.jsonl.zst --text_column title body --output workdir/corpus/text

- `.txt`, `.md`: the file is a document, whose hard-wrapped lines are joined; or each line is one (`--document line`),
  or what blank lines separate (`--document blank_line`), as in the input of google-research/bert.
- `.jsonl`, `.ndjson`, `.json`: each object is a document; in `.json` also those of an array.
- `.csv`, `.tsv`, with a first line of names; `.parquet` and `.arrow` (as `save_to_disk` of Hugging Face's datasets
  writes it), which need pyarrow: each row is a document.

All but Parquet and Arrow may be compressed: `.gz`, `.bz2`, `.xz`, `.zst`. Texts of records are in the column `text`, or
in those of `--text_column`. Each line of a text is a paragraph. A text of more than eight million characters becomes
several documents. Files with other names are listed and not read.
"""

import contextlib
import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from bert.core import cli, files, outputs
from bert.core.errors import DamagedFile, InputError, UsageError, UserError
from bert.core.ranges import Range
from bert.core.workspace import Work
from data import books
from data.layouts import json_text, plain, rows, tables
from data.layouts.rows import Columns, Row
from data.pipeline import decoding, document_files, drop_counts, hyphens, sources, tasks

PLAIN, JSON, SEPARATED = (".txt", ".md"), (".jsonl", ".ndjson", ".json"), {".csv": ",", ".tsv": "\t"}
COLUMNS = {".parquet": tables.parquet, ".arrow": tables.arrow}
SUFFIXES = (*PLAIN, *JSON, *SEPARATED, *COLUMNS)
WITHOUT_TEXT = ("manifest.json", "dataset_info.json", "state.json", "dataset_dict.json")  # ours; those beside .arrow
ARCHIVE = re.compile(r"\.(?:7z|zip|rar|tgz|tar(?:\.\w+)?)$", re.I)
LIKE_GOOGLE = "like the input of google-research/bert"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.TextOptions):
    """Flags of `python -m data.text`."""

    source: cli.Stored[Path]
    """a file, or a folder with any mix of files"""
    document: plain.Document = "file"
    """what a document is in .txt and .md: the file, each line, or what blank lines separate"""
    text_column: tuple[str, ...] = ("text",)
    """columns, or keys, of the texts of records; several are joined by line ends"""
    id_column: str | None = None
    """column, or key, of the ids of records; none: `id`, if there is one; "" reads no ids"""
    encoding: str | None = None
    """encoding of .txt, .md, .csv and .tsv, such as gb18030; none: Unicode, or Western European text"""
    join_hyphens: bool = True
    """put words of .txt and .md together that a hyphen divides at the end of a line, if this file, or another one, has
    them elsewhere; where a file is one document"""
    skip_bad: Annotated[int, Range(0, 10**9)] = 0
    """leave out at most this many bad rows of each file"""

    def __post_init__(self) -> None:
        super().__post_init__()
        decoding.check(self.encoding)
        if not self.text_column:
            raise UsageError("--text_column: give the name of a column")

    def columns(self) -> Columns:
        """Return the columns that are wanted."""
        return Columns(text=self.text_column, id=self.id_column)


class Document(NamedTuple):
    """One text, or one piece of a long text."""

    id: str
    number: int  # of the piece, from 0
    text: str


def kind_of(name: str) -> str:
    """Return the suffix that names a file's format, not its compression; "" if such files are not read."""
    path = Path(name.lower())
    if path.suffix in files.OPENERS and Path(path.stem).suffix not in COLUMNS:
        path = Path(path.stem)
    return path.suffix if path.suffix in SUFFIXES and path.name not in WITHOUT_TEXT else ""


def read_documents(
    path: Path,
    identifier: str,
    options: Options,
    counts: Counter[str],
    lost: drop_counts.DropCounts,
    verdicts: Iterator[int] | None = None,
) -> Iterator[Document]:
    """Yield the documents of a file. Count its encoding, bad rows, and the control characters removed, in `counts`.

    `lost` counts the characters that are read or dropped, and bad rows as documents; other documents are counted later.
    verdicts: as in `books.paragraphs`.

    Raise InputError, naming the row, if there are too many bad rows; ValueError if the file is not text.
    """
    kind = kind_of(path.name)
    if kind in PLAIN:
        yield from _plain(path, identifier, options, counts, lost, verdicts)
        return
    for text in rows.texts(_rows(path, kind, options, counts), options.columns(), path, options.skip_bad):
        if text is None:
            counts["bad rows"] += 1
            lost.read(1, 0)
            lost.drop("bad rows", 1, 0)
            continue
        name = f"{identifier}@{text.number}" if text.id is None else f"{identifier}:{text.id}"
        for number, piece in enumerate(sources.pieces(text.text)):
            yield Document(name, number, _counted(piece, counts, lost))


def _plain(
    path: Path,
    identifier: str,
    options: Options,
    counts: Counter[str],
    lost: drop_counts.DropCounts,
    verdicts: Iterator[int] | None,
) -> Iterator[Document]:
    encoding = _encoding(path, options, counts)
    if options.document == "file" and plain.has_sentences_on_lines(path, encoding):
        counts[LIKE_GOOGLE] += 1
    newline = None if options.document == "file" else "\n"  # within a document, a lone carriage return is white space
    last, count = 0, 0  # the number of the document before, and of its pieces
    with decoding.open_text(path, encoding, newline) as stream:
        for number, text in enumerate(plain.documents(stream, options.document, path)):
            clean = _counted(text.text, counts, lost)
            if options.document == "file":
                lines, gone = books.paragraphs(clean, options.join_hyphens, verdicts)
                joined = "\n".join(lines)
                lost.drop(books.WHITE_SPACE, 0, len(clean) - len(joined) - gone)
                if gone:
                    counts[books.JOINED] += gone
                    lost.drop(books.HYPHENS, 0, gone)
                yield Document(identifier, number, joined)
            else:
                count = count if text.number == last else 0
                for piece in sources.pieces(clean):
                    yield Document(f"{identifier}@{text.number}", count, piece)
                    count += 1
                last = text.number


def _rows(path: Path, kind: str, options: Options, counts: Counter[str]) -> Iterator[Row]:
    if kind in SEPARATED:
        return tables.separated(path, _encoding(path, options, counts), SEPARATED[kind])
    if kind in COLUMNS:
        return COLUMNS[kind](path, options.columns())
    return json_text.document(path) if kind == ".json" else json_text.lines(path)


def _encoding(path: Path, options: Options, counts: Counter[str]) -> str:
    encoding = options.encoding or decoding.detect(path)
    counts[f"in {encoding}"] += 1
    return encoding


def _counted(text: str, counts: Counter[str], lost: drop_counts.DropCounts) -> str:
    """Return a text without control characters. Count them, and the characters that it had.

    Half a surrogate pair, as of an emoji that was cut in two, becomes U+FFFD and is counted. Python's json and pandas
    let it pass, orjson and datasets refuse the file.
    """
    lost.read(0, len(text))
    text, halves = sources.without_surrogates(text)
    if halves:
        counts[sources.HALF_PAIRS] += halves
    text, removed = sources.without_controls(text)
    if removed:
        counts["control characters removed"] += removed
        lost.drop(books.CONTROLS, 0, removed)
    return text


def _texts(task: sources.SourceTask) -> Iterator[str]:
    """Yield the texts of a task that are whole files, and whose lines are joined."""
    options: Options = task.settings.options
    for path in task.files:
        if kind_of(path.name) in PLAIN:
            with contextlib.suppress(ValueError):  # `read` will refuse it
                encoding = options.encoding or decoding.detect(path)
                with decoding.open_text(path, encoding, None) as stream:
                    for piece in plain.documents(stream, "file", path):
                        text = books.with_line_feeds(sources.without_controls(piece.text)[0])
                        if books.is_wrapped(text):
                            yield text


class TextStage(sources.SourceStage):
    """Text files to documents."""

    name = "text"
    causes = {  # noqa: RUF012
        "empty": "check --text_column and --document",
        "bad rows": "check --text_column, or mend the files",
        "refused": "the manifest names the files; check them, and --encoding",
    }

    def parameters(self) -> dict[str, Any]:
        newer = ("document", "text_column", "id_column", "encoding", "join_hyphens", "skip_bad", "language")
        return tasks.parameters(self.options, newer=newer)

    def tasks(self, work: Work) -> list[sources.SourceTask]:
        """Settle which words at line ends are one. Return one task for each group of files."""
        listed = super().tasks(work)
        options: Any = self.options
        is_plain = any(kind_of(path.name) in PLAIN for group in self.groups for path in group)
        if options.document != "file" or not options.join_hyphens or not is_plain:
            return listed
        return hyphens.settled(work, self, listed, _texts)

    @classmethod
    def read(cls, task: sources.SourceTask) -> sources.ReadResult:
        """Write the documents of one group of files. Count them by outcome."""
        options: Options = task.settings.options
        verdicts = iter(task.settings.verdicts)
        counts: Counter[str] = Counter(files=0, documents=0, empty=0, refused=0, pieces=0)
        refused: dict[str, str] = {}
        size, lost = 0, drop_counts.DropCounts()
        with document_files.Writer(task.target) as writer:
            for path in task.files:
                name = sources.relative_name(path, options.source)
                counts["files"] += 1
                before, of_file = counts["documents"], drop_counts.DropCounts()
                try:
                    identifier = sources.document_name(path, options.source)
                    documents = read_documents(path, identifier, options, counts, of_file, verdicts)
                    for record in _records(documents, counts, of_file):
                        size += writer.write(record)
                except ValueError as error:
                    is_other_mistake = isinstance(error, UserError) and not isinstance(error, DamagedFile)
                    if is_other_mistake or counts["documents"] > before:
                        raise
                    refused[name] = str(error).removeprefix(f"{path}: ")
                    counts["refused"] += 1
                    of_file.clear()
                    of_file.read(1, 0)  # its characters are not known
                    of_file.drop("refused", 1, 0)
                lost.update(of_file)
        return sources.ReadResult(counts, writer.records, refused, counts["documents"], size, lost.report())

    def check(self, result: outputs.StageResult) -> outputs.StageResult:
        if not result.counts["documents"]:
            refused = result.extra["refused"].items()
            shown = [f"{name}: {reason}" for name, reason in list(refused)[: sources.SHOWN]]
            why = "; ".join(shown) or json.dumps(result.counts)
            raise InputError(f"{self.options.source}: no text in its files ({why}); give text files")
        print(sources.summary(self.name, result), file=sys.stderr)
        if alike := result.counts.get(LIKE_GOOGLE):
            print(
                f"text: warning: {alike:,} files have a sentence on each line and blank lines between, as the input of "
                "google-research/bert, but each is read as one document; give --document blank_line",
                file=sys.stderr,
            )
        return result


def _records(
    documents: Iterator[Document], counts: Counter[str], lost: drop_counts.DropCounts
) -> Iterator[dict[str, Any]]:
    """Yield the records to write.

    A document of several pieces is counted once. A document is counted as empty if no piece of it has text.
    """
    written = True
    for document in documents:
        if not document.number:
            _count_empty(written, counts, lost)
            lost.read(1, 0)
            written = False
        if document.text and not document.text.isspace():
            counts["documents"] += not written
            counts["pieces"] += 1
            lost.wrote(int(not written), len(document.text))
            written = True
            yield {"id": f"text:{sources.piece_id(document.id, document.number)}", "text": document.text}
        else:
            lost.drop(books.WHITE_SPACE, 0, len(document.text))
    _count_empty(written, counts, lost)


def _count_empty(written: bool, counts: Counter[str], lost: drop_counts.DropCounts) -> None:
    """Count the document that has ended, if nothing of it was written. Its white space is counted already."""
    if not written:
        counts["empty"] += 1
        lost.drop("empty", 1, 0)


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.text", description=__doc__)
    if not options.source.exists():
        raise InputError(f"{options.source}: no such file or folder; check the path")
    texts, not_read = [options.source], list[str]()
    if options.source.is_dir():
        texts, not_read = sources.divide_files(options.source, lambda name: bool(kind_of(name)))
    if not texts or not kind_of(texts[0].name):
        archive = "unpack an archive, and " if ARCHIVE.search(options.source.name) else ""
        what = f"{archive}give files named {' '.join(SUFFIXES)}, or a folder of them"
        raise InputError(f"{options.source}: no text; {what}")
    tasks.build(
        TextStage(options, sources.group_files(texts), hyphens.Settings(options), not_read), options.output, options
    )


if __name__ == "__main__":
    from data import text  # a Dask worker can load a task of this module, not one of __main__

    cli.main(text.main)
