"""A MediaWiki XML dump, cut into its pages: checked as it streams by, and every page counted for what it is.

Nothing is parsed as XML, so nothing in it can expand; memory is bounded by the largest page that is let through.
"""

import codecs
import html
import io
import itertools
import re
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from bert.errors import InputError
from bert.storage import files

CHUNK = 1 << 20
MAX_PAGE = 10_000_000  # bytes of XML; MediaWiki itself stops at 2 MiB of wikitext
MAX_HEAD = 1_000_000  # bytes before the first page
BEGIN, END, LAST = b"<page>", b"</page>", b"</mediawiki>"
DECLARATION = re.compile(rb"<!(?:DOCTYPE|ENTITY)")
NO_DUMP = "not an XML dump of MediaWiki (it does not begin with <mediawiki>); give the one named pages-articles"
TITLE, ID = re.compile(rb"<title>([^<]*)</title>"), re.compile(rb"<id>(\d+)</id>")
NAMESPACE = re.compile(rb"<ns>(-?\d+)</ns>")
FACTS = 65_536  # bytes at the beginning of a page within which its title, id, namespace and redirect stand
RANGE = re.compile(r"^(.*-pages-articles)[\w-]*\.xml(?:-p(\d+)p(\d+))?(?:\.bz2|\.gz|\.xz)?$")


class Page(NamedTuple):
    """One article, still as XML."""

    id: str
    title: str
    content: bytes  # from <page> to </page>


