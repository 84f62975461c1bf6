"""Fetch files over HTTP: interrupted downloads resume, and a file gets its name only after all checks.

The bytes are written to `NAME.part` and hashed on the way. `NAME.part.json` has the server's version of the file. When
all checks have passed, the file is flushed and renamed. A file with a wrong checksum is renamed to `NAME.bad`. A file
is fetched over one connection, and a client has at most two connections in all, as the Wikimedia servers require.
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
from data.fetch.connection import Cancelled, Connections, OutOfRange, RetryableError, RetryPolicy, Unavailable, host
from data.fetch.part_file import PartFile
from data.pipeline.progress import Progress

SPARE = 64 << 20  # bytes to leave free on the disk


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """A file to fetch, and how to check it."""

    name: str  # below the target folder; may contain "/"
    url: str  # where it is published
    mirrors: tuple[str, ...] = ()  # addresses to fetch it from instead, in the order to try
    size: int | None = None
    limit: int = 0  # maximum bytes, used if `size` is unknown
    estimate: int = 0  # bytes of disk needed in the end, if not `size`
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)  # algorithm -> hexadecimal digest
    trust: str = "first use"  # where the digests come from


@dataclasses.dataclass(frozen=True)
class FetchedFile:
    """A file that was fetched and checked."""

    bytes: int
    sha256: str


class Client:
    """Fetch files over at most `connections` connections at once."""

    def __init__(self, agent: str, connections: int = 2, policy: RetryPolicy | None = None) -> None:
        self.connections = connections
        self.progress = Progress("download", "files")
        self._http = Connections(agent, policy or RetryPolicy())
        self._lock = threading.Lock()

    def without_login(self, url: str) -> str:
        """Return an address without user name and password, and use these for requests to its server."""
        return self._http.without_login(url)

    def fetch_all(self, files: Sequence[File], folder: Path, done: Callable[[File, FetchedFile], None]) -> None:
        """Fetch `files` into `folder`. Call `done` for each file, one call at a time. Stop at the first failure.

        Raise Unavailable, IntegrityError (wrong checksum or size), ResourceError (disk full) or Stopped (Ctrl-C).
        """

        def fetch_one(file: File) -> None:
            if self._http.stop.is_set():
                raise Cancelled
            fetched = self.fetch(file, folder)
            with self._lock:
                self.progress.add(1, 0)
                done(file, fetched)

        pool = concurrent.futures.ThreadPoolExecutor(self.connections)
        try:
            for future in concurrent.futures.as_completed([pool.submit(fetch_one, file) for file in files]):
                future.result()
        except KeyboardInterrupt:
            raise Stopped(f"{folder}: stopped; repeat the same command to resume") from None
        finally:
            self._http.stop.set()
            pool.shutdown(cancel_futures=True)
            self._http.stop.clear()

    def fetch(self, file: File, folder: Path) -> FetchedFile:
        """Fetch one file into `folder`. A file that exists already is only checked. Raise as `fetch_all`."""
        part = PartFile(folder / file.name, {"sha256", *file.digests})
        if part.path.exists():
            part.hash_existing()
            return _accept(file, part)
        problem: Exception | None = None
        for url in file.mirrors or (file.url,):
            if problem:
                print(f"download: {problem}; trying {host(url)}", file=sys.stderr, flush=True)
            try:
                with part:
                    receive = functools.partial(self._receive, url, file, part)
                    self._http.retry(url, receive, lambda: part.size)
                return _accept(file, part)
            except (Unavailable, IntegrityError) as error:
                if not isinstance(problem, IntegrityError):  # wrong content is reported rather than a missing server
                    problem = error
        assert problem is not None
        raise problem

    def read(self, url: str, limit: int) -> bytes:
        """Return the content of a small page, without storing it. Raise Unavailable if it exceeds `limit` bytes."""

        def receive() -> bytes:
            content = bytearray()
            with self._http.open(url, {}) as response:
                for chunk in self._http.chunks(response, decode=True):
                    content += chunk
                    if len(content) > limit:
                        raise Unavailable(f"{url}: more than {limit:,} bytes; check the address")
            return bytes(content)

        return self._http.retry(url, receive, lambda: 0)

    def _receive(self, url: str, file: File, part: PartFile) -> None:
        """Append what one connection brings to the partial file. Raise RetryableError if it ends too early."""
        if part.size == file.size:
            return
        try:
            self._append_from(url, file, part)
        except OutOfRange:
            part.restart()
            raise

    def _append_from(self, url: str, file: File, part: PartFile) -> None:
        with self._http.open(url, part.range_headers(url, has_digest=bool(file.digests))) as response:
            total = _total(url, response, part)
            _check_size(url, file, total)
            if response.status_code == HTTPStatus.OK:  # the server sends the whole file
                part.restart()
            total = total if total is not None else file.size
            bound = total if total is not None else file.limit
            check_space(part.path.parent, bound - part.size)
            part.record_version(url, response.headers)
            for chunk in self._http.chunks(response, decode=False):
                if part.size + len(chunk) > bound:
                    part.restart()
                    raise IntegrityError(f"{url}: sends more than {bound:,} bytes; this is not the published file")
                _append(part, chunk, bound)
                with self._lock:
                    self.progress.add(0, len(chunk))
        if total is not None and part.size < total:
            raise RetryableError(f"the connection ended after {part.size:,} of {total:,} bytes")


def check_space(folder: Path, need: int) -> None:
    """Raise ResourceError unless `need` bytes, plus a reserve, are free where `folder` is or will be."""
    free = files.free_bytes(folder)
    if free < need + SPARE:
        raise ResourceError(f"{folder}: {need + SPARE:,} bytes are needed, {free:,} are free; make room, then repeat")


def _append(part: PartFile, chunk: bytes, bound: int) -> None:
    try:
        part.append(chunk)
    except OSError as error:
        if not files.is_full(error):
            raise
        reason = f"{files.free_bytes(part.path.parent):,} are free"
        if error.errno == errno.EFBIG:
            reason = "a limit on the size of files is reached"
        need = f"the disk is full: {bound - part.size:,} more bytes are needed"
        raise ResourceError(f"{part.pending}: {need}, {reason}; make room, then repeat") from error


def _accept(file: File, part: PartFile) -> FetchedFile:
    """Check the size and the hashes of a whole file. Rename it to its final name, or to `NAME.bad`."""
    actual = part.digests()
    wrong = next((name for name, digest in file.digests.items() if actual[name] != digest.lower()), None)
    if wrong is None and file.size in (None, part.size):
        part.finish()
        return FetchedFile(part.size, actual["sha256"])
    bad = part.reject()
    if wrong is None:
        raise IntegrityError(f"{bad}: {part.size:,} bytes, but {file.size:,} were published; download it again")
    remedy = "fetch it again"
    if file.trust == "first use":
        remedy = "the file has changed since; to accept the new one, remove the folder that recorded it and fetch again"
    raise IntegrityError(f"{bad}: {wrong} is {actual[wrong]}, not {file.digests[wrong]} ({file.trust}); {remedy}")


def _total(url: str, response: requests.Response, part: PartFile) -> int | None:
    """Return the size of the whole file from the headers, or None if the transfer is chunked."""
    headers = response.headers
    if response.status_code == HTTPStatus.PARTIAL_CONTENT:
        try:
            return part.total_size(headers)
        except ValueError as error:
            raise OutOfRange(str(error)) from error
    if headers.get("Content-Encoding", "identity") != "identity":
        raise Unavailable(f"{url}: the server compresses the file although this was not requested; use another source")
    length = headers.get("Content-Length", "")
    if length.isdecimal():
        return int(length)
    if "chunked" in headers.get("Transfer-Encoding", ""):
        return None
    raise Unavailable(f"{url}: the server does not give the file's size; use another source")


def _check_size(url: str, file: File, total: int | None) -> None:
    if total is not None and file.size is not None and total != file.size:
        raise IntegrityError(f"{url}: {total:,} bytes, but {file.size:,} were published; this is not the same file")
    if total is not None and file.size is None and total > file.limit:
        raise IntegrityError(f"{url}: {total:,} bytes, but at most {file.limit:,} are expected; check the address")
