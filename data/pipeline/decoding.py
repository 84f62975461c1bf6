"""Which encoding a text file is in: Unicode, or Western European text where that is certain.

A single-byte encoding has no mark, and nearly any bytes are text in it. So a file that is not Unicode is read as
Windows-1252 only if it has the letters of Western European languages, where these languages have them. Any other is
refused, with the encodings that it may be in; the user says which one it is.
"""

import codecs
import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import charset_normalizer

from bert.core import files
from bert.core.errors import UsageError
from data.pipeline.sources import without_controls

CHUNK = 1 << 20
MARKS = {  # byte order marks; the mark of UTF-32 begins with the mark of UTF-16
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
BINARY = bytes([*range(7), *range(14, 26), 28, 29, 30, 31])  # control characters that do not occur in text
ISO_2022 = b"\x1b$"  # stands before the Japanese and Korean of 7-bit encodings, whose bytes are all ASCII
NOT_IN_CP1252 = b"\x81\x8d\x8f\x90\x9d"
MAX_BINARY = 0.02  # share of control characters from which a file is not text

# Of Windows-1252: the letters of English, French, German, Spanish, Italian, Portuguese, Dutch and Nordic languages.
# Others stand for letters of other encodings: Turkish is full of eth, thorn and y acute, Czech of y acute.
SMALL = "".join(map(chr, [*range(0xE0, 0xF0), *range(0xF1, 0xF7), *range(0xF8, 0xFD), 0xFF, 0x153, 0xDF]))
LETTERS = SMALL + SMALL.replace("\xdf", "").upper()
# What stands within a word there: quotes, dashes, a soft hyphen, the dot of Catalan, ordinals.
WITHIN = "\u2018\u2019\u201c\u201d\u2013\u2014\u2026\xad\xb7\xaa\xba\xb0\xa0\xab\xbb\u2122\xae"
ODD = re.compile(
    rf"(?<=[A-Za-z{LETTERS}])[^\x00-\x7f{LETTERS}{WITHIN}](?=[A-Za-z{LETTERS}])"  # a sign within a word
    rf"|(?<=[a-z{SMALL}])[{LETTERS[len(SMALL) :]}]"  # a capital after a small letter
)
FOREIGN = re.compile(rf"[^\W\d_A-Za-z{LETTERS}\xaa\xba]")
TILDES = ("\xe3", "\xf5")  # Portuguese has both; Hungarian would have the second one alone
MAX_ODD, MAX_FOREIGN, MAX_LETTERS = 0.003, 0.02, 0.4  # shares of all other than ASCII; letters among all letters
SAMPLE = 1 << 16  # bytes that are looked at to name encodings
NAMED = 3  # encodings in a message


def detect(path: Path) -> str:
    """Return the encoding of a text file.

    Raise ValueError, with the reason, if the file is not text or its encoding is not certain.

    A byte order mark decides: utf-8, utf-16 or utf-32. Without one, the result is "utf-8" if the file is valid UTF-8;
    "utf-8 with errors" if most of its non-ASCII characters are; else "cp1252", or "latin-1" if the file has bytes that
    Windows-1252 does not define. Up to four passes in constant memory.
    """
    with files.open_bytes(path) as stream:
        head = stream.read(4)
    marked = next((encoding for mark, encoding in MARKS.items() if head.startswith(mark)), None)
    if marked in ("utf-16", "utf-32"):
        _check_wide(marked, path)
        return marked
    size, binary, undefined, last = 0, 0, 0, b""
    for chunk in _chunks(path):
        if ISO_2022 in last + chunk:
            raise ValueError("not Unicode; it may be iso2022_jp or iso2022_kr; give --encoding")
        last = chunk[-1:]
        size += len(chunk)
        binary += len(chunk) - len(chunk.translate(None, BINARY))
        undefined += len(chunk) - len(chunk.translate(None, NOT_IN_CP1252))
    if binary > size * MAX_BINARY:
        reason = f"binary ({binary:,} of {size:,} bytes are control characters)"
        raise ValueError(f"{reason}; UTF-16 and UTF-32 need a byte order mark")
    if _is_valid("utf-8", path):
        return "utf-8"
    valid, invalid = _non_ascii_characters(path)
    if marked or valid > invalid:
        return "utf-8 with errors"
    encoding = "latin-1" if undefined else "cp1252"
    if not _is_western(path, encoding):
        raise ValueError(f"not Unicode; it may be {_candidates(path)}; give --encoding")
    return encoding


def check(name: str | None) -> None:
    """Raise UsageError if Python has no text encoding of this name."""
    if name:
        try:
            "".encode(name)
        except (LookupError, UnicodeError, ValueError) as error:
            raise UsageError(f"--encoding {name}: no encoding of text has this name; try gb18030 or cp1251") from error


@contextlib.contextmanager
def open_text(path: Path, encoding: str, newline: str | None = None) -> Iterator[IO[str]]:
    """Yield a file in the encoding that `detect` returned or the user gave.

    newline: as for `open`; None gives "\\n" at every end of line. Raise ValueError if it is not text in this encoding.
    """
    codec = "utf-8-sig" if encoding.lower() in ("utf-8", "utf8", "utf-8 with errors") else encoding
    errors = "replace" if encoding == "utf-8 with errors" else "strict"
    try:
        with (
            files.open_bytes(path) as stream,
            io.TextIOWrapper(stream, encoding=codec, errors=errors, newline=newline) as text,
        ):
            yield text
    except UnicodeDecodeError as error:
        raise ValueError(f"not in the encoding {encoding} ({error.reason}); give another --encoding") from error


def _is_western(path: Path, encoding: str) -> bool:
    """Return whether a file is Western European text in one of the two encodings."""
    odd = foreign = special = letters = others = 0
    tildes = dict.fromkeys(TILDES, 0)
    for chunk in _chunks(path):
        text = chunk.decode(encoding, "replace")
        others += len(text) - len(text.encode("ascii", "ignore"))
        odd += len(ODD.findall(text))
        foreign += len(FOREIGN.findall(text))
        special += sum(map(text.count, LETTERS))
        letters += sum(map(str.isalpha, text))
        for letter in TILDES:
            tildes[letter] += text.count(letter)
    if tildes["\xf5"] and not tildes["\xe3"]:
        foreign += tildes["\xf5"]
    return odd <= others * MAX_ODD and foreign <= others * MAX_FOREIGN and special <= letters * MAX_LETTERS


def _candidates(path: Path) -> str:
    """Return the names of the encodings that a file is most likely in."""
    with files.open_bytes(path) as stream:
        matches = charset_normalizer.from_bytes(stream.read(SAMPLE))
    names = list(dict.fromkeys(match.encoding for match in matches))[:NAMED]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "of many kinds"


def _check_wide(encoding: str, path: Path) -> None:
    """Raise ValueError if a file with a byte order mark of UTF-16 or UTF-32 is not text in this encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    characters = controls = 0
    try:
        for chunk in _chunks(path):
            text = decoder.decode(chunk)
            characters += len(text)
            controls += without_controls(text)[1]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise ValueError(f"not the {encoding.upper()} that its first bytes announce") from error
    if controls > characters * MAX_BINARY:
        raise ValueError(f"binary ({controls:,} of {characters:,} characters are control characters)")


def _chunks(path: Path) -> Iterator[bytes]:
    with files.open_bytes(path) as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def _is_valid(encoding: str, path: Path) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for chunk in _chunks(path):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _non_ascii_characters(path: Path) -> tuple[int, int]:
    """Return the number of non-ASCII characters that are valid UTF-8, and of those that are not."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    non_ascii = invalid = 0
    for chunk in _chunks(path):
        text = decoder.decode(chunk)
        non_ascii += len(text) - len(text.encode("ascii", "ignore"))
        invalid += text.count("\ufffd")
    return non_ascii - invalid, invalid
