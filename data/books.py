"""Convert a folder of books to documents. Each `.txt` file, at any depth, is one book; other files are listed.

    python -m data.books --source books/ --output workdir/corpus/books

Byte order marks and Windows line ends are removed, and the legal text of Project Gutenberg at the beginning and the end
of a file and between its works (`data/pipeline/gutenberg.py` has the markers); its characters are counted. Hard-wrapped
lines are joined, so that each line of the output is one paragraph; characters of Chinese and Japanese without a space
between. A word that a hyphen divides at the end of a line is put together if the book, or another one, has it elsewhere
(`data/pipeline/hyphens.py`); the joined words are counted. PG-19 (folders `train`, `validation`, `test` with files
`{id}.txt`) can be used as it is.
"""

import contextlib
import dataclasses
import itertools
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bert.core import cli, outputs
from bert.core.errors import InputError
from bert.core.workspace import Work
from data.pipeline import decoding, document_files, drop_counts, gutenberg, hyphens, sources, tasks
from data.splitting.sentences import CLOSING, TERMINAL

MAX_BYTES = 64 * 1024 * 1024  # a book is held in memory
WHITE_SPACE, CONTROLS, LEGAL, HYPHENS = (  # reasons to drop characters
    *("white space", "control characters", "legal text"),
    "hyphens at line ends",
)
JOINED = "words joined at line ends"
LICENCE_LEFT, ODD_END = (
    "books in which licence text seems to remain",
    "books with text behind their last end line",
)
WARNINGS = {
    LICENCE_LEFT: "look for Gutenberg in the output, and mend these files",
    ODD_END: "it was removed as a licence, which it does not look like; divide files of several works",
}
UNWRAPPED = 200  # characters; hard-wrapped lines are shorter, so a longer line is a whole paragraph

