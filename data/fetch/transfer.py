"""Files over HTTP, whole and right or not at all: resumed, checked, and polite to the server.

The bytes gather in `NAME.part` (and, in `NAME.part.json`, what the server calls this version of the file), are hashed
on the way, and get their name after every check and a flush. What fails its checksum is renamed `NAME.bad`. A file is
never fetched over several connections; a client has two at most in all, as the Wikimedia servers demand.
"""

import concurrent.futures
import dataclasses
import errno
import functools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

import requests

from bert.errors import IntegrityError, ResourceError, Stopped
from bert.storage import files
from data.fetch.connection import Cancelled, Connections, OutOfRange, Patience, Transient, Unavailable, host
from data.fetch.part_file import Part
from data.pipeline.progress import Progress

SPARE = 64 << 20  # bytes of the disk to leave free


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """What to fetch and how to know it: `digests` are hexadecimal by algorithm, `trust` says whose word they are."""

    name: str  # below the target folder; may hold "/"
    url: str  # where it is published
    mirrors: tuple[str, ...] = ()  # addresses to take it from instead, in the order to try
    size: int | None = None
    limit: int = 0  # bytes; more is refused where `size` is not known
    estimate: int = 0  # bytes of disk that it takes in the end, where `size` does not say so
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    trust: str = "first use"


@dataclasses.dataclass(frozen=True)
class Got:
    """A file that is there under its name."""

    bytes: int
    sha256: str


class Client:
    """Fetches files over at most `connections` connections at once."""

    def __init__(self, agent: str, connections: int = 2, patience: Patience | None = None) -> None:
        self.connections = connections
        self.progress = Progress("download", "files")
        self._http = Connections(agent, patience or Patience())
        self._lock = threading.Lock()

    def fetch_all(self, files: Sequence[File], folder: Path, done: Callable[[File, Got], None]) -> None:
        """Fetches `files` into `folder`, calling `done` once for each, one call at a time; ends at the first failure.

        Raises Unavailable, IntegrityError (a checksum), ResourceError (the disk), Stopped (Ctrl-C).
        """

        def one(file: File) -> None:
            if self._http.stop.is_set():
                raise Cancelled
            got = self.fetch(file, folder)
            with self._lock:
                self.progress.add(1, 0)
                done(file, got)

        pool = concurrent.futures.ThreadPoolExecutor(self.connections)
        try:
            for task in concurrent.futures.as_completed([pool.submit(one, file) for file in files]):
                task.result()
        except KeyboardInterrupt:
            raise Stopped(f"{folder}: stopped; the same command goes on from here") from None
        finally:
            self._http.stop.set()
            pool.shutdown(cancel_futures=True)
            self._http.stop.clear()

    def fetch(self, file: File, folder: Path) -> Got:
        """Puts one file into `folder`; one that is there already is only checked. Raises as `fetch_all`."""
        part = Part(folder / file.name, {"sha256", *file.digests})
        if part.path.exists():
            part.adopt()
            return _accept(file, part)
        problem: Exception | None = None
        for url in file.mirrors or (file.url,):
            if problem:
                print(f"download: {problem}; trying {host(url)}", file=sys.stderr, flush=True)
            try:
                with part:
                    receive = functools.partial(self._receive, url, file, part)
                    self._http.patiently(url, receive, lambda: part.size)
                return _accept(file, part)
            except (Unavailable, IntegrityError) as error:
                if not isinstance(problem, IntegrityError):  # outweighs a source that does not answer
                    problem = error
        assert problem is not None
        raise problem

    def read(self, url: str, limit: int) -> bytes:
        """The content of a small page, which is not stored. Raises Unavailable, also where it exceeds `limit` bytes."""

        def receive() -> bytes:
            content = bytearray()
            with self._http.open(url, {}) as response:
                for chunk in self._http.chunks(response, decode=True):
                    content += chunk
                    if len(content) > limit:
                        raise Unavailable(f"{url}: more than {limit:,} bytes; is the address right?")
            return bytes(content)

        return self._http.patiently(url, receive, lambda: 0)

    def _receive(self, url: str, file: File, part: Part) -> None:
        """One connection's worth of a file, appended to its part. Raises Transient when it ended too early."""
        if part.size == file.size:
            return
        try:
            self._append_from(url, file, part)
        except OutOfRange:
            part.restart()
            raise

    def _append_from(self, url: str, file: File, part: Part) -> None:
        with self._http.open(url, part.range_headers(url, judged=bool(file.digests))) as response:
            total = _total(url, response, part)
            _check_size(url, file, total)
            if response.status_code == HTTPStatus.OK:  # from the beginning, asked for or not
                part.restart()
            total = total if total is not None else file.size
            bound = total if total is not None else file.limit
            check_space(part.path.parent, bound - part.size)
            part.begin(url, response.headers)
            for chunk in self._http.chunks(response, decode=False):
                if part.size + len(chunk) > bound:
                    part.restart()
                    raise IntegrityError(f"{url}: sends more than {bound:,} bytes; another file lies there")
                _append(part, chunk, bound)
                with self._lock:
                    self.progress.add(0, len(chunk))
        if total is not None and part.size < total:
            raise Transient(f"the connection ended after {part.size:,} of {total:,} bytes")


