"""HTTP GET requests with retries: user agent, redirects, error statuses, Retry-After, broken and slow connections.

Failures that may pass raise `RetryableError`. `Connections.retry` repeats the request after a pause, and raises
`Unavailable` when the attempts are used up. `data.fetch.transfer` stores what is received.
"""

import contextlib
import dataclasses
import email.utils
import random
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeVar

import requests
import urllib3.exceptions

from bert.errors import InputError, UsageError

T = TypeVar("T")

CHUNK = 1 << 20
PROGRESS = 1 << 20  # bytes; a connection that broke after this many does not count as a failure in a row
RETRIED = {408, 425, 429, 500, 502, 503, 504}
REDIRECTS = {301, 302, 303, 307, 308}
UNREACHED = (
    urllib3.exceptions.NewConnectionError,  # unknown name, no route, connection refused
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """When to try again and when to give up. Times are in seconds."""

    connect: float = 5  # timeout of a connection attempt
    read: float = 30  # timeout of a read
    tries: int = 6  # attempts in a row that each bring less than a megabyte
    unreached_tries: int = 2  # attempts at a host that was never reached
    backoff: float = 1  # first pause; doubled at each failure, minus a random part of up to a half
    max_retry_after: float = 900  # give up if a server's Retry-After is longer
    window: float = 60  # interval over which the speed is measured
    min_speed: float = 4096  # bytes per second, on average over the window
    redirects: int = 5  # in a row


class Unavailable(InputError):
    """The file could not be fetched: no network, refused by the server, or all attempts failed."""


class NotFound(Unavailable):
    """The server has no such file."""


class RetryableError(Exception):
    """A failure that may pass. after: seconds to wait, from the server. unreached: there was no connection at all."""

    def __init__(self, reason: str, after: float | None = None, *, unreached: bool = False) -> None:
        super().__init__(reason)
        self.after, self.unreached = after, unreached


class OutOfRange(RetryableError):
    """The server cannot continue where our partial file ends."""


class Cancelled(Exception):
    """The request was abandoned because another file has failed."""


class _Session(requests.Session):
    """Do not follow redirects: requests would read their bodies, of any size, and fail on malformed addresses."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


class Connections:
    """The requests of one client. Each thread has its own connection. Setting `stop` ends all waiting."""

    def __init__(self, agent: str, policy: RetryPolicy) -> None:
        self.agent, self.policy, self.stop = agent, policy, threading.Event()
        self._threads = threading.local()
        self._reached: set[str] = set()  # hosts that have answered
        self._logins: dict[str, tuple[str, str]] = {}  # user name and password by server

    def without_login(self, url: str) -> str:
        """Return the address of a folder without user name and password, and use these for requests to its server.

        So nothing that prints or stores an address can contain a password. Raise UsageError, without the address, if
        it has a query or is malformed.
        """
        try:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or (parts.port or 1) < 1:
                raise ValueError
        except ValueError:
            raise UsageError("an address is not of the form https://SERVER/FOLDER; correct it") from None
        if parts.query or parts.fragment:
            raise UsageError(
                f"{parts.scheme}://{parts.hostname}{parts.path}?...: the address of a folder has no query; remove it"
            )
        if parts.username is None:
            return url
        login = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
        if any(ord(character) < ord(" ") for character in "".join(login)):
            raise UsageError(f"{parts.hostname}: user name or password has control characters; correct it")
        self._logins[_server(url)] = login
        return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def retry(self, url: str, action: Callable[[], T], gained: Callable[[], int]) -> T:
        """Call `action` until it succeeds. Raise Unavailable when the policy allows no further attempt.

        gained: returns the bytes received so far. An attempt that brought a megabyte resets the count of failures.
        """
        failures, before = 0, gained()
        while True:
            try:
                return action()
            except RetryableError as problem:
                failures = 1 if gained() - before >= PROGRESS else failures + 1
                before = gained()
                unreached = problem.unreached and host(url) not in self._reached
                if failures >= (self.policy.unreached_tries if unreached else self.policy.tries):
                    raise Unavailable(f"{url}: {problem}, {failures} times; try later") from problem
                if (problem.after or 0) > self.policy.max_retry_after:
                    raise Unavailable(
                        f"{url}: {problem} and asks to wait {problem.after:,.0f} s; try again after that"
                    ) from problem
                pause = self.policy.backoff * 2 ** (failures - 1) * random.uniform(0.5, 1.0)
                self.pause(max(pause, problem.after or 0))

    def pause(self, seconds: float) -> None:
        """Wait. Raise Cancelled as soon as another file fails."""
        if self.stop.wait(seconds):
            raise Cancelled

    @contextlib.contextmanager
    def open(self, url: str, headers: dict[str, str]) -> Iterator[requests.Response]:
        """Yield the response to a GET, status 200 or 206, after redirects. Raise RetryableError or Unavailable."""
        headers = {"User-Agent": self.agent, "Accept-Encoding": "identity", **headers}
        target = url
        for _ in range(self.policy.redirects + 1):
            with contextlib.closing(self._get(target, headers)) as response:
                if response.status_code not in REDIRECTS or "Location" not in response.headers:
                    _check_status(url, response)
                    yield response
                    return
                target = _redirect_target(target, response.headers["Location"])
        raise Unavailable(f"{url}: more than {self.policy.redirects} redirects; check the address")

    def _get(self, url: str, headers: dict[str, str]) -> requests.Response:
        if not hasattr(self._threads, "session"):
            self._threads.session = _Session()
        timeout = (self.policy.connect, self.policy.read)
        try:
            response: requests.Response = self._threads.session.get(
                url,
                headers=headers,
                auth=self._logins.get(_server(url)),
                stream=True,
                timeout=timeout,
                allow_redirects=False,
            )
        except requests.exceptions.SSLError as error:
            raise Unavailable(
                f"{shown(url)}: no secure connection ({_short(error)}); check this machine's clock"
            ) from error
        except requests.ConnectionError as error:
            reason = getattr(error.args[0], "reason", None) if error.args else None
            raise RetryableError(f"no connection ({_short(error)})", unreached=isinstance(reason, UNREACHED)) from error
        except requests.Timeout as error:
            raise RetryableError(f"no answer within {self.policy.read:g} s") from error
        except requests.RequestException as error:
            raise Unavailable(f"{shown(url)}: {_short(error)}; check the address") from error
        self._reached.add(host(url))
        return response

    def chunks(self, response: requests.Response, *, decode: bool) -> Iterator[bytes]:
        """Yield the body as it arrives. Raise RetryableError if the connection breaks or is slower than `min_speed`."""
        begin, size = time.monotonic(), 0
        while True:
            if self.stop.is_set():
                raise Cancelled
            try:
                chunk = response.raw.read1(CHUNK, decode_content=decode)  # read would wait for all of CHUNK
            except urllib3.exceptions.HTTPError as error:
                raise RetryableError(f"the connection broke ({_short(error)})") from error
            if not chunk:
                return
            yield chunk
            size += len(chunk)
            if (seconds := time.monotonic() - begin) >= self.policy.window:
                if size < seconds * self.policy.min_speed:
                    raise RetryableError(f"{size:,} bytes in {seconds:,.1f} s is too slow")
                begin, size = time.monotonic(), 0


def host(url: str) -> str:
    """Return the server's name, with the port if the address has one."""
    return url.split("://", 1)[-1].split("/", 1)[0].rpartition("@")[2]


def shown(url: str) -> str:
    """Return an address, such as that of a redirect, without what may be secret: a password, the query."""
    bare = re.sub(r"[?#].*", "?...", url, flags=re.DOTALL)
    return re.sub(r"(?<=//)[^/\s]*@", "", bare)


def _server(url: str) -> str:
    return f"{urllib.parse.urlsplit(url).scheme}://{host(url)}".lower()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait. A date is compared with the server's own clock."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return float(text)
    when, now = _date(text), _date(headers.get("Date", "")) or datetime.now(UTC)
    return max(0.0, (when - now).total_seconds()) if when else None


def _date(text: str) -> datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _redirect_target(url: str, location: str) -> str:
    """Return the address of a redirect. Raise Unavailable if it is malformed or leads from https to http."""
    try:
        target = urllib.parse.urljoin(url, location)
        if urllib.parse.urlsplit(target).scheme in ("https", urllib.parse.urlsplit(url).scheme):
            return target
    except ValueError:
        pass
    raise Unavailable(f"{url}: redirects to an unsafe address, {shown(location)[:200]!r}; report it to the publisher")


def _check_status(url: str, response: requests.Response) -> None:
    status = response.status_code
    said = f"the server answered {status} {''.join(filter(str.isprintable, response.reason or ''))}".strip()
    if status in RETRIED:
        raise RetryableError(said, retry_after(response.headers))
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        raise OutOfRange(said)
    if status == HTTPStatus.FORBIDDEN:
        raise Unavailable(f"{url}: {said}; give a contact address with --contact or BERT_CONTACT")
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        raise NotFound(f"{url}: {said}; the file may have moved")
    if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        raise Unavailable(f"{url}: {said}; try another source")


def _short(error: BaseException) -> str:
    """Return the innermost reason, without the objects that the outer exceptions quote."""
    inner: Any = error
    while isinstance(deeper := getattr(inner, "reason", None) or next(iter(inner.args), None), Exception):
        inner = deeper
    return shown(str(inner).split(": ", 1)[-1])[:120] or type(inner).__name__
