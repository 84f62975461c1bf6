"""A MediaWiki XML dump through wikiextractor, which is guarded and never imported (it is AGPL; this is not).

One pass: the dump is decompressed and checked here, fed to wikiextractor's standard input, and the articles are read
from its standard output. Its known faults (version 3.1) cannot bite:

- A dump cut inside a page ends with success: the end is checked, and the articles counted against the pages.
- Invalid UTF-8 makes it hang: such bytes stop here and are named. A stall of any other cause is cut by a timeout.
- It loses every article whose title begins with the template namespace's name ("Template engine"), and all articles
  of a dump without <siteinfo>: it is given a name that no title can begin with.
"""

import codecs
import contextlib
import importlib.util
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import typing
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import IO, NamedTuple

from bert import files
from bert.errors import InputError, IntegrityError, UsageError

COMMAND = [sys.executable, "-m", "wikiextractor.WikiExtractor"]
OPTIONS = ["--json", "--no-templates", "--quiet", "--output", "-"]
CHUNK = 1 << 20
TOKEN = re.compile(rb"<page>|<ns>(-?\d+)|<redirect[ />]|<revision>|</page>|</mediawiki>")
LONGEST_TOKEN = 32  # and each holds one "<", at its beginning
NO_TITLE = b'<namespace key="10">|</namespace>'  # MediaWiki forbids "|" in titles


class Article(NamedTuple):
    """What wikiextractor says of one page."""

    id: str
    title: str
    text: str


def article(line: str | bytes) -> Article:
    """Reads one line of wikiextractor's JSON."""
    fields = json.loads(line)
    return Article(str(fields["id"]), fields["title"], fields["text"])