class Reader:
    """The articles of a dump in its order, and what its other pages are.

    Raises InputError for what is cut, not UTF-8, no dump of MediaWiki's, or a dump of page histories.
    """

    def __init__(self, path: Path, max_page: int = MAX_PAGE) -> None:
        self.path, self.max_page = path, max_page
        self.counts = Counter(pages=0, articles=0, redirects=0, other_namespace=0, rejected=0)
        self.rejected: dict[str, str] = {}  # article -> reason
        self.head = b""  # what stands before the first page
        self.size = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._held = bytearray()  # not yet cut
        self._searched = 0  # bytes of it that hold no end of the page
        self._facts = b""  # the beginning of a page too large to hold
        self._inside = self._closed = False

    def pages(self) -> Iterator[Page]:
        """Opens and reads the file, whichever way it is compressed."""
        with files.open_text(self.path) as stream:
            # Beneath the text lie the decompressed bytes.
            source = typing.cast(IO[bytes], typing.cast(io.TextIOWrapper, stream).buffer)
            while chunk := source.read(CHUNK):
                yield from self.add(chunk)
        self.finish()

    def add(self, chunk: bytes) -> Iterator[Page]:
        """Takes the next bytes, cut anywhere; yields the articles that end in them."""
        self._check_encoding(chunk)
        self._held += chunk
        while self._begin() and (end := self._held.find(END, self._searched)) >= 0:
            end += len(END)
            content = bytes(self._held[:end])
            del self._held[:end]
            self._inside, self._searched = False, 0
            page = self._classify(content)
            self._facts = b""
            if page:
                yield page
        if self._inside:
            self._hold_no_more_than_a_page()

    def finish(self) -> None:
        """The dump has ended: is it whole?"""
        if not self._inside:
            self._between(bytes(self._held))
        if self._inside or not self._closed:
            if not self.counts["pages"] and b"<mediawiki" not in self.head:
                raise InputError(f"{self.path}: {NO_DUMP}")
            where = "inside a page" if self._inside else "between pages"
            raise InputError(f"{self.path}: the file ends {where} (no </mediawiki>); fetch the dump again")

    def _check_encoding(self, chunk: bytes) -> None:
        pending = len(self._decoder.getstate()[0])
        try:
            self._decoder.decode(chunk)
        except UnicodeDecodeError as error:
            at = self.size - pending + error.start
            raise InputError(f"{self.path}: not UTF-8 at byte {at:,} of the XML; fetch the dump again") from error
        self.size += len(chunk)

    def _begin(self) -> bool:
        """Whether the held bytes are of a page; throws away what stands before one."""
        if not self._inside:
            known = begin = self._held.find(BEGIN)
            if begin < 0:  # a mark may be cut in two at the end
                cut = self._held.rfind(b"<", max(0, len(self._held) - len(LAST)))
                known = cut if cut >= 0 else len(self._held)
            self._between(bytes(self._held[:known]))
            del self._held[:known]
            self._inside = begin >= 0
            self._searched = len(BEGIN)
            if self._inside and b"<mediawiki" not in self.head:
                raise InputError(f"{self.path}: {NO_DUMP}")
        return self._inside

    def _between(self, content: bytes) -> None:
        if not self.counts["pages"]:
            self.head += content
            if len(self.head) > MAX_HEAD:
                raise InputError(f"{self.path}: {NO_DUMP}")
        if DECLARATION.search(content):
            raise InputError(f"{self.path}: declares entities (<!DOCTYPE), which no dump of MediaWiki's does; refused")
        self._closed = self._closed or LAST in content

    def _hold_no_more_than_a_page(self) -> None:
        if not self._facts and len(self._held) > self.max_page:
            self._facts = bytes(self._held[:FACTS])
        if self._facts:
            del self._held[: -len(END)]
        self._searched = max(0, len(self._held) - len(END))

    def _classify(self, content: bytes) -> Page | None:
        """The page if it is an article to extract; counts it."""
        facts = self._facts or content[:FACTS]
        self.counts["pages"] += 1
        title, identifier, namespace = TITLE.search(facts), ID.search(facts), NAMESPACE.search(facts)
        if content.find(BEGIN, 1) >= 0 or not title or not identifier:
            raise InputError(f"{self.path}: page {self.counts['pages']:,} has no end, title or id; fetch it again")
        if content.count(b"<revision>") > 1:
            raise InputError(f"{self.path}: a dump of page histories; give the one named pages-articles")
        before_text = facts.partition(b"<revision>")[0]
        if not namespace or namespace[1] != b"0":
            self.counts["other_namespace"] += 1
        elif b"<redirect" in before_text:
            self.counts["redirects"] += 1
        else:
            page = Page(identifier[1].decode(), html.unescape(title[1].decode("utf-8", "replace")), content)
            if not self._facts and len(content) <= self.max_page:
                self.counts["articles"] += 1
                return page
            self.reject(page, f"more than {self.max_page:,} bytes of XML")
        return None

    def reject(self, page: Page, reason: str) -> None:
        """Counts an article that is not extracted, by name."""
        self.counts["rejected"] += 1
        self.rejected[f"{page.id} {page.title}"] = reason


def parts_of(folder: Path) -> list[Path]:
    """The dump's parts in a folder (`*-pages-articles*.xml-p1p41242.bz2` or so), by their pages; none if it has none.

    Raises InputError if the same page is in two of them, or they are of several wikis.
    """
    found = []
    for path in folder.iterdir():
        if (match := RANGE.match(path.name)) and path.is_file():
            begin, end = (int(match[2]), int(match[3])) if match[2] else (0, 1 << 62)
            found.append((match[1], begin, end, path))
    found.sort()
    for (wiki, _, end, path), (other_wiki, begin, _, other) in itertools.pairwise(found):
        if wiki != other_wiki:
            raise InputError(f"{folder}: parts of two dumps, {path.name} and {other.name}; give each its own folder")
        if begin <= end:
            raise InputError(f"{folder}: {path.name} and {other.name} hold the same pages; remove one")
    return [path for _, _, _, path in found]


def missing_pages(found: list[Path]) -> list[str]:
    """The ranges of pages between the parts that no part has: perhaps a part was not fetched."""
    ranges = [match for path in found if (match := RANGE.match(path.name)) and match[2]]
    ends = [0, *(int(match[3]) for match in ranges)]
    return [
        f"{end + 1}-{int(match[2]) - 1}" for end, match in zip(ends, ranges, strict=False) if int(match[2]) > end + 1
    ]
