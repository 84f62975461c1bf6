"""Plain text: a file, each line, or what blank lines separate is a document."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

from bert.core import files
from data.layouts.rows import Text
from data.pipeline import decoding, sources
from data.splitting.sentences import SENTENCE_END

Document = Literal["file", "line", "blank_line"]

# google-research/bert's format: a sentence on each line, documents between blank lines.
LOOKED_AT = 1 << 16  # characters
FEWEST_BLOCKS, FEWEST_LINES, MOST_OTHERS = 5, 2.0, 0.1  # documents; sentences in each; share of lines without an end


def documents(stream: IO[str], kind: Document, path: Path) -> Iterator[Text]:
    """Yield the documents of a file's stream, with their numbers from 1. Long ones of kind `file` come in pieces."""
    if kind == "file":
        for piece in sources.stream_pieces(stream):
            yield Text(0, None, piece)
    elif kind == "line":
        for number, line in enumerate(files.read_lines(stream, path), start=1):
            if line.strip():
                yield Text(number, None, line.removesuffix("\n"))
    else:
        yield from _blocks(files.read_lines(stream, path))


def _blocks(stream: Iterator[str]) -> Iterator[Text]:
    """Yield what blank lines separate, in pieces of at most `MAX_DOCUMENT` characters."""
    lines, size, number = list[str](), 0, 1
    for line in stream:
        if line.strip():
            lines.append(line)
            size += len(line)
        if lines and (not line.strip() or size > sources.MAX_DOCUMENT):
            yield Text(number, None, "".join(lines))
            lines, size = [], 0
        if not line.strip():
            number += 1
    if lines:
        yield Text(number, None, "".join(lines))


def has_sentences_on_lines(path: Path, encoding: str) -> bool:
    """Return whether a file looks as google-research/bert's input does: several documents of a sentence per line."""
    with decoding.open_text(path, encoding) as stream:
        text = stream.read(LOOKED_AT)
    blocks = [block.split("\n") for block in re.split(r"\n[ \t]*\n+", text.strip())]
    lines = [line.strip() for block in blocks for line in block if line.strip()]
    ended = sum(SENTENCE_END.search(line[-8:]) is not None for line in lines)
    return (
        len(blocks) >= FEWEST_BLOCKS
        and len(lines) >= FEWEST_LINES * len(blocks)
        and (ended >= (1 - MOST_OTHERS) * len(lines))
    )
