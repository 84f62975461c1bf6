"""Read tagged sentences: a word in each line, its tag in another column, an empty line behind each sentence.

That is the format of CoNLL-2003 (four columns: word, part of speech, chunk, entity) and of BioBERT's data sets (two
columns, with a tab). A line that begins with -DOCSTART- begins a document. Quotes have no meaning. Tags are given as
they are in the file; `tasks.entities` converts between their schemes.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple

from bert.errors import InputError
from bert.storage import files
from tasks.examples import Skipped, TaggedSentence

Separator = Literal["auto", "tab", "space"]

DOCUMENT = "-DOCSTART-"
BLANKS = " \t\r\n"  # around columns; other white space, as a no-break space, can be a word
MAX_WORDS = 100_000  # of a sentence, which is held in memory


class Line(NamedTuple):
    """The columns of a line, and its number in the file, from 1."""

    number: int
    fields: list[str]


def read(
    path: Path, skipped: Skipped, column: int = -1, separator: Separator = "auto", tags: bool = True
) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file in order, each whole, however long.

    column: of the tag, from 0, or negative from the right; the word is in column 0. separator: "tab"; "space" for one
    or more spaces or tabs; "auto" is "tab" in the lines that have one. tags: False reads the words alone; the tags are
    None then. The id is the number of the sentence in the file, from 0.

    A sentence with a malformed line is left out and counted: every line needs a word and as many columns as the first
    line of the file. Raise InputError if that has no column for the tag, or if a sentence does not end.
    """
    columns = 0
    with files.open_text(path) as stream:
        for number, (document, lines) in enumerate(_sentences(stream, path, separator)):
            columns = columns or _columns(path, lines[0], column if tags else None)
            if fault := _fault(lines, columns, column if tags else 0):
                skipped.add(path, *fault)
                continue
            yield TaggedSentence(
                id=str(number),
                words=tuple(line.fields[0] for line in lines),
                tags=tuple(line.fields[column] for line in lines) if tags else None,
                document=document,
            )


def _sentences(stream: IO[str], path: Path, separator: Separator) -> Iterator[tuple[int, list[Line]]]:
    """Yield the lines of each sentence, with the number of its document, from 0."""
    document, is_begun = 0, False  # is_begun: the document has a line
    lines: list[Line] = []
    for number, text in enumerate(files.read_lines(stream, path), 1):
        fields = _split(text.removeprefix("\ufeff") if number == 1 else text, separator)
        if fields and fields[0] != DOCUMENT:
            lines.append(Line(number, fields))
            is_begun = True
            if len(lines) > MAX_WORDS:
                raise InputError(
                    f"{path}: line {number}: a sentence of more than {MAX_WORDS:,} words; put an empty line behind each"
                )
            continue
        if lines:
            yield document, lines
            lines = []
        if fields:
            document, is_begun = document + is_begun, True
    if lines:  # the file has no empty line at its end
        yield document, lines


def _split(text: str, separator: Separator) -> list[str]:
    """Return the columns of a line; none if it is empty but for spaces and tabs."""
    text = text.rstrip(BLANKS)
    if separator == "tab" or (separator == "auto" and "\t" in text):
        return [field.strip(BLANKS) for field in text.split("\t")] if text else []
    return [field for field in text.replace("\t", " ").split(" ") if field]


def _columns(path: Path, line: Line, column: int | None) -> int:
    """Return the number of columns of a line, the file's first. Raise InputError if there is no column of the tag."""
    count = len(line.fields)
    if column is not None and (not -count <= column < count or column % count == 0):
        raise InputError(
            f"{path}: line {line.number}: {count} columns, and no tag in column {column}; check the column and the "
            "separator, or read the file without tags"
        )
    return count


def _fault(lines: Sequence[Line], columns: int, column: int) -> tuple[int, str] | None:
    """Return the number of the first malformed line and what is wrong with it, in words; None if there is none."""
    for number, fields in lines:
        if len(fields) != columns:
            return number, f"{len(fields)} columns, not {columns} as in the file's first line"
        if not fields[0] or not fields[column]:
            return number, "no word" if not fields[0] else "no tag"
    return None
