"""Read a file of PubMed, as NLM publishes it (`pubmed26n0001.xml.gz`), as a stream of records.

The file is searched for the tags of records; `abstract.py` parses one record at a time. So no declaration
of the file is ever parsed, entities cannot expand, and memory is bounded by the largest record that is accepted.
"""

import io
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from bert.core import files
from bert.core.errors import InputError

CHUNK = 1 << 20
MAX_RECORD = 8_000_000  # bytes of XML; articles with thousands of authors have about a million
MAX_BETWEEN = 1_000_000  # bytes before, between and after the records
BEGIN = re.compile(rb"<(PubmedArticle|PubmedBookArticle|DeleteCitation)>")
LONGEST_TAG = len(b"</PubmedArticleSet>")
SET = re.compile(rb"</?PubmedArticleSet(?:\s[^<>]*)?/?>")  # the begin or the end of a set
NOTHING = re.compile(rb"(?:\s|<!--.*?-->)*", re.S)  # what may be behind the last set
KEPT = 4096  # bytes before the next ones in which a tag may begin
DECLARATION = b"<!ENTITY"
CITATION = re.compile(rb"<MedlineCitation\b[^<>]*>\s*<PMID\b([^<>]*)>\s*([0-9]{1,9})\s*</PMID>")
PMID = re.compile(rb"<PMID\b([^<>]*)>\s*([0-9]{1,9})\s*</PMID>")
VERSION = re.compile(rb"""\bVersion\s*=\s*["']([0-9]{1,3})["']""")
HEAD = 65_536  # bytes; the number of a citation is within the first of its record
NO_PUBMED = "not XML of PubMed (it does not begin with <PubmedArticleSet>); give the files of its baseline or updates"


class Citation(NamedTuple):
    """One article, still as XML, or the news that one was deleted."""

    pmid: int
    version: int
    content: bytes | None  # from <PubmedArticle> to </PubmedArticle>; None: NLM deleted the citation


class Reader:
    """Yield the citations and the deletions of a file in its order. Leave out the chapters of books, and count them.

    Raise InputError for a file that is cut, not of PubMed, or has a record without a number.
    """

    def __init__(self, path: Path, max_record: int = MAX_RECORD) -> None:
        self.path, self.max_record = path, max_record
        self.records = self.chapters = 0
        self._buffer = bytearray()  # bytes not yet divided into records
        self._searched = 0  # length of the beginning of the buffer that is known not to contain the record's end
        self._inside = b""  # the name of the record with which the buffer begins
        self._between = b""  # what was read before and after the records
        self._opened = self._closed = False

    def citations(self) -> Iterator[Citation]:
        """Open the file, decompress it if needed, and yield its citations."""
        with files.open_text(self.path) as stream:
            # The buffer below the text stream has the decompressed bytes.
            source = typing.cast(IO[bytes], typing.cast(io.TextIOWrapper, stream).buffer)
            while chunk := source.read(CHUNK):
                yield from self.add(chunk)
        self.finish()

    def add(self, chunk: bytes) -> Iterator[Citation]:
        """Take the next bytes, cut at any position, and yield the citations that end in them."""
        self._buffer += chunk
        while self._begin() and (end := self._buffer.find(b"</%b>" % self._inside, self._searched)) >= 0:
            end += len(b"</%b>" % self._inside)
            content, kind = bytes(self._buffer[:end]), self._inside
            del self._buffer[:end]
            self._inside, self._searched = b"", 0
            yield from self._read(kind, content)
        if self._inside:
            if len(self._buffer) > self.max_record:
                raise InputError(
                    f"{self.path}: record {self.records + 1:,} has more than {self.max_record:,} bytes; remove it"
                )
            self._searched = max(0, len(self._buffer) - LONGEST_TAG)

    def finish(self) -> None:
        """Check at the end of the file that it is complete."""
        if not self._inside:
            self._pass_over(len(self._buffer))
        if not self._opened:
            raise InputError(f"{self.path}: {NO_PUBMED}")
        if self._inside or not self._closed or not NOTHING.fullmatch(self._between):
            where = "inside a record" if self._inside else "between records"
            raise InputError(
                f"{self.path}: the file ends {where} (no </PubmedArticleSet>) after {self.records:,} records; "
                "fetch it again"
            )

    def _begin(self) -> bool:
        """Drop the bytes before the next record. Return whether the buffer begins with a record."""
        if not self._inside:
            tag = BEGIN.search(self._buffer)
            name = tag[1] if tag else b""
            # Without a record, the last bytes stay: a tag may be cut in two at the end of the buffer.
            self._pass_over(tag.start() if tag else max(0, len(self._buffer) - LONGEST_TAG))
            self._inside, self._searched = name, 0
            if self._inside and not self._opened:
                raise InputError(f"{self.path}: {NO_PUBMED}")
        return bool(self._inside)

    def _pass_over(self, size: int) -> None:
        """Take `size` bytes that are in no record out of the buffer, and notice the begin and the end of the file."""
        self._between = (self._between[-KEPT:] if self._opened else self._between) + self._buffer[:size]
        del self._buffer[:size]
        if DECLARATION in self._between:
            raise InputError(f"{self.path}: declares entities (<!ENTITY), which files of PubMed do not; refused")
        for tag in [*SET.finditer(self._between)][-1:]:  # the last one counts: a file may have several sets
            self._opened, self._closed = True, tag[0].startswith(b"</") or tag[0].endswith(b"/>")
            self._between = self._between[tag.end() :]
        if len(self._between) > MAX_BETWEEN + CHUNK:
            raise InputError(f"{self.path}: {NO_PUBMED}")

    def _read(self, kind: bytes, content: bytes) -> Iterator[Citation]:
        self.records += 1
        if kind == b"DeleteCitation":
            for match in PMID.finditer(content):
                yield Citation(int(match[2]), _version(match[1]), None)
        elif kind == b"PubmedBookArticle":
            self.chapters += 1
        else:
            identity = CITATION.search(content, 0, HEAD)
            if not identity or content.find(b"<PubmedArticle>", 1) >= 0:
                raise InputError(f"{self.path}: record {self.records:,} has no PMID or no end; fetch the file again")
            yield Citation(int(identity[2]), _version(identity[1]), content)


def _version(attributes: bytes) -> int:
    match = VERSION.search(attributes)
    return int(match[1]) if match else 1
