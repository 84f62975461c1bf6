"""Texts from a file, and passages that the model reads as a whole.

- `.txt`: each line is a text, or what blank lines separate. Its id is the number of its first line, from 1.
- `.jsonl`: each line is an object with `text` and, if it has them, `_id` or `id`, and `title`: BEIR's `corpus.jsonl`.
- `.tsv`: the first line has the names of the columns, of which these count; a quotation mark is a character.

Compressed files are read too. A text that is longer than the model's input is cut into overlapping passages, the
windows of `bert.text.windows`. Where there is white space, a passage begins and ends at it, so no word is cut. The
title of a text is read before each of its passages.
"""

import functools
import itertools
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bert.core import files
from bert.core.errors import InputError, UsageError
from bert.text.contents import Distinct
from bert.text.tokenization import Tokenizer
from bert.text.windows import cut

Document = Literal["line", "blank_line"]

SUFFIXES = (".txt", ".jsonl", ".tsv")
IDS = ("_id", "id")
QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"', re.DOTALL)  # a value as CSV has it, with quotes in it
CHUNK = 1024  # texts that are divided at once
SPECIAL = 2  # [CLS] and [SEP]
FEWEST = 8  # tokens of a passage with its title, [CLS] and [SEP]


class Text(NamedTuple):
    """A text of a file."""

    id: str
    title: str
    text: str


class Passage(NamedTuple):
    """A part of a text: its characters `start` to `end`."""

    id: str
    title: str
    start: int
    end: int
    text: str


def read(path: Path, document: Document) -> Iterator[Text]:
    """Yield the texts of a file; empty lines are none. Raise InputError for another file, naming the line.

    An id that is there twice is found at the end.
    """
    kind = path.suffix if path.suffix.lower() not in files.OPENERS else Path(path.stem).suffix
    if kind.lower() not in SUFFIXES:
        raise InputError(f"{path}: the file name must end in {', '.join(SUFFIXES)}, or in these and .gz, .bz2 or .xz")
    if kind.lower() == ".txt":
        yield from _plain(path, document)
        return
    read, ids = _objects if kind.lower() == ".jsonl" else _rows, Distinct()
    for line, text in read(path):
        ids.note(text.id, line)
        yield text
    if repeated := ids.repeated():
        line, before = repeated
        name = next(text.id for number, text in read(path) if number == line)
        raise InputError(f"{path}: line {line}: the id {name[:60]!a} is that of line {before}")


def _plain(path: Path, document: Document) -> Iterator[Text]:
    with files.open_text(path) as stream:
        lines = enumerate((line.removesuffix("\n") for line in files.read_lines(stream, path)), start=1)
        if document == "line":
            yield from (Text(str(number), "", line) for number, line in lines if line.strip())
            return
        for has_text, group in itertools.groupby(lines, key=lambda numbered: bool(numbered[1].strip())):
            if has_text:
                (number, first), *rest = group
                yield Text(str(number), "", "\n".join([first, *(line for _, line in rest)]))


def _objects(path: Path) -> Iterator[tuple[int, Text]]:
    with files.open_text(path) as stream:
        for number, line in enumerate(files.read_lines(stream, path), start=1):
            if not line.strip():
                continue
            try:
                fields = files.parse_json(line)
            except ValueError as error:
                raise InputError(f"{path}: line {number}: not JSON ({error}); correct it") from error
            if not isinstance(fields, dict):
                raise InputError(f"{path}: line {number}: not a JSON object; correct it")
            yield number, _text(fields, path, number)


def _rows(path: Path) -> Iterator[tuple[int, Text]]:
    with files.open_text(path) as stream:
        rows = (line.removesuffix("\n").split("\t") for line in files.read_lines(stream, path))
        names, told = next(rows, [""]), False
        if "text" not in names:
            raise InputError(f"{path}: its first line has no column named text; name the columns: id, title, text")
        for number, row in enumerate(rows, start=2):
            if row == [""]:
                continue
            if len(row) != len(names):
                raise InputError(f"{path}: line {number}: {len(row)} values, but {len(names)} columns; correct it")
            if not told and any(map(QUOTED.fullmatch, row)):
                told, place = True, f"{path}: line {number}"
                print(
                    f"warning: {place}: a value in quotes, with doubled quotes in it; .tsv is never quoted, so all "
                    "quotes are part of the text; if they are not, write .jsonl",
                    file=sys.stderr,
                )
            yield number, _text(dict(zip(names, row, strict=True)), path, number)


