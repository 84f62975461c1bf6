"""Read snapshots of Wikimedia Enterprise: JSON lines of articles with their wikitext, alone or in tar archives.

A snapshot may hold an article several times. As its documentation asks, the one with the highest `version.identifier`
counts (https://enterprise.wikimedia.com/docs/snapshot). The files are read twice: first for the ids and versions of all
articles, which take 40 bytes for each, then for the texts.
"""

import array
import contextlib
import io
import re
import tarfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import IO, Any, NamedTuple

from bert.core import files
from bert.core.errors import DamagedFile, InputError
from data.wiki import dump, extractor, wikitext

MEMBER = re.compile(r"\.(?:nd)?jsonl?$", re.I)
EXPECTED = "an article of Wikimedia Enterprise (identifier, name, version, article_body)"
REDIRECT = re.compile(r"\s*#[ \t]*[^\s\[\]:#*]+[ \t]*:?[ \t]*\[\[[^\[\]\n]+\]\]")  # in any language, "#REDIRECT [[X]]"
TAKEN = -1


class Record(NamedTuple):
    """One version of an article."""

    id: int
    version: int
    fields: dict[str, Any]


def language(paths: Sequence[Path]) -> str:
    """Return the code of the language of a snapshot's first article; "" if it has none, or is damaged."""
    with contextlib.suppress(InputError):
        for record in records(paths):
            code = _identifier(record.fields.get("in_language"))
            return "en" if code == "simple" else str(code or "")
    return ""


def records(paths: Sequence[Path]) -> Iterator[Record]:
    """Yield all records. Raise InputError, naming the file and the line, if one is damaged or no article."""
    for path in paths:
        for name, number, line in _lines(path):
            if not line.isspace():
                yield _record(line, f"{name}: line {number:,}")


