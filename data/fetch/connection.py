"""One GET request with patience: who we are, redirects, refusals, Retry-After, broken and slow connections.

What is worth another try raises `Transient`, which `Connections.patiently` turns into tries, pauses and in the end an
`Unavailable`. `data.fetch.transfer` makes files of what arrives.
"""

import contextlib
import dataclasses
import email.utils
import random
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeVar

import requests
import urllib3.exceptions

from bert.errors import InputError

T = TypeVar("T")

CHUNK = 1 << 20
PROGRESS = 1 << 20  # bytes after which a connection that broke counts as a good one
RETRIED = {408, 425, 429, 500, 502, 503, 504}
REDIRECTS = {301, 302, 303, 307, 308}
UNMET = (
    urllib3.exceptions.NewConnectionError,  # no such name, no route, nobody listening
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
    """When to try again and when to give up; seconds, except where it says otherwise."""

    connect: float = 5
    read: float = 30
    tries: int = 6  # in a row without a megabyte gained
    first_tries: int = 2  # of a host that was never reached
    backoff: float = 1  # doubled at each failure, less up to a half by chance
    longest: float = 900  # that a server's Retry-After is obeyed
    window: float = 60
    slowest: float = 4096  # bytes a second, on average over the window
    redirects: int = 5  # in a row


class Unavailable(InputError):
    """No server gives the file: offline, refused, or given up after the last try."""


class Missing(Unavailable):
    """The server answers, and has no such file."""


class Transient(Exception):
    """Worth another try, after `after` seconds if the server said so; `unmet` if no connection came about."""

    def __init__(self, reason: str, after: float | None = None, *, unmet: bool = False) -> None:
        super().__init__(reason)
        self.after, self.unmet = after, unmet


class OutOfRange(Transient):
    """The server's file cannot go on where our part ends."""


class Cancelled(Exception):
    """Another file has failed."""


class _Session(requests.Session):
    """Leaves redirects to us: it would first read their bodies, however large, and stumble over what is no address."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


class Connections:
    """Requests of one client, each thread of which keeps its own connection. `stop` ends what they wait for."""

    def __init__(self, agent: str, patience: Patience) -> None:
        self.agent, self.patience, self.stop = agent, patience, threading.Event()
        self._threads = threading.local()
        self._met: set[str] = set()  # hosts that answered

    def patiently(self, url: str, action: Callable[[], T], gained: Callable[[], int]) -> T:
        """Calls `action` until it succeeds or patience ends; `gained` is the bytes that earlier calls brought."""
        failures, had = 0, gained()
        while True:
            try:
                return action()
            except Transient as problem:
                failures = 1 if gained() - had >= PROGRESS else failures + 1
                had = gained()
                unmet = problem.unmet and host(url) not in self._met
                if failures >= (self.patience.first_tries if unmet else self.patience.tries):
                    raise Unavailable(f"{url}: {problem}, {failures} times; try later") from problem
                if (problem.after or 0) > self.patience.longest:
                    raise Unavailable(f"{url}: {problem}, come back in {problem.after:,.0f} s; try then") from problem
                pause = self.patience.backoff * 2 ** (failures - 1) * random.uniform(0.5, 1.0)
                self.pause(max(pause, problem.after or 0))

    def pause(self, seconds: float) -> None:
        """Waits, but not beyond the failure of another file."""
        if self.stop.wait(seconds):
            raise Cancelled

    @contextlib.contextmanager
    def open(self, url: str, headers: dict[str, str]) -> Iterator[requests.Response]:
        """The response to a GET, redirects followed, its status 200 or 206. Raises Transient or Unavailable."""
        headers = {"User-Agent": self.agent, "Accept-Encoding": "identity", **headers}
        there = url
        for _ in range(self.patience.redirects + 1):
            with contextlib.closing(self._get(there, headers)) as response:
                if response.status_code not in REDIRECTS or "Location" not in response.headers:
                    _check_status(url, response)
                    yield response
                    return
                there = _next(there, response.headers["Location"])
        raise Unavailable(f"{url}: more than {self.patience.redirects} redirects; is the address right?")

    def _get(self, url: str, headers: dict[str, str]) -> requests.Response:
        if not hasattr(self._threads, "session"):
            self._threads.session = _Session()
        timeout = (self.patience.connect, self.patience.read)
        try:
            response: requests.Response = self._threads.session.get(
                url, headers=headers, stream=True, timeout=timeout, allow_redirects=False
            )
        except requests.exceptions.SSLError as error:
            raise Unavailable(f"{url}: no secure connection ({_short(error)}); is the clock right?") from error
        except requests.ConnectionError as error:
            reason = getattr(error.args[0], "reason", None) if error.args else None
            raise Transient(f"no connection ({_short(error)})", unmet=isinstance(reason, UNMET)) from error
        except requests.Timeout as error:
            raise Transient(f"no answer within {self.patience.read:g} s") from error
        except requests.RequestException as error:
            raise Unavailable(f"{url}: {_short(error)}; is the address right?") from error
        self._met.add(host(url))
        return response

    def chunks(self, response: requests.Response, *, decode: bool) -> Iterator[bytes]:
        """What arrives, as it arrives. Raises Transient when it stops, or comes slower than `slowest`."""
        begin, size = time.monotonic(), 0
        while True:
            if self.stop.is_set():
                raise Cancelled
            try:
                chunk = response.raw.read1(CHUNK, decode_content=decode)  # does not wait for all of CHUNK, as read does
            except urllib3.exceptions.HTTPError as error:
                raise Transient(f"the connection broke ({_short(error)})") from error
            if not chunk:
                return
            yield chunk
            size += len(chunk)
            if (seconds := time.monotonic() - begin) >= self.patience.window:
                if size < seconds * self.patience.slowest:
                    raise Transient(f"{size:,} bytes in {seconds:,.1f} s are too slow")
                begin, size = time.monotonic(), 0


def host(url: str) -> str:
    """Name, and port if given, of the server."""
    return url.split("://", 1)[-1].split("/", 1)[0]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait, given by it as a number or as a date of its own clock."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return float(text)
    when, now = _date(text), _date(headers.get("Date", "")) or datetime.now(UTC)
    return max(0.0, (when - now).total_seconds()) if when else None


def _date(text: str) -> datetime | None:
    try:
        found = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _next(url: str, location: str) -> str:
    """Where a redirect leads; Unavailable if it leads from a secure connection to an open one, or nowhere."""
    try:
        there = urllib.parse.urljoin(url, location)
        if urllib.parse.urlsplit(there).scheme in ("https", urllib.parse.urlsplit(url).scheme):
            return there
    except ValueError:
        pass
    raise Unavailable(f"{url}: sends us to {location[:200]!r}, an unsafe address; report it to the publisher")


def _check_status(url: str, response: requests.Response) -> None:
    status = response.status_code
    said = f"the server said {status} {''.join(filter(str.isprintable, response.reason or ''))}".strip()
    if status in RETRIED:
        raise Transient(said, retry_after(response.headers))
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        raise OutOfRange(said)
    if status == HTTPStatus.FORBIDDEN:
        raise Unavailable(f"{url}: {said}; say who you are with --contact or BERT_CONTACT")
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        raise Missing(f"{url}: {said}; it may have moved, or be kept elsewhere")
    if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        raise Unavailable(f"{url}: {said}; try another source")


def _short(error: BaseException) -> str:
    """The innermost reason, without the objects that the outer ones quote."""
    inner: Any = error
    while isinstance(deeper := getattr(inner, "reason", None) or next(iter(inner.args), None), Exception):
        inner = deeper
    return str(inner).split(": ", 1)[-1][:120] or type(inner).__name__