def check_space(folder: Path, need: int) -> None:
    """Raises ResourceError unless `need` bytes, and a little, are free where `folder` is or will be."""
    free = files.free_bytes(folder)
    if free < need + SPARE:
        raise ResourceError(f"{folder}: {need + SPARE:,} bytes are needed, {free:,} are free; make room, then repeat")


def _append(part: Part, chunk: bytes, bound: int) -> None:
    try:
        part.append(chunk)
    except OSError as error:
        if not files.is_full(error):
            raise
        have = f"{files.free_bytes(part.path.parent):,} are free"
        if error.errno == errno.EFBIG:
            have = "a limit on the size of files is reached"
        need = f"the disk is full: {bound - part.size:,} more bytes are needed"
        raise ResourceError(f"{part.pending}: {need}, {have}; make room, then repeat") from error


def _accept(file: File, part: Part) -> Got:
    """Judges a whole file by its hashes: it gets its final name, or `.bad`."""
    found = part.digests()
    wrong = next((name for name, digest in file.digests.items() if found[name] != digest.lower()), None)
    if wrong is None and file.size in (None, part.size):
        part.finish()
        return Got(part.size, found["sha256"])
    bad = part.reject()
    if wrong is None:
        raise IntegrityError(f"{bad}: {part.size:,} bytes, but {file.size:,} were published; fetch it again")
    remedy = "fetch it again"
    if file.trust == "first use":
        remedy = "it has changed since then; to accept that, remove the folder that recorded it and fetch anew"
    raise IntegrityError(f"{bad}: {wrong} is {found[wrong]}, not {file.digests[wrong]} ({file.trust}); {remedy}")


def _total(url: str, response: requests.Response, part: Part) -> int | None:
    """Bytes of the whole file by the headers; None where the body's end is marked instead."""
    headers = response.headers
    if response.status_code == HTTPStatus.PARTIAL_CONTENT:
        try:
            return part.resumed(headers)
        except ValueError as error:
            raise OutOfRange(str(error)) from error
    if headers.get("Content-Encoding", "identity") != "identity":
        raise Unavailable(f"{url}: the server compresses what it sends, unasked; take another source")
    length = headers.get("Content-Length", "")
    if length.isdecimal():
        return int(length)
    if "chunked" in headers.get("Transfer-Encoding", ""):
        return None
    raise Unavailable(f"{url}: the server does not say how long the file is; take another source")


def _check_size(url: str, file: File, total: int | None) -> None:
    if total is not None and file.size is not None and total != file.size:
        raise IntegrityError(f"{url}: {total:,} bytes, but {file.size:,} were published; another file lies there")
    if total is not None and file.size is None and total > file.limit:
        raise IntegrityError(f"{url}: {total:,} bytes, but at most {file.limit:,} make sense; another file lies there")
