"""Fetch files over HTTP: interrupted downloads resume, and a file gets its name only after all checks.

The bytes are written to `NAME.part`. `NAME.part.json` has the server's version of the file. When all checks have
passed, the file is flushed and renamed. A file with a wrong checksum is renamed to `NAME.bad`. A file is fetched over
one connection, and a client has at most two connections in all, as the Wikimedia servers require.
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

import requests

from bert.core import files
from bert.core.errors import IntegrityError, ResourceError, Stopped
from bert.core.progress import MB, Progress
from data.fetch.connection import Cancelled, Connections, OutOfRange, RetryableError, RetryPolicy, Unavailable, host
from data.fetch.part_file import PartFile

SPARE = 64 << 20  # bytes to leave free on the disk
PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:(?:<!--.*?-->|<\?xml.*?\?>)\s*)*<(?:!doctype html|html|head|body|meta|script)\b",
    re.IGNORECASE | re.DOTALL,
)


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
        self.progress = Progress("download", MB)
        self._http = Connections(agent, policy or RetryPolicy())
        self._lock = threading.Lock()

    def fetch_all(self, files: Sequence[File], folder: Path, done: Callable[[File, FetchedFile], None]) -> None:
        """Fetch `files` into `folder`. Call `done` for each file, one call at a time. Stop at the first failure.

        Raise Unavailable, IntegrityError (wrong checksum or size), ResourceError (disk full) or Stopped (Ctrl-C).
        """

        def fetch_one(file: File) -> None:
            if self._http.stop.is_set():
                raise Cancelled
            fetched = self.fetch(file, folder)
            with self._lock:
                done(file, fetched)

        sizes = [file.size or file.estimate for file in files]
        here = [max(_size(folder / file.name), _size(PartFile(folder / file.name).path)) for file in files]
        self.progress = Progress("download", MB, sum(sizes) if all(sizes) else None, done=sum(here))
        pool = concurrent.futures.ThreadPoolExecutor(self.connections)
        try:
            with self.progress as progress:
                futures = [pool.submit(fetch_one, file) for file in files]
                for number, future in enumerate(concurrent.futures.as_completed(futures), 1):
                    future.result()
                    progress.remark = f"{number} of {len(files)} files"
        except KeyboardInterrupt:
            raise Stopped(f"stopped; the same command resumes the download to {folder}") from None
        finally:
            self._http.stop.set()
            pool.shutdown(cancel_futures=True)
            self._http.stop.clear()

    def fetch(self, file: File, folder: Path) -> FetchedFile:
        """Fetch one file into `folder`. A file that exists already is only checked. Raise as `fetch_all`."""
        path = folder / file.name
        if path.exists():
            return self._accept(file, path, path)
        problem: Exception | None = None
        for url in file.mirrors or (file.url,):
            if problem:
                print(f"download: {problem}; trying {host(url)}", file=sys.stderr, flush=True)
            try:
                with PartFile(path) as part:
                    self._http.retry(url, functools.partial(self._receive, url, file, part), lambda: part.size)
                return self._accept(file, path, part.path)
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
                        raise Unavailable(f"more than {limit:,} bytes; check the address")
            return bytes(content)

        return self._http.retry(url, receive)

    def _receive(self, url: str, file: File, part: PartFile) -> None:
        """Append what one connection brings to the partial file. Raise RetryableError if it ends too early."""
        if part.size == file.size:
            return
        try:
            with self._http.open(url, part.range_headers(url, has_digest=bool(file.digests))) as response:
                total = _total(response, part, file)
                _check_size(file, total)
                if response.status_code == HTTPStatus.OK:  # the server sends the whole file
                    self._restart(part)
                total = file.size if total is None else total
                bound = file.limit if total is None else total
                check_space(part.path.parent, bound - part.size)
                part.record_version(url, response.headers)
                for chunk in self._http.chunks(response, decode=False):
                    if part.size + len(chunk) > bound:
                        self._restart(part)
                        raise IntegrityError(f"sends more than {bound:,} bytes; this is not the published file")
                    part.append(chunk, bound)
                    with self._lock:
                        self.progress.add(len(chunk))
        except OutOfRange:
            self._restart(part)
            raise
        if total is not None and part.size < total:
            raise RetryableError(f"the connection ended after {part.size:,} of {total:,} bytes")

    def _restart(self, part: PartFile) -> None:
        with self._lock:
            self.progress.add(-part.size)
        part.restart()

    def _accept(self, file: File, path: Path, candidate: Path) -> FetchedFile:
        """Check a whole file. Rename it to `path`, its final name, or to `NAME.bad`."""
        size, actual = candidate.stat().st_size, self._digests(candidate, {"sha256", *file.digests})
        if problem := _problem(file, size, actual, candidate):
            bad = path.with_name(f"{path.name}.bad")
            os.replace(candidate, bad)
            if candidate != path:  # else the part belongs to another copy
                PartFile(path).discard()
            raise IntegrityError(f"{bad}: {problem}")
        if candidate != path:
            files.flush(candidate)
            os.replace(candidate, path)
        PartFile(path).discard()
        return FetchedFile(size, actual["sha256"])

    def _digests(self, path: Path, algorithms: set[str]) -> dict[str, str]:
        hashes = {name: hashlib.new(name) for name in algorithms}
        with files.open_regular(path) as stream:
            while chunk := stream.read(files.CHUNK):
                if self._http.stop.is_set():
                    raise Cancelled
                for digest in hashes.values():
                    digest.update(chunk)
        return {name: digest.hexdigest() for name, digest in hashes.items()}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def check_space(folder: Path, need: int) -> None:
    """Raise ResourceError unless `need` bytes, plus a reserve, are free where `folder` is or will be."""
    free = files.free_bytes(folder)
    if free < need + SPARE:
        raise ResourceError(f"{folder}: {need + SPARE:,} bytes are needed, {free:,} are free; make room, then repeat")


def _problem(file: File, size: int, actual: Mapping[str, str], candidate: Path) -> str:
    """Return what is wrong with a whole file, and the remedy; or nothing."""
    for name, digest in file.digests.items():
        if actual[name] != digest.lower():
            remedy = "fetch it again"
            if file.trust == "first use":
                remedy = "the file has changed since; to accept the new one, remove the folder that recorded it and "
                remedy += "fetch again"
            return f"{name} is {actual[name]}, not {digest} ({file.trust}); {remedy}"
    if file.size not in (None, size):
        return f"{size:,} bytes, but {file.size:,} were published; download it again"
    if not size:
        return "the server sent nothing; fetch it again later, or check the address"
    if not file.digests and not file.url.endswith("/"):  # at the end of a folder's address a page is expected
        with open(candidate, "rb") as stream:
            if PAGE.match(stream.read(1024)):
                return "an HTML page and not the file; log in to the network or check the address, then fetch it again"
    return ""


def _total(response: requests.Response, part: PartFile, file: File) -> int | None:
    """Return the size of the whole file from the headers, or None if the transfer is chunked.

    Raise Unavailable if the server compresses the file, or does not give its size. Apache's `AddEncoding x-gzip .gz`
    declares an encoding for a file that is compressed itself; it is accepted if digests can check the file.
    """
    headers = response.headers
    plain = {"", "identity", "gzip", "x-gzip"} if file.digests and file.name.endswith(".gz") else {"", "identity"}
    if headers.get("Content-Encoding", "").strip().lower() not in plain:
        raise Unavailable("the server compresses the file although this was not requested; use another source")
    if response.status_code == HTTPStatus.PARTIAL_CONTENT:
        return part.total_size(headers)
    length: int | None = response.raw.length_remaining
    if length is None and "chunked" not in headers.get("Transfer-Encoding", ""):
        raise Unavailable("the server does not give the file's size; use another source")
    return length


def _check_size(file: File, total: int | None) -> None:
    if total is not None and file.size is not None and total != file.size:
        raise IntegrityError(f"{total:,} bytes, but {file.size:,} were published; this is not the same file")
    if total is not None and file.size is None and total > file.limit:
        raise IntegrityError(f"{total:,} bytes, but at most {file.limit:,} are expected; check the address")