def _lines(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the lines of a file, or of each member of an archive, behind its name and their numbers, from 1."""
    with files.open_bytes(path) as stream:
        is_archive = stream.read(512)[dump.TAR] == b"ustar"
    if not is_archive:
        with files.open_text(path) as text:
            for number, line in enumerate(files.read_lines(text, path), 1):
                yield str(path), number, line
        return
    members = 0
    try:
        with files.open_bytes(path) as stream:
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
                for member in archive:
                    name = f"{path}: {member.name}"
                    if member.isfile() and MEMBER.search(member.name) and (content := archive.extractfile(member)):
                        members += 1
                        with files.decoded(io.BufferedReader(_Content(content), files.CHUNK), name) as text:
                            for number, line in enumerate(files.read_lines(text, name), 1):
                                yield name, number, line
            while stream.read(files.CHUNK):  # up to the check sum of the compression
                pass
    except tarfile.TarError as error:
        raise DamagedFile(f"{path}: the archive is truncated or damaged ({error}); fetch it again") from error
    if not members:
        raise InputError(f"{path}: no .ndjson in the archive; unpack it, and give what is in it")


class _Content(io.RawIOBase):
    """The bytes of a member. What `tarfile` gives of a stream is not complete enough for the decoder of text."""

    def __init__(self, member: IO[bytes]) -> None:
        self._member = member

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into `buffer`, and return how many bytes; 0: the member has ended."""
        content = self._member.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


class _Member(tarfile.TarInfo):
    """A member of an archive. `tarfile` takes a bad header, or none, for the end of the archive; this does not."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Member":
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not any(buf):  # the end of an archive is blocks of zeros
                raise
            raise tarfile.ReadError(str(error)) from error


def _record(line: str, place: str) -> Record:
    try:
        fields = files.parse_json(line)
    except ValueError as error:
        raise InputError(f"{place} is not JSON ({error}); fetch it again") from error
    identifier = fields.get("identifier") if isinstance(fields, dict) else None
    if not isinstance(identifier, int) or not isinstance(fields.get("name"), str):
        raise InputError(f"{place} is not {EXPECTED}; read other JSON lines with python -m data.text")
    version = _identifier(fields.get("version"))
    if not isinstance(version, int) or not max(identifier, version) < 1 << 63:
        raise InputError(f"{place} has no version.identifier; give a snapshot with all fields")
    return Record(identifier, version, fields)


def _identifier(field: Any) -> Any:
    return field.get("identifier") if isinstance(field, dict) else None


def copies(paths: Sequence[Path]) -> dict[int, int]:
    """Return the highest versions of the articles that occur several times, by their ids."""
    import numpy as np  # it takes a while to load, and dumps need it not

    ids, versions = array.array("q"), array.array("q")
    for record in records(paths):
        ids.append(record.id)
        versions.append(record.version)
    all_ids = np.frombuffer(ids, np.int64)
    order = np.argsort(all_ids, kind="stable")
    same = all_ids[order][1:] == all_ids[order][:-1]
    highest: dict[int, int] = {}
    for place in np.flatnonzero(same):
        for at in order[place : place + 2]:
            highest[ids[at]] = max(versions[at], highest.get(ids[at], 0))
    return highest


class Reader(dump.Reader):
    """Yield the articles of a snapshot in its order, and count its other records, as for a dump."""

    def __init__(self, paths: Sequence[Path], max_page: int = dump.MAX_PAGE) -> None:
        super().__init__(paths[0], max_page)
        self.paths = paths
        self.counts["older_versions"] = 0
        self.namespaces = set(wikitext.NAMESPACES)  # more are added: the names for categories in the articles
        self._wiki: Any = None

    def pages(self) -> Iterator[dump.Page]:
        """Read the files twice, and yield the articles. Raise InputError if no record has wikitext."""
        highest = copies(self.paths)
        for record in records(self.paths):
            self.counts["pages"] += 1
            if highest.get(record.id, record.version) != record.version:
                self.counts["older_versions"] += 1
                continue
            if record.id in highest:
                highest[record.id] = TAKEN
            if page := self._article(record):
                self.counts["articles"] += 1
                yield page
        if not self.counts["articles"] and self.counts["without_wikitext"]:
            kind = "none of its records has article_body.wikitext (those of Structured Contents have none)"
            raise InputError(f"{self.path}: {kind}; give a snapshot of articles")

    def _article(self, record: Record) -> dump.Page | None:
        """Count the record. Return it as a page of a dump if it is an article to extract."""
        fields = record.fields
        self._check_wiki(fields)
        body = fields.get("article_body")
        text = body.get("wikitext") if isinstance(body, dict) else None
        if _identifier(fields.get("namespace")) not in (None, 0):
            self.counts["other_namespace"] += 1
        elif not isinstance(text, str):
            self.counts["without_wikitext"] += 1
        elif REDIRECT.match(text):
            self.counts["redirects"] += 1
        else:
            for category in fields.get("categories") or ():
                if isinstance(category, dict):
                    self.namespaces.add(str(category.get("name")).partition(":")[0].lower())
            title = fields["name"].replace("\n", " ")
            content = (
                f"<page>\n<title>{escape(title, quote=False)}</title>\n<ns>0</ns>\n<id>{record.id}</id>\n<revision>\n"
                f"<id>{record.version}</id>\n<text>{escape(text, quote=False)}</text>\n</revision>\n</page>"
            ).encode("utf-8", "replace")
            if len(content) <= self.max_page:
                return dump.Page(str(record.id), title, content)
            self.reject(str(record.id), title, f"more than {self.max_page:,} bytes of wikitext")
        return None

    def _check_wiki(self, fields: dict[str, Any]) -> None:
        """Take the address of the wiki from the first article. Raise InputError for an article of another wiki."""
        wiki = _identifier(fields.get("is_part_of"))
        if not self.head:
            host = extractor.host(str(fields.get("url", "")))
            base = f"<base>https://{host}/wiki/X</base>\n" if host else ""
            self.head, self._wiki = f"<mediawiki>\n<siteinfo>\n{base}</siteinfo>\n".encode(), wiki
        elif wiki != self._wiki:
            wikis = " and ".join(str(one or "one that is_part_of does not name") for one in (self._wiki, wiki))
            raise InputError(f"{self.path}: articles of two wikis, {wikis}; give those of one")
