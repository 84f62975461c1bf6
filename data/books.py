"""Convert a folder of books to documents. Each `.txt` file, at any depth, is one book.

    python -m data.books --source books/ --output workdir/corpus/books

Byte order marks, Windows line ends and the legal text around Project Gutenberg's books are removed. Hard-wrapped lines
are joined, so that each line of the output is one paragraph. PG-19 (folders `train`, `validation`, `test` with files
`{id}.txt`) can be used as it is.
"""

import dataclasses
import itertools
import re
import sys
from collections import Counter
from pathlib import Path

from bert import cli
from bert.errors import InputError
from bert.storage import outputs
from data.pipeline import parts, sources, tasks

MAX_BYTES = 64 * 1024 * 1024  # a book is held in memory
UNWRAPPED = 200  # characters; hard-wrapped lines are shorter, so a longer line is a whole paragraph

# The lines that begin and end Project Gutenberg's books, in all wordings used since 1991.
START = re.compile(
    r"^[ \t]*\*{3}[ \t]*START OF (?:THE |THIS )?PROJECT\s+GUTENBERG(?:[^*]{0,400}\*{3}|[^\n]*)", re.M | re.I
)
END = re.compile(
    r"^[ \t]*(?:\*{3}[ \t]*END OF (?:THE |THIS )?PROJECT\s+GUTENBERG"
    r"|\W{0,9}(?:End|Ende|Fin) (?:of|dieses|de|du) (?:the |this )?Proje[ck]t\s+Gutenberg)",
    re.M | re.I,
)
# Until 2003 a licence with this name stood before or after the book: *END THE SMALL PRINT! ... *Ver.04.29.93*END*
SMALL_PRINT = re.compile(r"^[ \t]*\*{3}[ \t]*START\*+[ \t]*THE SMALL PRINT!", re.M | re.I)
SMALL_PRINT_END = re.compile(
    r"^[ \t]*\*{1,3}[ \t]*END[ \t*]*THE SMALL PRINT![^*]{0,200}(?:\*[^*\n]{0,80}\*END\*)?", re.M | re.I
)
# A first paragraph that names who produced the electronic text. "*+" does not go back, so a long line costs little.
CREDIT = re.compile(
    r"\A\s*(?:\[?(?:E-?text|This e-?(?:text|book)|Transcribed|Transcription|Produced|Prepared)\b[^\n]{0,40}?\b"
    r"(?:by|from)\b[^\n]*\n(?:[^\S\n]*+\S[^\n]*+\n)*+)",
    re.I,
)

BLANK_LINE = re.compile(r"\n\s*\n")
SENTENCE_END = re.compile(r"[.!?:;\u2026\u3002\uff01\uff1f\u0964\u061f][\"')\]\u2019\u201d\u00bb]*$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.Options):
    """Flags of `python -m data.books`."""

    source: Path
    """folder of .txt files in UTF-8, in UTF-16 or UTF-32 with a byte order mark, in Windows-1252 or Latin-1"""


def trim(text: str) -> str:
    """Return the book, or books, without Project Gutenberg's legal text. Other text is returned unchanged."""
    text = _without_small_print(text)
    books, position = [], 0
    while position < len(text):
        end = END.search(text, position)
        stop = end.start() if end else len(text)
        begin = position
        for start in START.finditer(text, position, stop):
            begin = start.end()
        if begin == position > 0:
            break  # after an END, without another START: this is the licence
        books.append(CREDIT.sub("", text[begin:stop]) if begin else text[:stop])
        position = end.end() if end else len(text)
    return "\n".join(books)


def _without_small_print(text: str) -> str:
    """Return the text before the licence or the text after it, whichever is longer."""
    begin, end = SMALL_PRINT.search(text), SMALL_PRINT_END.search(text)
    if not begin and not end:
        return text
    before = text[: (begin or end).start()]  # type: ignore[union-attr]
    after = text[end.end() :] if end else ""
    return max(before, after, key=len)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, each as one line.

    Paragraphs are separated by blank lines. But every line is a paragraph if more than half of the text is in lines
    too long to be hard-wrapped, or if most lines that are followed by another line end a sentence.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    in_long_lines = sum(len(line) for line in lines if len(line) > UNWRAPPED)
    blocks = lines if in_long_lines > len(text) / 2 or _ends_sentences(lines) else BLANK_LINE.split(text)
    return [joined for block in blocks if (joined := " ".join(block.split()))]


def _ends_sentences(lines: list[str]) -> bool:
    inner = ended = 0  # lines followed by another line, and those of them that end a sentence
    for line, following in itertools.pairwise(lines):
        if line and following and not line.isspace() and not following.isspace():
            inner += 1
            ended += SENTENCE_END.search(line[-8:].rstrip()) is not None
    return ended > inner / 2


class BooksStage(sources.SourceStage):
    """Books to documents."""

    name = "books"

    @classmethod
    def read(cls, task: sources.SourceTask) -> sources.ReadResult:
        """Write the books of one group of files. Count them by outcome, and name the refused ones."""
        options: Options = task.settings
        counts: Counter[str] = Counter({"files": 0, "books": 0, "refused": 0, "only legal text": 0, "pieces": 0})
        refused: dict[str, str] = {}
        size = 0
        with parts.Writer(task.target) as writer:
            for path in task.files:
                name = sources.relative_name(path, options.source)
                counts["files"] += 1
                try:
                    text, encoding, removed = read_book(path)
                except ValueError as error:
                    refused[name] = str(error)
                    counts["only legal text" if isinstance(error, OnlyLegalText) else "refused"] += 1
                    continue
                for number, piece in enumerate(sources.pieces(text)):
                    size += writer.write({"id": f"books:{sources.piece_id(name, number)}", "text": piece})
                    counts["pieces"] += 1
                counts.update({"books": 1, f"in {encoding}": 1})
                if removed:
                    counts["control characters removed"] += removed
        return sources.ReadResult(counts, writer.records, refused, counts["books"], size)

    def check(self, result: outputs.StageResult) -> outputs.StageResult:
        if not result.counts["books"]:
            name, reason = next(iter(result.extra["refused"].items()))
            source = self.options.source
            raise InputError(f"{source}: no book in its .txt files ({name}: {reason}); give text files")
        print(sources.summary(self.name, result), file=sys.stderr)
        return result


class OnlyLegalText(ValueError):
    """The file holds the legal text of Project Gutenberg and no book."""


def read_book(path: Path) -> tuple[str, str, int]:
    """Return the paragraphs of a book, one a line, the encoding of its file, and how many control characters it had.

    Raise ValueError with the reason if it is not a book.
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{size:,} bytes, more than {MAX_BYTES:,}; make a file of each book, or use data.text")
    encoding = sources.detect_encoding(path)
    with sources.open_text(path, encoding) as stream:
        text, removed = sources.without_controls(stream.read())
    if joined := "\n".join(paragraphs(trim(text))):
        return joined, encoding, removed
    if text.strip():
        raise OnlyLegalText("nothing but the legal text of Project Gutenberg")
    raise ValueError("empty")


def is_book(name: str) -> bool:
    """Whether a file with this name is read as a book."""
    return name.lower().endswith(".txt")


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.books", description=__doc__)
    if not options.source.is_dir():
        raise InputError(f"{options.source}: no such folder; give the folder of the books")
    books = sources.find_files(options.source, is_book)
    if not books:
        raise InputError(f"{options.source}: no .txt file in this folder; give the folder of the books")
    tasks.build(BooksStage(options, sources.group_files(books)), options.output, options)


if __name__ == "__main__":
    from data import books  # a Dask worker can load a task of this module, not one of __main__

    cli.main(books.main)