BLANK_LINE = re.compile(r"\n\s*\n")
LINE_END = re.compile(rf"[.!?:;\u2026{TERMINAL}][{CLOSING}]*$")  # of a line that is a paragraph
WRAPPED = re.compile(r"(?<=[^\s\x00-\u10ff])[ \t]*\n[ \t]*(?=[^\s\x00-\u10ff])")  # a line end to look at
HANGUL = re.compile(r"[\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff\uffa0-\uffdc]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.TextOptions):
    """Flags of `python -m data.books`."""

    source: cli.Stored[Path]
    """folder of .txt files"""
    encoding: str | None = None
    """their encoding, such as gb18030; none: Unicode, or Western European text in Windows-1252 or Latin-1"""
    join_hyphens: bool = True
    """put words together that a hyphen divides at the end of a line, if the book, or another one, has them elsewhere"""

    def __post_init__(self) -> None:
        super().__post_init__()
        decoding.check(self.encoding)


class Paragraphs(NamedTuple):
    """The paragraphs of a text, each as one line, and how many words at line ends were put together."""

    lines: list[str]
    joined_words: int


def paragraphs(text: str, join_hyphens: bool = True, verdicts: Iterator[int] | None = None) -> Paragraphs:
    """Return the paragraphs of a text.

    Paragraphs are separated by blank lines. But every line is a paragraph if more than half of the text is in lines
    too long to be hard-wrapped, or if most lines that are followed by another line end a sentence.

    verdicts: as in `hyphens.join`.
    """
    text, number = with_line_feeds(text), 0
    if not is_wrapped(text):
        blocks = text.split("\n")
    else:
        if join_hyphens:
            text, number = hyphens.join(text, verdicts)
        text = text if text.isascii() else WRAPPED.sub(_between_lines, text)
        blocks = BLANK_LINE.split(text)
    return Paragraphs([joined for block in blocks if (joined := " ".join(block.split()))], number)


def with_line_feeds(text: str) -> str:
    """Return a text whose lines end with line feeds."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_wrapped(text: str) -> bool:
    """Return whether a text has paragraphs of several lines."""
    lines = text.split("\n")
    in_long_lines = sum(len(line) for line in lines if len(line) > UNWRAPPED)
    return in_long_lines <= len(text) / 2 and not _ends_sentences(lines)


def _between_lines(line_end: re.Match[str]) -> str:
    """Return a line end, or nothing between wide characters, such as ideographs and kana, that are not Hangul.

    Chinese and Japanese have no spaces between words (W3C, CSS Text Module Level 3, section 4.1.3). Symbols, such as
    emoji, may be of any language.
    """
    beside = (line_end.string[line_end.start() - 1], line_end.string[line_end.end()])
    return "" if all(map(_is_unspaced, beside)) else line_end[0]


def _is_unspaced(character: str) -> bool:
    is_wide = unicodedata.east_asian_width(character) in ("F", "H", "W") and not HANGUL.match(character)
    return is_wide and unicodedata.category(character)[0] != "S"


def _ends_sentences(lines: list[str]) -> bool:
    inner = ended = 0  # lines followed by another line; how many of them end a sentence
    for line, following in itertools.pairwise(lines):
        if line and following and not line.isspace() and not following.isspace():
            inner += 1
            ended += LINE_END.search(line[-8:].rstrip()) is not None
    return ended > inner / 2


def _texts(task: sources.SourceTask) -> Iterator[str]:
    """Yield the texts of the books of a task whose lines are joined."""
    options: Options = task.settings.options
    for path in task.files:
        with contextlib.suppress(ValueError):  # `read` will refuse it
            text = with_line_feeds(_trimmed(path, options.encoding).text)
            if is_wrapped(text):
                yield text


class BooksStage(sources.SourceStage):
    """Books to documents."""

    name = "books"
    causes = {"refused": "the manifest names the files; check them, and --encoding"}  # noqa: RUF012

    def parameters(self) -> dict[str, Any]:
        return tasks.parameters(self.options, newer=("encoding", "join_hyphens", "language"))

    def tasks(self, work: Work) -> list[sources.SourceTask]:
        """Settle which words at line ends are one. Return one task for each group of files."""
        listed = super().tasks(work)
        options: Any = self.options
        if not options.join_hyphens:
            return listed
        return hyphens.settled(work, self, listed, _texts)

    @classmethod
    def read(cls, task: sources.SourceTask) -> sources.ReadResult:
        """Write the books of one group of files. Count them by outcome, and name the refused ones."""
        options: Options = task.settings.options
        verdicts = iter(task.settings.verdicts)
        counts: Counter[str] = Counter({"files": 0, "books": 0, "refused": 0, "only legal text": 0, "pieces": 0})
        refused: dict[str, str] = {}
        size, lost = 0, drop_counts.DropCounts()
        with document_files.Writer(task.target) as writer:
            for path in task.files:
                name = sources.relative_name(path, options.source)
                identifier = sources.document_name(path, options.source)
                counts["files"] += 1
                try:
                    book = read_book(path, options.encoding, options.join_hyphens, verdicts)
                except ValueError as error:
                    refused[name] = str(error)
                    reason = "only legal text" if isinstance(error, OnlyLegalText) else "refused"
                    counts[reason] += 1
                    lost.read(1, 0)  # its characters are not known, or not text of a book
                    lost.drop(reason, 1, 0)
                    continue
                for number, piece in enumerate(sources.pieces(book.text)):
                    size += writer.write({"id": f"books:{sources.piece_id(identifier, number)}", "text": piece})
                    counts["pieces"] += 1
                    lost.wrote(0, len(piece))
                counts.update({"books": 1, f"in {book.encoding}": 1} | dict.fromkeys(book.warnings, 1))
                for reason, name in ((CONTROLS, "control characters removed"), (HYPHENS, JOINED)):
                    if book.lost[reason]:
                        counts[name] += book.lost[reason]
                lost.read(1, book.characters)
                lost.wrote(1, 0)
                for reason, number in book.lost.items():
                    lost.drop(reason, 0, number)
        return sources.ReadResult(counts, writer.records, refused, counts["books"], size, lost.report())

    def check(self, result: outputs.StageResult) -> outputs.StageResult:
        if not result.counts["books"]:
            name, reason = next(iter(result.extra["refused"].items()))
            source = self.options.source
            raise InputError(f"{source}: no book in its .txt files ({name}: {reason}); give text files")
        print(sources.summary(self.name, result), file=sys.stderr)
        for what, remedy in WARNINGS.items():
            if number := result.counts.get(what):
                print(f"books: warning: {number:,} {what}; {remedy}", file=sys.stderr)
        return result


class OnlyLegalText(ValueError):
    """The file holds the legal text of Project Gutenberg and no book."""


class Book(NamedTuple):
    """A book as it was read."""

    text: str  # its paragraphs, one a line
    encoding: str  # of its file
    characters: int  # in its file
    lost: dict[str, int]  # characters that were removed, by reason
    warnings: list[str]  # names of counts


class _Trimmed(NamedTuple):
    """The text of a file without control characters and legal text."""

    text: str
    encoding: str
    characters: int  # in the file
    controls: int
    legal: int
    warnings: list[str]


def _trimmed(path: Path, known_encoding: str | None) -> _Trimmed:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{size:,} bytes, more than {MAX_BYTES:,}; make a file of each book, or use data.text")
    encoding = known_encoding or decoding.detect(path)
    with decoding.open_text(path, encoding) as stream:
        content = stream.read()
    text, removed = sources.without_controls(content)
    trimmed, is_left, is_odd = gutenberg.trim(text)
    warnings = [what for what, is_so in ((LICENCE_LEFT, is_left), (ODD_END, is_odd)) if is_so]
    return _Trimmed(trimmed, encoding, len(content), removed, len(text) - len(trimmed), warnings)


def read_book(
    path: Path, known_encoding: str | None = None, join_hyphens: bool = True, verdicts: Iterator[int] | None = None
) -> Book:
    """Return the book in a file. Raise ValueError with the reason if it is not a book.

    known_encoding: its encoding. verdicts: as in `paragraphs`.
    """
    found = _trimmed(path, known_encoding)
    lines, gone = paragraphs(found.text, join_hyphens, verdicts)
    if joined := "\n".join(lines):
        white_space = len(found.text) - len(joined) - gone
        lost = {CONTROLS: found.controls, LEGAL: found.legal, WHITE_SPACE: white_space, HYPHENS: gone}
        return Book(joined, found.encoding, found.characters, lost, found.warnings)
    if found.legal or found.text.strip():
        raise OnlyLegalText("nothing but the legal text of Project Gutenberg")
    raise ValueError("empty")


def is_book(name: str) -> bool:
    """Whether a file with this name is read as a book."""
    return name.lower().endswith(".txt")


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.books", description=__doc__)
    if not options.source.is_dir():
        raise InputError(f"{options.source}: no such folder; give the folder of the books")
    books, not_read = sources.divide_files(options.source, is_book)
    if not books:
        raise InputError(f"{options.source}: no .txt file in this folder; give the folder of the books")
    stage = BooksStage(options, sources.group_files(books), hyphens.Settings(options), not_read)
    tasks.build(stage, options.output, options)


if __name__ == "__main__":
    from data import books  # a Dask worker can load a task of this module, not one of __main__

    cli.main(books.main)
