"""A folder of books to documents: one `.txt` file a book, found at any depth.

    python -m data.books --source books/ --output workdir/corpus/books

Byte order marks, Windows line ends and the legal text around Project Gutenberg's books are removed, and hard-wrapped
lines joined, so that a line of the output is a paragraph. PG-19 (folders `train`, `validation`, `test` of `{id}.txt`)
is such a folder.
"""

import dataclasses
import itertools
import re
import sys
from collections import Counter
from pathlib import Path

from bert import cli
from bert.errors import InputError
from bert.storage import manifest
from data.pipeline import parts, sources

MAX_BYTES = 64 * 1024 * 1024  # a book is held in memory
UNWRAPPED = 200  # characters; no one wraps lines so far out: a longer line is a paragraph

# How Project Gutenberg has begun and ended its books since 1991, in whichever words.
START = re.compile(
    r"^[ \t]*\*{3}[ \t]*START OF (?:THE |THIS )?PROJECT\s+GUTENBERG(?:[^*]{0,400}\*{3}|[^\n]*)", re.M | re.I
)
END = re.compile(
    r"^[ \t]*(?:\*{3}[ \t]*END OF (?:THE |THIS )?PROJECT\s+GUTENBERG"
    r"|\W{0,9}(?:End|Ende|Fin) (?:of|dieses|de|du) (?:the |this )?Proje[ck]t\s+Gutenberg)",
    re.M | re.I,
)
# Until 2003 a licence named so stood before the book, sometimes behind it: *END THE SMALL PRINT! ... *Ver.04.29.93*END*
SMALL_PRINT = re.compile(r"^[ \t]*\*{3}[ \t]*START\*+[ \t]*THE SMALL PRINT!", re.M | re.I)
SMALL_PRINT_END = re.compile(
    r"^[ \t]*\*{1,3}[ \t]*END[ \t*]*THE SMALL PRINT![^*]{0,200}(?:\*[^*\n]{0,80}\*END\*)?", re.M | re.I
)
CREDIT = re.compile(  # who typed it in, in the first paragraphs
    r"\A\s*(?:\[?(?:E-?text|This e-?(?:text|book)|Transcribed|Transcription|Produced|Prepared)\b[^\n]{0,40}?\b"
    r"(?:by|from)\b[^\n]*\n(?:[^\n]*\S[^\n]*\n)*)",
    re.I,
)

BLANK_LINE = re.compile(r"\n\s*\n")
SENTENCE_END = re.compile(r"[.!?:;\u2026\u3002\uff01\uff1f\u0964\u061f][\"')\]\u2019\u201d\u00bb]*$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.Options):
    """Flags of `python -m data.books`."""

    source: Path
    """folder of .txt files, UTF-8, UTF-16 with a mark, Windows-1252 or Latin-1"""


def trim(text: str) -> str:
    """The book, or books, without Project Gutenberg's legal text; a text without any as it is."""
    text = _without_small_print(text)
    kept, position = [], 0
    while position < len(text):
        end = END.search(text, position)
        stop = end.start() if end else len(text)
        begin = position
        for start in START.finditer(text, position, stop):
            begin = start.end()
        if begin == position > 0:
            break  # behind an END and without another START: the licence
        kept.append(CREDIT.sub("", text[begin:stop]) if begin else text[:stop])
        position = end.end() if end else len(text)
    return "\n".join(kept)


def _without_small_print(text: str) -> str:
    """The longer of what is before it and what is behind it."""
    begin, end = SMALL_PRINT.search(text), SMALL_PRINT_END.search(text)
    if not begin and not end:
        return text
    before = text[: (begin or end).start()]  # type: ignore[union-attr]
    behind = text[end.end() :] if end else ""
    return max(before, behind, key=len)


def paragraphs(text: str) -> list[str]:
    """Paragraphs, each one line: the blocks between blank lines, or the lines where these are paragraphs themselves.

    Lines are, if most text is in lines longer than anyone wraps, or most lines with another below end a sentence.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    in_long_lines = sum(len(line) for line in lines if len(line) > UNWRAPPED)
    blocks = lines if in_long_lines > len(text) / 2 or _ends_sentences(lines) else BLANK_LINE.split(text)
    return [joined for block in blocks if (joined := " ".join(block.split()))]


def _ends_sentences(lines: list[str]) -> bool:
    inner = ended = 0
    for line, following in itertools.pairwise(lines):
        if line and following and not line.isspace() and not following.isspace():
            inner += 1
            ended += SENTENCE_END.search(line[-8:].rstrip()) is not None
    return ended > inner / 2


def read_group(task: sources.Task) -> sources.Result:
    """Writes the books of one group of files; counts them by what became of them, and names those refused."""
    options: Options = task.options
    counts: Counter[str] = Counter({"files": 0, "books": 0, "refused": 0, "only legal text": 0, "pieces": 0})
    refused: dict[str, str] = {}
    size = 0
    with parts.Writer(task.target) as writer:
        for path in task.files:
            name = sources.name(path, options.source)
            counts["files"] += 1
            try:
                text, encoding = _read(path)
            except ValueError as error:
                refused[name] = str(error)
                counts["only legal text" if isinstance(error, _OnlyLegalText) else "refused"] += 1
                continue
            for number, piece in enumerate(sources.pieces(text)):
                size += writer.write({"id": f"books:{sources.numbered(name, number)}", "text": piece})
                counts["pieces"] += 1
            counts.update({"books": 1, f"in {encoding}": 1})
    return sources.Result(counts, writer.records, refused, counts["books"], size)


class _OnlyLegalText(ValueError):
    pass


def _read(path: Path) -> tuple[str, str]:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{size:,} bytes, more than {MAX_BYTES:,}; make a file of each book, or use data.text")
    encoding = sources.encoding(path)
    with sources.open_text(path, encoding) as stream:
        text = stream.read()
    if joined := "\n".join(paragraphs(trim(text))):
        return joined, encoding
    if text.strip():
        raise _OnlyLegalText("nothing but the legal text of Project Gutenberg")
    raise ValueError("empty")


def finish(options: Options, made: manifest.StageResult) -> manifest.StageResult:
    """Says on the terminal what the manifest says."""
    if not made.counts["books"]:
        name, reason = next(iter(made.extra["refused"].items()))
        raise InputError(f"{options.source}: no book in its .txt files ({name}: {reason}); give text files")
    print(sources.summary("books", made), file=sys.stderr)
    return made


def is_book(name: str) -> bool:
    """Whether a file of that name is a book."""
    return name.lower().endswith(".txt")


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.books", description=__doc__)
    if not options.source.is_dir():
        raise InputError(f"{options.source}: no such folder; give the folder of the books")
    found = sources.find(options.source, is_book)
    if not found:
        raise InputError(f"{options.source}: no .txt file in this folder; give the folder of the books")
    sources.build("books", options, read_group, sources.groups(found), lambda made: finish(options, made))


if __name__ == "__main__":
    cli.main(main)
