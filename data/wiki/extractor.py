"""Extract the text of a dump's articles with wikiextractor, which runs as a separate program.

wikiextractor is never imported, because its licence is the AGPL. Pages are written to its standard input. It writes
articles to its standard output in the same order, and each page is kept here until its article has arrived. So the
known faults of wikiextractor 3.1 do no harm:

- Some pages keep it busy for hours (50,000 unclosed links) or exhaust the memory. It is killed; the page that causes
  this even when sent alone is rejected and recorded, and a new extractor continues with the next page.
- It drops every article whose title begins with the name of the template namespace ("Template engine"), and all the
  articles of a dump without <siteinfo>. It is given a namespace name that no title can begin with.
- A dropped article is detected and named.
"""

import contextlib
import importlib.util
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter, deque
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import IO, NamedTuple

from bert.core.errors import InputError, IntegrityError, UsageError
from data.wiki import dump, templates, wikitext

COMMAND = [sys.executable, "-m", "wikiextractor.WikiExtractor"]
OPTIONS = ["--json", "--no-templates", "--quiet", "--output", "-"]
NO_TITLE = b'<namespace key="10">|</namespace>'  # MediaWiki forbids "|" in titles
MAX_MEMORY = 2 << 30  # bytes of address space of each of its processes
MAX_SILENT = 3  # extractors in a row without any answer; then the pages are not the cause


class Article(NamedTuple):
    """The text of one page, from wikiextractor."""

    id: str
    title: str
    text: str
    wiki: str = ""
    """host of its address, such as en.wikipedia.org"""
    counts: Counter[str] | None = None
    """characters of the page in a dump, and of what was taken out of it before (data/wiki/wikitext.py)"""


def article(line: str | bytes) -> Article:
    """Parse one line of wikiextractor's JSON. Raise ValueError if it is anything else."""
    try:
        fields = json.loads(line)
        identifier, title, text = str(fields["id"]), fields["title"], fields["text"]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not an article ({type(error).__name__}: {error})") from error
    if not isinstance(title, str) or not isinstance(text, str):
        raise ValueError("not an article: its title or text is not a string")
    return Article(identifier, title, text, host(str(fields.get("url", ""))))


def host(url: str) -> str:
    """Return the host of an address; "" if it has none."""
    try:
        return urllib.parse.urlsplit(url).hostname or ""
    except ValueError:
        return ""


def extract(
    reader: dump.Reader,
    processes: int,
    page_seconds: float,
    lists: wikitext.Lists = "prose",
    table: templates.Table | None = None,
) -> Iterator[Article]:
    """Yield the articles of a dump in its order, except those that are recorded as rejected in `reader`.

    Raise what `reader` raises, InputError if wikiextractor fails, IntegrityError if it drops an article.
    """
    _check_installed()
    queue = _Queue(_prepared(reader, lists, table))
    silent = 0
    while queue.more():
        answered = 0
        with _extractor(reader.path, processes, page_seconds, reader, queue) as articles:
            for extracted in articles:
                counts = queue.answered(extracted, reader.path)
                answered += 1
                yield extracted._replace(counts=counts)
        silent = 0 if answered else silent
        page = queue.culprit()
        if page:
            silent += 1
            if silent == MAX_SILENT:
                reason = f"wikiextractor gave no answer for {page_seconds:g} s, {MAX_SILENT} times in a row"
                raise InputError(f"{reader.path}: {reason}, at page {page.id}; check it or give more --page_seconds")
            reader.counts["articles"] -= 1
            reader.reject(page.id, page.title, f"wikiextractor had no answer in {page_seconds:g} s")


class _Page(NamedTuple):
    """One article, prepared for wikiextractor."""

    id: str
    title: str
    content: bytes
    counts: Counter[str]


def _prepared(reader: dump.Reader, lists: wikitext.Lists, table: templates.Table | None) -> Iterator[_Page]:
    for page in reader.pages():
        yield _Page(page.id, page.title, *wikitext.prepared(page.content, reader.namespaces, lists, table))


class _Queue:
    """The pages of a dump that are still to be sent to an extractor, and those sent but not answered."""

    def __init__(self, source: Iterator[_Page]) -> None:
        self.waiting: deque[_Page] = deque()  # sent, not answered; few, because wikiextractor reads few in advance
        self._source = source
        self._suspects: deque[_Page] = deque()  # one of these blocked an extractor
        self._again: deque[_Page] = deque()  # sent but not processed; to be sent again before the source's next
        self._ended = False

    def __iter__(self) -> Iterator[_Page]:
        """Yield the pages for one extractor: a single suspect, or all remaining pages."""
        if self._suspects:
            yield self._sent(self._suspects.popleft())
            return
        while self._again:
            yield self._sent(self._again.popleft())
        for page in self._source:
            yield self._sent(page)
        self._ended = True

    def _sent(self, page: _Page) -> _Page:
        self.waiting.append(page)
        return page

    def more(self) -> bool:
        return bool(self._suspects or self._again) or not self._ended

    def culprit(self) -> _Page | None:
        """Return the page that blocked the ended extractor, if only one page was waiting.

        If several were waiting, return None and send each of them alone to an extractor. The first one need not be the
        culprit, because the answer to an earlier page may still be in the extractor's buffer.
        """
        if len(self.waiting) != 1:
            self._suspects.extend(self.waiting)
            self.waiting.clear()
            return None
        self._again.extendleft(reversed(self._suspects))
        self._suspects.clear()
        return self.waiting.popleft()

    def answered(self, extracted: Article, path: Path) -> Counter[str]:
        """Remove the answered page from `waiting` and return its counts.

        Raise IntegrityError if it is not the next one.
        """
        page = self.waiting.popleft() if self.waiting else None
        if page is None or page.id != extracted.id:
            expected = f"page {page.id} {page.title!r}" if page else "no page"
            raise IntegrityError(
                f"{path}: wikiextractor gave article {extracted.id} where {expected} was expected; report it"
            )
        return page.counts


