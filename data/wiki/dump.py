"""Read a MediaWiki XML dump as a stream of pages, check it, and count every page by its kind.

The dump is searched for page tags and not parsed as XML, so entities cannot expand. Memory is bounded by the largest
page that is accepted.
"""

import codecs
import contextlib
import functools
import io
import itertools
import re
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from bert.core import files
from bert.core.errors import InputError
from data.wiki import references, wikitext

CHUNK = 1 << 20
MAX_PAGE = 10_000_000  # bytes of XML; MediaWiki limits a page to 2 MiB of wikitext
MAX_HEAD = 1_000_000  # bytes before the first page
BEGIN, END, LAST = b"<page>", b"</page>", b"</mediawiki>"
DECLARATION = re.compile(rb"<!(?:DOCTYPE|ENTITY)")
TAR = slice(257, 262)  # the place of "ustar" in an archive of tar
NO_DUMP = "not an XML dump of MediaWiki (it does not begin with <mediawiki>); give the one named pages-articles"
COMPRESSED = re.compile(r"\.xml[\w-]*\.(?:bz2|gz|xz|zst)$", re.I)  # these are dumps; their first bytes take 0.05 s
# Of files that are refused: how they begin, what they are, and what to do.
REFUSED = {
    b"7z\xbc\xaf\x27\x1c": (
        "a 7z archive",
        "unpack it (7z x) and give the .xml, or take the .bz2 named pages-articles; Wikimedia's .7z are page histories",
    ),
    b"PK\x03\x04": ("a zip archive", "unpack it, and give what is in it"),
    b"PAR1": ("Parquet", "use python -m data.text --text_column COLUMN"),
    b"[": ("a JSON array", "write each of its elements on a line (jq -c '.[]')"),
    b"-- M": (
        "an SQL dump of a table, which has no text",
        "give the dump named pages-articles",
    ),  # -- MySQL, -- MariaDB
    b"ZIM\x04": ("a ZIM file of Kiwix, which has no wikitext", "give the dump named pages-articles"),
    b"\x1f\x8b": ("compressed, which its name does not say", "let its name end in .gz"),
    b"BZh": ("compressed, which its name does not say", "let its name end in .bz2"),
    b"\xfd7zXZ\x00": ("compressed, which its name does not say", "let its name end in .xz"),
    b"\x28\xb5\x2f\xfd": ("compressed, which its name does not say", "let its name end in .zst"),
}
TITLE, ID = re.compile(rb"<title>([^<]*)</title>"), re.compile(rb"<id>(\d+)</id>")
NAMESPACE = re.compile(rb"<ns>(-?\d+)</ns>")
MODEL = re.compile(rb"<model>([^<]*)</model>")  # of the main slot, the first; before the text or, until 2013, behind it
PAGE_HEAD = 65_536  # bytes; the title, id, namespace and redirect of a page are within its first bytes
LANGUAGE = re.compile(rb'<mediawiki[^>]*\bxml:lang="([A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*)"')
DATABASE = re.compile(rb"<dbname>([a-z]{2,3}(?:_[a-z]{2,8})*|simple)wiki</dbname>")
RANGE = re.compile(r"^(.*-pages-articles)[\w-]*\.xml(?:-p(\d+)p(\d+))?(?:\.bz2|\.gz|\.xz)?$")


class Page(NamedTuple):
    """One article, still as XML."""

    id: str
    title: str
    content: bytes  # from <page> to </page>


