"""A folder of books to documents: one `.txt` file a book, found at any depth.

    python -m data.books --source books/ --output workdir/corpus/books

Byte order marks, Windows line ends and the legal text around Project Gutenberg's books are removed, and hard-wrapped
lines joined, so that a line of the output is a paragraph.
"""

import dataclasses
import os
import re
from collections import Counter
from pathlib import Path

from bert import cli, manifest
from bert.errors import InputError
from data import parts
from data.progress import Progress

MAX_BYTES = 1 << 30  # a book is held in memory
UNWRAPPED = 200  # characters; no one wraps lines so far out: a longer line is a paragraph

START = re.compile(r"^\s*\*{3} ?START OF [^*]*GUTENBERG[^*]*\*{3}", re.M)
END = re.compile(r"^\s*\*{3} ?END OF [^*]*GUTENBERG", re.M)
BLANK_LINE = re.compile(r"\n\s*\n")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.books`."""

    source: Path
    """folder of .txt files, UTF-8 or Windows-1252"""
    output: Path
    """folder to write"""


def decode(content: bytes) -> tuple[str, str]:
    """The text of a book's bytes, and the encoding it was in. Raises ValueError, with the reason, if it is no text."""
    if b"\0" in content:
        raise ValueError("binary (NUL bytes)")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return content.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    raise ValueError("neither UTF-8 nor Windows-1252")


def trim(text: str) -> str:
    """The book between Project Gutenberg's START and END lines; a text without them as it is."""
    if start := START.search(text):
        text = text[start.end() :]
    if end := END.search(text):
        text = text[: end.start()]
    return text


def paragraphs(text: str) -> list[str]:
    """Paragraphs, each one line: the blocks between blank lines or, where most text is in long lines, the lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    in_long_lines = sum(len(line) for line in lines if len(line) > UNWRAPPED)
    blocks = lines if in_long_lines > len(text) / 2 else BLANK_LINE.split(text)
    return [joined for block in blocks if (joined := " ".join(block.split()))]


def make(options: Options, partial: Path) -> manifest.Made:
    """Writes the parts; counts the books by what became of them, and names those that were refused."""
    sources = sorted(path for path in options.source.rglob("*") if path.suffix.lower() == ".txt" and path.is_file())
    if not sources:
        raise InputError(f"{options.source}: no .txt file in this folder; give the folder of the books")
    counts: Counter[str] = Counter()
    refused: dict[str, str] = {}
    progress = Progress("books", "books")
    with parts.Writer(partial) as writer:
        for path in sources:
            name = os.fsencode(path.relative_to(options.source)).decode("utf-8", "replace")
            try:
                text, encoding = _read(path)
            except ValueError as error:
                refused[name] = str(error)
                continue
            progress.add(1, writer.write({"id": f"books:{name}", "text": text}))
            counts[f"in {encoding}"] += 1
    counts.update(books=progress.items, refused=len(refused))
    if not progress.items:
        name, reason = next(iter(refused.items()))
        raise InputError(f"{options.source}: no book in {len(sources)} .txt files ({name}: {reason}); give text files")
    progress.done(", ".join(f"{name}: {reason}" for name, reason in refused.items()) or "none refused")
    return manifest.Made(counts=dict(counts), records=writer.records, extra={"refused": refused})


def _read(path: Path) -> tuple[str, str]:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{size:,} bytes, more than {MAX_BYTES:,}; make a file of each book")
    text, encoding = decode(path.read_bytes())
    joined = "\n".join(paragraphs(trim(text)))
    if not joined:
        raise ValueError("empty")
    return joined, encoding


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.books", description=__doc__)
    if not options.source.is_dir():
        raise InputError(f"{options.source}: no such folder; give the folder of the books")
    manifest.build(
        options.output,
        stage="books",
        parameters={},
        inputs=[options.source],
        make=lambda partial: make(options, partial),
    )


if __name__ == "__main__":
    cli.main(main)