@contextlib.contextmanager
def _extractor(
    path: Path, processes: int, page_seconds: float, reader: dump.Reader, queue: _Queue
) -> Iterator[Iterator[Article]]:
    """Run wikiextractor and yield an iterator over its articles, which ends when it exits or is killed as stalled."""
    command = [*COMMAND, *OPTIONS, "--processes", str(processes), "/dev/stdin"]
    # Make its standard output UTF-8 in any locale and unbuffered, so that each article arrives at once.
    environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"}
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(  # in a separate session, so that one signal reaches it and its workers
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        ) as process,
        _guard(process),
    ):
        if hasattr(resource, "prlimit"):
            resource.prlimit(process.pid, resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))  # its workers inherit it
        feeder = _Feeder(reader, queue, process)
        feeder.start()
        lines = _Lines(process, queue, page_seconds)
        yield map(article, lines)
        process.wait()
        feeder.join()
        if feeder.error:
            raise feeder.error
        if process.returncode and not lines.stalled:
            reason = f"exit code {process.returncode}: {_last_line(errors)}"
            raise InputError(f"{path}: wikiextractor failed with {reason}; check the dump")
        if queue.waiting and not lines.stalled:
            page = queue.waiting[0]
            raise IntegrityError(f"{path}: wikiextractor gave no article for page {page.id} {page.title!r}; report it")


def _check_installed() -> None:
    if importlib.util.find_spec("wikiextractor") is None:  # this does not import it
        raise UsageError("wikiextractor is not installed; pip install -r requirements.txt")
    version = metadata.version("wikiextractor")
    if tuple(map(int, version.split(".")[:2])) < (3, 1):
        raise UsageError(f"wikiextractor {version} runs code found in dumps; pip install -r requirements.txt")


class _Feeder(threading.Thread):
    """Send the pages of a queue to wikiextractor. On an exception, store it in `error` and kill the extractor."""

    def __init__(self, reader: dump.Reader, queue: _Queue, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self.reader, self.queue, self.process = reader, queue, process
        self.error: Exception | None = None

    def run(self) -> None:
        assert self.process.stdin is not None
        try:
            with self.process.stdin as pipe:
                for number, page in enumerate(self.queue):
                    if not number:
                        pipe.write(_with_siteinfo(self.reader.head))
                    pipe.write(page.content + b"\n")
                    pipe.flush()
                pipe.write(dump.LAST + b"\n")
        except BrokenPipeError:
            pass  # the extractor has ended; its exit code is checked later
        except Exception as error:
            self.error = error
            _kill(self.process)


def _with_siteinfo(head: bytes) -> bytes:
    """Return the beginning of a dump with a template namespace that no title can begin with.

    The true template namespace keeps its name under another key.
    """
    siteinfo, end, rest = head.replace(b"><", b">\n<").partition(b"</siteinfo>")  # it reads a tag on each line
    if not end:
        return b"<siteinfo>\n" + NO_TITLE + b"\n</siteinfo>\n" + head
    return siteinfo.replace(b'key="10"', b'key="-10"') + NO_TITLE + b"\n" + end + rest


class _Lines:
    """The lines that an extractor writes. Kill the extractor if it gives no answer for `page_seconds`."""

    def __init__(self, process: subprocess.Popen[bytes], queue: _Queue, page_seconds: float) -> None:
        self.process, self.queue, self.page_seconds = process, queue, page_seconds
        self.stalled = False

    def __iter__(self) -> Iterator[bytes]:
        assert self.process.stdout is not None
        output = self.process.stdout
        pending: list[bytes] = []
        last_progress = time.monotonic()
        while True:
            ready, _, _ = select.select([output], [], [], min(1.0, self.page_seconds))
            if ready or not self.queue.waiting:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > self.page_seconds and not self.stalled:
                self.stalled = True
                _kill(self.process)
            if not ready:
                continue
            block = os.read(output.fileno(), dump.CHUNK)
            if not block:
                return
            *complete, rest = block.split(b"\n")
            if complete:
                complete[0] = b"".join(pending) + complete[0]
                pending.clear()
                yield from complete
                last_progress = time.monotonic()  # the consumer of the lines may have been slow
            pending.append(rest)


def _guard(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Return a context manager that kills the extractor and its workers when it ends, or when this process dies.

    Otherwise they would wait for each other forever. The guard reads a pipe that only this process holds open.
    """
    command = ["sh", "-c", f"read end; kill -s KILL -- -{process.pid}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
    lines = errors.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")