class Reader:
    """Yield the articles of a dump in its order, and count its other pages.

    Raise InputError for a file that is cut, not UTF-8, not a MediaWiki dump, or a dump of page histories.
    """

    def __init__(self, path: Path, max_page: int = MAX_PAGE) -> None:
        self.path, self.max_page = path, max_page
        self.counts = Counter(pages=0, articles=0, redirects=0, other_namespace=0, rejected=0)
        self.rejected: dict[str, str] = {}  # article -> reason
        self.head = b""  # the bytes before the first page
        self.size = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._buffer = bytearray()  # bytes not yet divided into pages
        self._searched = 0  # length of the beginning of the buffer that is known not to contain the page's end
        self._page_head = b""  # the beginning of a page that is too large to be held
        self._inside = self._closed = False

    def pages(self) -> Iterator[Page]:
        """Open the file, decompress it if needed, and yield its articles."""
        with files.open_text(self.path) as stream:
            # The buffer below the text stream has the decompressed bytes.
            source = typing.cast(IO[bytes], typing.cast(io.TextIOWrapper, stream).buffer)
            while chunk := source.read(CHUNK):
                yield from self.add(chunk)
        self.finish()

    def add(self, chunk: bytes) -> Iterator[Page]:
        """Take the next bytes, cut at any position, and yield the articles that end in them."""
        self._check_encoding(chunk)
        self._buffer += chunk
        while self._begin() and (end := self._buffer.find(END, self._searched)) >= 0:
            end += len(END)
            content = bytes(self._buffer[:end])
            del self._buffer[:end]
            self._inside, self._searched = False, 0
            page = self._classify(content)
            self._page_head = b""
            if page:
                yield page
        if self._inside:
            self._limit_buffer()

    def finish(self) -> None:
        """Check at the end of the file that the dump is complete."""
        if not self._inside:
            self._between(bytes(self._buffer))
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
        """Drop the bytes before the next page. Return whether the buffer begins with a page."""
        if not self._inside:
            outside = begin = self._buffer.find(BEGIN)
            if begin < 0:  # a tag may be cut in two at the end of the buffer
                cut = self._buffer.rfind(b"<", max(0, len(self._buffer) - len(LAST)))
                outside = cut if cut >= 0 else len(self._buffer)
            self._between(bytes(self._buffer[:outside]))
            del self._buffer[:outside]
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
            raise InputError(f"{self.path}: declares entities (<!DOCTYPE), which MediaWiki dumps do not; refused")
        self._closed = self._closed or LAST in content

    def _limit_buffer(self) -> None:
        if not self._page_head and len(self._buffer) > self.max_page:
            self._page_head = bytes(self._buffer[:PAGE_HEAD])
        if self._page_head:
            del self._buffer[: -len(END)]
        self._searched = max(0, len(self._buffer) - len(END))

    def _classify(self, content: bytes) -> Page | None:
        """Count the page. Return it if it is an article to extract."""
        head = self._page_head or content[:PAGE_HEAD]
        self.counts["pages"] += 1
        title, identifier, namespace = TITLE.search(head), ID.search(head), NAMESPACE.search(head)
        if content.find(BEGIN, 1) >= 0 or not title or not identifier:
            raise InputError(f"{self.path}: page {self.counts['pages']:,} has no end, title or id; fetch it again")
        if content.count(b"<revision>") > 1:
            raise InputError(f"{self.path}: a dump of page histories; give the one named pages-articles")
        before_text = head.partition(b"<revision>")[0]
        if namespace[1] != b"0" if namespace else self._is_prefixed(title[1]):
            self.counts["other_namespace"] += 1
        elif b"<redirect" in before_text:
            self.counts["redirects"] += 1
        elif (model := MODEL.search(content)) and model[1] != b"wikitext":
            self.counts[f"of model {model[1].decode('utf-8', 'replace')}"] += 1  # css, Scribunto, json, ...
        else:
            page = Page(identifier[1].decode(), references.unescape(title[1].decode("utf-8", "replace")), content)
            if not self._page_head and len(content) <= self.max_page:
                self.counts["articles"] += 1
                return page
            self.reject(page.id, page.title, f"more than {self.max_page:,} bytes of XML")
        return None

    def _is_prefixed(self, title: bytes) -> bool:
        """Return whether a title begins with the name of a namespace: dumps of 2008 and before have no <ns>."""
        prefix, colon, _ = title.partition(b":")
        return bool(colon) and prefix.decode("utf-8", "replace").lower() in self.namespaces

    @functools.cached_property
    def namespaces(self) -> set[str]:
        """The lower-case names of the wiki's namespaces, except that for articles. Valid from the first page on."""
        return wikitext.names_of(self.head)

    def reject(self, identifier: str, title: str, reason: str) -> None:
        """Count an article that is not extracted, and record its name and the reason."""
        self.counts["rejected"] += 1
        self.rejected[f"{identifier} {title}"] = reason


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed; b"" if it is missing or damaged, which its reader reports.

    Raise InputError for a file of a known kind that cannot be read, such as a 7z archive.
    """
    head = b""
    with contextlib.suppress(InputError), files.open_bytes(path) as stream:
        head = stream.read(512)
    for begin, (kind, remedy) in REFUSED.items():
        if head.startswith(begin):
            raise InputError(f"{path}: {kind}; {remedy}")
    return head


def language(path: Path) -> str:
    """Return the language code at the beginning of a dump: `xml:lang`, else of its database; "" if it has neither.

    It is also "" for a damaged file, which `Reader` refuses when its hash has been checked.
    """
    head = b""
    with contextlib.suppress(InputError), files.open_text(path) as stream:
        source = typing.cast(IO[bytes], typing.cast(io.TextIOWrapper, stream).buffer)
        head = source.read(PAGE_HEAD).partition(BEGIN)[0]
    match = LANGUAGE.search(head) or DATABASE.search(head)
    code = match[1].decode().lower().replace("_", "-") if match else ""
    return "en" if code == "simple" else code


def parts_of(folder: Path) -> list[Path]:
    """Return the parts of a dump in a folder (`*-pages-articles*.xml-p1p41242.bz2`, ...), ordered by their pages.

    Raise InputError if two parts hold the same page, or if they are from several wikis.
    """
    ranges = []
    for path in folder.iterdir():
        if (match := RANGE.match(path.name)) and path.is_file():
            begin, end = (int(match[2]), int(match[3])) if match[2] else (0, 1 << 62)
            ranges.append((match[1], begin, end, path))
    ranges.sort()
    for (wiki, _, end, path), (other_wiki, begin, _, other) in itertools.pairwise(ranges):
        if wiki != other_wiki:
            raise InputError(f"{folder}: parts of two dumps, {path.name} and {other.name}; use a folder for each dump")
        if begin <= end:
            raise InputError(f"{folder}: {path.name} and {other.name} hold the same pages; remove one")
    return [path for _, _, _, path in ranges]


def missing_pages(dump_parts: list[Path]) -> list[str]:
    """Return the ranges of pages that no part has, between the parts and before the first."""
    ranges = [match for path in dump_parts if (match := RANGE.match(path.name)) and match[2]]
    ends = [0, *(int(match[3]) for match in ranges)]
    return [
        f"{end + 1}-{int(match[2]) - 1}" for end, match in zip(ends, ranges, strict=False) if int(match[2]) > end + 1
    ]
