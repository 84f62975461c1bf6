"""Articles of a dump to text through wikiextractor, run as a program and never imported (it is AGPL; this is not).

Pages go in at its standard input, articles come out of its standard output in the same order, and each is held here
until it is answered. So its known faults (version 3.1) cannot bite:

- A page can keep it busy for hours (50,000 unclosed links), or eat the memory: it is killed, the page that does so even
  alone is rejected by name, and another extractor goes on behind it.
- It loses every article whose title begins with the template namespace's name ("Template engine"), and all articles
  of a dump without <siteinfo>: it is given a name that no title can begin with.
- A lost article is noticed, and named.
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
from collections import deque
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import IO, NamedTuple

from bert.errors import InputError, IntegrityError, UsageError
from data.wiki import dump

COMMAND = [sys.executable, "-m", "wikiextractor.WikiExtractor"]
OPTIONS = ["--json", "--no-templates", "--quiet", "--output", "-"]
NO_TITLE = b'<namespace key="10">|</namespace>'  # MediaWiki forbids "|" in titles
MAX_MEMORY = 2 << 30  # bytes of address space of each of its processes
MAX_SILENT = 3  # extractors in a row that answer nothing: it is not the pages


class Article(NamedTuple):
    """What wikiextractor says of one page."""

    id: str
    title: str
    text: str


def article(line: str | bytes) -> Article:
    """Reads one line of wikiextractor's JSON."""
    fields = json.loads(line)
    return Article(str(fields["id"]), fields["title"], fields["text"])


def extract(reader: dump.Reader, processes: int, page_seconds: float) -> Iterator[Article]:
    """Yields the articles of a dump in its order, but for those that are counted as rejected in `reader`.

    Raises what `reader` raises, InputError if wikiextractor fails, IntegrityError if it loses an article.
    """
    _check_installed()
    queue = _Queue(reader.pages())
    silent = 0
    while queue.more():
        answered = 0
        with _extractor(reader.path, processes, page_seconds, reader, queue) as articles:
            for found in articles:
                queue.answered(found, reader.path)
                answered += 1
                yield found
        silent = 0 if answered else silent
        page = queue.culprit()
        if page:
            silent += 1
            if silent == MAX_SILENT:
                reason = f"wikiextractor answers nothing for {page_seconds:g} s, {MAX_SILENT} times in a row"
                raise InputError(f"{reader.path}: {reason}, at page {page.id}; look at it or give more --page_seconds")
            reader.counts["articles"] -= 1
            reader.reject(page, f"wikiextractor had no answer in {page_seconds:g} s")


class _Queue:
    """The pages of a dump on their way through extractors: to be sent, and sent but not answered."""

    def __init__(self, source: Iterator[dump.Page]) -> None:
        self.waiting: deque[dump.Page] = deque()  # a handful: wikiextractor takes no more before it answers
        self._source = source
        self._suspects: deque[dump.Page] = deque()  # one of them held an extractor up
        self._again: deque[dump.Page] = deque()  # sent in vain, and to be sent before the source's next
        self._ended = False

    def __iter__(self) -> Iterator[dump.Page]:
        """The pages for one extractor: a single suspect, or all that are left."""
        if self._suspects:
            yield self._sent(self._suspects.popleft())
            return
        while self._again:
            yield self._sent(self._again.popleft())
        for page in self._source:
            yield self._sent(page)
        self._ended = True

    def _sent(self, page: dump.Page) -> dump.Page:
        self.waiting.append(page)
        return page

    def more(self) -> bool:
        return bool(self._suspects or self._again) or not self._ended

    def culprit(self) -> dump.Page | None:
        """The page that held the ended extractor up, if one did and it was alone there; else each of them will be.

        It need not be the one owed longest: the answer to a page before it may lie in the extractor, unsent.
        """
        if len(self.waiting) != 1:
            self._suspects.extend(self.waiting)
            self.waiting.clear()
            return None
        self._again.extendleft(reversed(self._suspects))
        self._suspects.clear()
        return self.waiting.popleft()

    def answered(self, found: Article, path: Path) -> None:
        page = self.waiting.popleft() if self.waiting else None
        if page is None or page.id != found.id:
            expected = f"page {page.id} {page.title!r}" if page else "no page"
            raise IntegrityError(f"{path}: wikiextractor gave article {found.id} where {expected} was due; report it")


@contextlib.contextmanager
def _extractor(
    path: Path, processes: int, page_seconds: float, reader: dump.Reader, queue: _Queue
) -> Iterator[Iterator[Article]]:
    """A running wikiextractor; its articles end when it does, or when it was killed at the first page in the queue."""
    command = [*COMMAND, *OPTIONS, "--processes", str(processes), "/dev/stdin"]
    # Its standard output is UTF-8 in any locale, and each article leaves it at once.
    environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"}
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(  # in a session of its own: one signal reaches it and its workers
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
    if importlib.util.find_spec("wikiextractor") is None:  # looks for it without importing it
        raise UsageError("wikiextractor is not installed; pip install -r requirements.txt")
    version = metadata.version("wikiextractor")
    if tuple(map(int, version.split(".")[:2])) < (3, 1):
        raise UsageError(f"wikiextractor {version} runs code found in dumps; pip install -r requirements.txt")


class _Feeder(threading.Thread):
    """Sends the pages of a queue to wikiextractor; on a fault, keeps it in `error` and kills the extractor."""

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
            pass  # the extractor has ended: its exit code says why
        except Exception as error:
            self.error = error
            _kill(self.process)


def _with_siteinfo(head: bytes) -> bytes:
    """The beginning of a dump with the template namespace renamed, its true name kept among the others."""
    siteinfo, end, rest = head.partition(b"</siteinfo>")
    if not end:
        return b"<siteinfo>\n" + NO_TITLE + b"\n</siteinfo>\n" + head
    return siteinfo.replace(b'key="10"', b'key="-10"') + NO_TITLE + b"\n" + end + rest


class _Lines:
    """The lines that an extractor writes. Kills it when it owes an answer for too long."""

    def __init__(self, process: subprocess.Popen[bytes], queue: _Queue, page_seconds: float) -> None:
        self.process, self.queue, self.page_seconds = process, queue, page_seconds
        self.stalled = False

    def __iter__(self) -> Iterator[bytes]:
        assert self.process.stdout is not None
        output = self.process.stdout
        pending: list[bytes] = []
        moved = time.monotonic()
        while True:
            ready, _, _ = select.select([output], [], [], min(1.0, self.page_seconds))
            if ready or not self.queue.waiting:
                moved = time.monotonic()
            elif time.monotonic() - moved > self.page_seconds and not self.stalled:
                self.stalled = True
                _kill(self.process)
            if not ready:
                continue
            block = os.read(output.fileno(), dump.CHUNK)
            if not block:
                return
            *whole, rest = block.split(b"\n")
            if whole:
                whole[0] = b"".join(pending) + whole[0]
                pending.clear()
                yield from whole
                moved = time.monotonic()  # whoever takes the lines may be slow
            pending.append(rest)


def _guard(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """A context manager at whose end, or when this process dies in any way, the extractor is killed with its workers.

    Without it they would wait for each other forever. It waits for the end of a pipe that only this process holds.
    """
    command = ["sh", "-c", f"read end; kill -s KILL -- -{process.pid}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
    lines = errors.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