class Survey:
    """Checks a dump's encoding and counts its pages while its bytes pass by. Raises InputError if it is not sound."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.pages = self.articles = self.redirects = self.other_namespace = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._carry = b""
        self._inside = self._closed = False

    def add(self, chunk: bytes) -> None:
        """Takes the next bytes, cut anywhere."""
        pending = len(self._decoder.getstate()[0])
        try:
            self._decoder.decode(chunk)
        except UnicodeDecodeError as error:
            at = self.size - pending + error.start
            raise InputError(f"{self.path}: not UTF-8 at byte {at:,} of the XML; fetch the dump again") from error
        self.size += len(chunk)
        content = self._carry + chunk
        cut = content.rfind(b"<", max(0, len(content) - LONGEST_TOKEN))  # a token may be cut in two here
        self._scan(content[:cut] if cut >= 0 else content)
        self._carry = content[cut:] if cut >= 0 else b""

    def finish(self) -> None:
        """The dump has ended: is it whole?"""
        self._scan(self._carry)
        if self._inside or not self._closed:
            where = "inside a page" if self._inside else "between pages"
            raise InputError(f"{self.path}: the file ends {where} (no </mediawiki>); fetch the dump again")

    def _scan(self, content: bytes) -> None:
        for token in TOKEN.finditer(content):
            word = token[0]
            if word == b"<page>":
                self._inside, self._namespace, self._redirect, self._revisions = True, b"", False, 0
            elif word == b"</page>":
                self._end_page()
            elif word == b"</mediawiki>":
                self._closed = True
            elif self._inside:
                self._see(token)

    def _see(self, token: re.Match[bytes]) -> None:
        if token[1]:
            self._namespace = token[1]
        elif token[0] == b"<revision>":
            self._revisions += 1
            if self._revisions > 1:
                raise InputError(f"{self.path}: a dump of page histories; give the one named pages-articles")
        else:
            self._redirect = True

    def _end_page(self) -> None:
        self._inside = False
        self.pages += 1
        if self._namespace != b"0":
            self.other_namespace += 1
        elif self._redirect:
            self.redirects += 1
        else:
            self.articles += 1


def extract(path: Path, processes: int, stall_seconds: float, counts: dict[str, int]) -> Iterator[Article]:
    """Yields the articles of a dump in its order and, at the end, adds to `counts` the pages that are none.

    Raises InputError for a dump that is cut, not UTF-8, not XML of MediaWiki, or on which wikiextractor fails or
    stalls; IntegrityError if it answers with fewer or more articles than the dump has.
    """
    _check_installed()
    command = [*COMMAND, *OPTIONS, "--processes", str(processes), "/dev/stdin"]
    environment = {**os.environ, "PYTHONUTF8": "1"}  # its standard output is UTF-8 in any locale
    pipe, found = subprocess.PIPE, 0
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(  # in a session of its own: one signal reaches it and its workers
            command, stdin=pipe, stdout=pipe, stderr=errors, env=environment, start_new_session=True
        ) as process,
        _guard(process),
    ):
        feeder = _Feeder(path, process)
        feeder.start()
        for line in _lines(process, feeder, stall_seconds):
            yield article(line)
            found += 1
        process.wait()
        feeder.join()
        if feeder.error:
            raise feeder.error
        if process.returncode:
            reason = f"exit code {process.returncode}: {_last_line(errors)}"
            raise InputError(f"{path}: wikiextractor failed with {reason}; check the dump")
    survey = feeder.survey
    if found != survey.articles:
        raise IntegrityError(f"{path}: wikiextractor gave {found} of the dump's {survey.articles} articles; report it")
    counts.update(pages=survey.pages, redirects=survey.redirects, other_namespace=survey.other_namespace)


def _check_installed() -> None:
    if importlib.util.find_spec("wikiextractor") is None:  # looks for it without importing it
        raise UsageError("wikiextractor is not installed; pip install -r requirements.txt")
    version = metadata.version("wikiextractor")
    if tuple(map(int, version.split(".")[:2])) < (3, 1):
        raise UsageError(f"wikiextractor {version} runs code found in dumps; pip install -r requirements.txt")


class _Feeder(threading.Thread):
    """Sends the checked bytes of a dump to wikiextractor; on a fault, keeps it in `error` and kills the extractor."""

    def __init__(self, path: Path, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self.path, self.process = path, process
        self.survey = Survey(path)
        self.error: Exception | None = None

    def run(self) -> None:
        assert self.process.stdin is not None
        try:
            with files.open_text(self.path) as stream, self.process.stdin as pipe:
                # Beneath the text lie the decompressed bytes.
                self._feed(typing.cast(IO[bytes], typing.cast(io.TextIOWrapper, stream).buffer), pipe)
        except BrokenPipeError:
            pass  # the extractor has ended: its exit code says why
        except Exception as error:
            self.error = error
            _kill(self.process)

    def _feed(self, stream: IO[bytes], pipe: IO[bytes]) -> None:
        chunk = stream.read(CHUNK)
        if b"<mediawiki" not in chunk[:65536]:
            raise InputError(f"{self.path}: not an XML dump of MediaWiki (it does not begin with <mediawiki>)")
        self.survey.add(chunk)
        pipe.write(_with_siteinfo(chunk))
        while chunk := stream.read(CHUNK):
            self.survey.add(chunk)
            pipe.write(chunk)
        self.survey.finish()


def _with_siteinfo(head: bytes) -> bytes:
    """The beginning of a dump with the template namespace renamed, its true name kept among the others."""
    siteinfo, end, rest = head.partition(b"</siteinfo>")
    if not end:
        return b"<siteinfo>\n" + NO_TITLE + b"\n</siteinfo>\n" + head
    return siteinfo.replace(b'key="10"', b'key="-10"') + NO_TITLE + b"\n" + end + rest


def _lines(process: subprocess.Popen[bytes], feeder: _Feeder, stall_seconds: float) -> Iterator[bytes]:
    assert process.stdout is not None
    pending: list[bytes] = []
    fed, moved, last = -1, time.monotonic(), b""
    while True:
        ready, _, _ = select.select([process.stdout], [], [], min(1.0, stall_seconds))
        if ready or feeder.survey.size != fed:
            fed, moved = feeder.survey.size, time.monotonic()
        elif time.monotonic() - moved > stall_seconds:
            after = f"after article {article(last).id}" if last else "at its beginning"
            raise InputError(f"{feeder.path}: wikiextractor stalled for {stall_seconds:g} s {after}; look at that page")
        if not ready:
            continue
        block = os.read(process.stdout.fileno(), CHUNK)
        if not block:
            return
        *whole, rest = block.split(b"\n")
        if whole:
            whole[0] = b"".join(pending) + whole[0]
            pending.clear()
            yield from whole
            last = whole[-1]
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