def _text(fields: Mapping[str, Any], path: Path, number: int) -> Text:
    identity = next((fields[name] for name in IDS if name in fields), None)
    if isinstance(identity, float) and (identity.is_integer() or math.isnan(identity)):
        identity = None if math.isnan(identity) else int(identity)
    if identity in (None, ""):
        identity = number
    title, text = fields.get("title") or "", fields.get("text")
    for name, value in (("text", text), ("title", title), ("id", str(identity))):
        if not isinstance(value, str):
            raise InputError(f"{path}: line {number}: {name} is {value!r:.60}, not a text; correct it")
        if files.SURROGATE.search(value):
            raise InputError(f"{path}: line {number}: {name} is not Unicode text; correct it")
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        raise InputError(f"{path}: line {number}: the id is {identity!r:.60}, neither a text nor a number; correct it")
    return Text(str(identity), str(title), str(text))


class Cutter:
    """Divides texts into passages that fit the model."""

    def __init__(self, tokenizer: Tokenizer, length: int, stride: int | None = None, before: str = "") -> None:
        """length: tokens of a passage, with its title, [CLS] and [SEP]; at least `FEWEST`.

        stride: tokens between the beginnings of two passages; None: three quarters of a passage. before: the prompt
        that the model reads before each passage. Raise UsageError if it leaves too few tokens.
        """
        prompt = len(tokenizer.encode([before])[0])
        self.tokenizer, self.length, self.stride = tokenizer, length - prompt, stride
        if prompt and self.length < FEWEST:
            raise UsageError(
                f"--length {length}: the model's prompt has {prompt} tokens; give {prompt + FEWEST} or more"
            )
        self._short = functools.lru_cache(maxsize=4096)(self._cut_title)

    def cut(self, texts: Iterable[Text]) -> Iterator[Passage]:
        """Yield the passages of all texts, in order; a text without a token has none."""
        rest = iter(texts)
        while chunk := list(itertools.islice(rest, CHUNK)):
            _, splits, starts, ends = self.tokenizer.encode_with_offsets([text.text for text in chunk])
            for text, first, last in zip(chunk, splits[:-1], splits[1:], strict=True):
                room = self.length - SPECIAL - self._short(text.title)[1]
                step = self.stride or max(1, 3 * room // 4)
                for start, end in _spans(starts[first:last], ends[first:last], room, step):
                    yield Passage(text.id, text.title, start, end, text.text[start:end])

    def embedded(self, passage: Passage) -> str:
        """Return what the model reads: the title, cut to at most half of a passage's tokens, and the passage."""
        title = self._short(passage.title)[0]
        return f"{title} {passage.text}" if title else passage.text

    def _cut_title(self, title: str) -> tuple[str, int]:
        """Return the part of a title that is read, and the number of its tokens."""
        if not title.strip():
            return "", 0
        _, _, _, ends = self.tokenizer.encode_with_offsets([title])
        count = min(len(ends), (self.length - SPECIAL) // 2)
        return (title if count == len(ends) else title[: int(ends[count - 1])]), count


def _spans(starts: np.ndarray, ends: np.ndarray, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """Yield the first character and the end of each passage of a text. starts, ends: the same of its tokens.

    Neighbours share the tokens between the beginning of the later passage and the end of the earlier one. If these
    tokens have white space between them, the later passage begins at the first white space, and the earlier one ends at
    the last.
    """
    count, begin = len(starts), 0
    windows = cut(count, room, stride) if count else []
    for number, (first, length) in enumerate(windows):
        end, following = first + length, first + length
        if number + 1 < len(windows):
            following = windows[number + 1][0]
            shared = np.arange(following, end + 1)
            spaces = shared[starts[shared] > ends[shared - 1]]
            if len(spaces):
                following, end = int(spaces[0]), int(spaces[-1])
        yield int(starts[begin]), int(ends[end - 1])
        begin = following
