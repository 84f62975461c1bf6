"""JSON: one object per line (.jsonl, .ndjson), or in .json also one array of objects, or one object."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bert.core import files
from bert.core.errors import InputError
from data.layouts.rows import Row

MARK = b"\xef\xbb\xbf"
SPACES = re.compile(r"[ \t\r\n]*")
CHUNK = 1 << 20  # characters read at once


def lines(path: Path) -> Iterator[Row]:
    """Yield the rows of JSON lines. Blank lines are left out."""
    with files.open_bytes(path) as stream:
        number = 0
        while line := stream.readline(files.MAX_LINE + 1):
            number += 1
            if len(line) > files.MAX_LINE:
                raise InputError(f"{path}: line {number} has more than {files.MAX_LINE:,} bytes; split the document")
            if number == 1:
                line = line.removeprefix(MARK)
            if line.strip():
                yield _row("line", number, line)


def document(path: Path) -> Iterator[Row]:
    """Yield the rows of a .json file: JSON lines, or the elements of one array, or one object."""
    with files.open_bytes(path) as stream:
        head = stream.read(CHUNK).removeprefix(MARK).lstrip()
    if head.startswith(b"["):
        with files.open_text(path) as text:
            yield from _elements(text, path)
        return
    first = head.partition(b"\n")[0]
    if head.startswith(b"{") and len(first) < CHUNK and isinstance(_row("line", 1, first).values, str):
        whole = files.read_text(path, files.MAX_LINE, "give JSON lines")
        yield _row("object", 1, whole.encode())
        return
    yield from lines(path)


def _elements(stream: IO[str], path: Path) -> Iterator[Row]:
    """Yield the elements of an array. Hold one element at a time. Raise InputError if text follows the array."""
    decoder, buffer, number = json.JSONDecoder(), stream.read(CHUNK), 0
    place = buffer.index("[") + 1
    while True:
        place = SPACES.match(buffer, place).end()  # type: ignore[union-attr]
        if buffer.startswith("]", place):
            _check_end(buffer[place + 1 :], stream, path)
            return
        if buffer.startswith(",", place):
            place += 1
            continue
        try:
            _, end = decoder.raw_decode(buffer, place)
        except (json.JSONDecodeError, RecursionError) as error:
            more = stream.read(max(CHUNK, len(buffer) - place))  # doubles, so that a long element is parsed a few times
            if not more or len(buffer) - place > files.MAX_LINE:
                raise InputError(f"{path}: element {number + 1:,} is not JSON ({error}); correct it") from error
            buffer, place = buffer[place:] + more, 0
            continue
        number += 1
        yield _row("element", number, buffer[place:end].encode("utf-8", "surrogatepass"))
        place = end


def _check_end(rest: str, stream: IO[str], path: Path) -> None:
    """Raise InputError if anything but white space follows an array, such as a second one."""
    for part in itertools.chain([rest], iter(lambda: stream.read(CHUNK), "")):
        if not SPACES.fullmatch(part):
            raise InputError(f"{path}: text behind the array, which is not JSON; give one array, or JSON lines")


def _row(place: str, number: int, content: bytes) -> Row:
    try:
        record = files.parse_json(content)
    except ValueError as error:
        return Row(place, number, f"not JSON ({error})")
    return Row(place, number, record if isinstance(record, dict) else "not a JSON object")
