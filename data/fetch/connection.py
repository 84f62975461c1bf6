"""HTTP GET requests with `requests`: retries, redirects, logins, slow connections, and errors in one line.

`urllib3.util.Retry` counts the attempts and gives the pauses. It is asked here and not by urllib3's own loop, because
that loop cannot continue a file that broke off, reads the body of an error to its end, of any size, and cannot be
stopped while it waits. Proxies and `.netrc` are those of `requests`. `data.fetch.transfer` stores what is received.
"""

import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
import urllib3.exceptions
from urllib3.util import Retry

from bert.core.errors import InputError, IntegrityError, UsageError

T = TypeVar("T")

CHUNK = 1 << 20
PROGRESS = 1 << 20  # bytes; a connection that broke after this many does not count as a failure in a row
RETRIED = {408, 425, 429, 500, 502, 503, 504}
UNREACHED = 1  # retries of a server that has never answered
REDIRECTS = 5  # in a row
RETRIES = Retry(5, backoff_factor=1, backoff_jitter=1, retry_after_max=10**9)  # pauses in seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """When to try again and when to give up. Times are in seconds."""

    connect: float = 5  # timeout of a connection attempt
    read: float = 30  # timeout of a read
    retries: Retry = RETRIES  # in a row that each bring less than a megabyte
    longest_wait: float = 900  # give up if a server asks to wait longer
    window: float = 60  # interval over which the speed is measured
    min_speed: float = 4096  # bytes per second, on average over the window


class Unavailable(InputError):
    """The file could not be fetched: no network, refused by the server, or all attempts failed."""


class NotFound(Unavailable):
    """The server has no such file."""


class RetryableError(Exception):
    """A failure that may pass. after: seconds that the server asks to wait."""

    def __init__(self, reason: str, after: float = 0) -> None:
        super().__init__(reason)
        self.after = after


class OutOfRange(RetryableError):
    """The server cannot continue where our partial file ends."""


class Cancelled(Exception):
    """The request was abandoned because another file has failed."""


class _Session(requests.Session):
    """Follow redirects, except to an address that is malformed or no longer https."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        if not resp.is_redirect:
            return None
        resp.raw.close()  # requests would read the body, of any size
        try:
            location = super().get_redirect_target(resp) or ""
            target = urlsplit(urljoin(resp.url, location))
            if target.scheme in ("https", urlsplit(resp.url).scheme) and target.port != 0:
                return location
        except ValueError:
            pass
        unsafe = shown(resp.headers["Location"])[:200]
        raise Unavailable(f"redirects to an unsafe address, {unsafe!r}; report it to the publisher")


class Connections:
    """The requests of one client, of several threads. Setting `stop` ends all waiting."""

    def __init__(self, agent: str, policy: RetryPolicy) -> None:
        self.policy, self.stop = policy, threading.Event()
        self._session = _Session()
        self._session.max_redirects = REDIRECTS
        # so that sizes, hashes and ranges belong to the file, not to what a server makes by compressing it
        self._session.headers.update({"User-Agent": agent, "Accept-Encoding": "identity"})
        self._reached: set[str] = set()  # servers that have answered

    def retry(self, url: str, action: Callable[[], T], gained: Callable[[], int] = lambda: 0) -> T:
        """Call `action` until it succeeds. Raise its other errors, and Unavailable when no attempt is left.

        All have the address in front. gained: returns the bytes received so far. An attempt that brought a megabyte
        more than any before it resets the count of failures: where the file must begin again and again, it is no gain.
        """
        retries, most = self.policy.retries, gained()
        while True:
            try:
                return action()
            except (Unavailable, IntegrityError) as error:
                raise type(error)(f"{shown(url)}: {error}") from error
            except RetryableError as problem:
                if gained() - most >= PROGRESS:
                    retries = self.policy.retries
                most = max(most, gained())
                failures = len(retries.history) + 1
                allowed = int(self.policy.retries.total or 0)
                if failures > (allowed if host(url) in self._reached else min(allowed, UNREACHED)):
                    raise Unavailable(f"{shown(url)}: {problem}, {failures} times; try later") from problem
                if problem.after > self.policy.longest_wait:
                    wait = f"and asks to wait {problem.after:,.0f} s; try again after that"
                    raise Unavailable(f"{shown(url)}: {problem} {wait}") from problem
                retries = retries.increment("GET", url, error=problem)
                self.pause(max(problem.after, retries.get_backoff_time() or retries.backoff_factor))

    def pause(self, seconds: float) -> None:
        """Wait. Raise Cancelled as soon as another file fails."""
        if self.stop.wait(seconds):
            raise Cancelled

    @contextlib.contextmanager
    def open(self, url: str, headers: dict[str, str]) -> Iterator[requests.Response]:
        """Yield the response to a GET, status 200 or 206, after redirects. Raise RetryableError or Unavailable."""
        timeout = (self.policy.connect, self.policy.read)
        try:
            response = self._session.get(url, headers=headers, stream=True, timeout=timeout)
        except requests.exceptions.SSLError as error:
            raise Unavailable(f"no secure connection ({_short(error)}); check this machine's clock") from error
        except requests.ConnectionError as error:
            raise RetryableError(f"no connection ({_short(error)})") from error
        except requests.Timeout as error:
            raise RetryableError(f"no answer within {self.policy.read:g} s") from error
        except requests.TooManyRedirects as error:
            raise Unavailable(f"more than {REDIRECTS} redirects; check the address") from error
        except UnicodeError as error:
            raise Unavailable("the password in the address is not Latin-1; correct it, or use ~/.netrc") from error
        except requests.RequestException as error:
            raise Unavailable(f"{_short(error)}; check the address") from error
        with response:
            self._reached.add(host(url))
            _check_status(response)
            yield response

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


def check_address(url: str, flag: str) -> None:
    """Raise UsageError, without what may be secret, unless a flag has the address of a folder, perhaps with a login."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError
    except ValueError:
        raise UsageError(f"{flag}: not an address of the form https://SERVER/FOLDER; correct it") from None
    if parts.query or parts.fragment:
        raise UsageError(f"{flag} {shown(url)}: the address of a folder has no query; remove it")
    if parts.username is not None and parts.password is None:
        raise UsageError(f"{flag} {shown(url)}: a user name without a password; write USER:PASSWORD@, or use ~/.netrc")


def shown(url: str) -> str:
    """Return an address without what may be secret: user name and password, the query."""
    bare = re.sub(r"[?#].*", "?...", url, flags=re.DOTALL)
    return re.sub(r"(?<=//)[^/\s]*@", "", bare)


def host(url: str) -> str:
    """Return the server's name, with the port if the address has one."""
    return shown(url).split("://", 1)[-1].split("/", 1)[0]


def _check_status(response: requests.Response) -> None:
    status = response.status_code
    answer = f"the server answered {status} {''.join(filter(str.isprintable, response.reason or ''))}".strip()
    if status in RETRIED:
        raise RetryableError(answer, retry_after(response.headers.get("Retry-After", "")))
    if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        raise OutOfRange(answer)
    if status == HTTPStatus.FORBIDDEN:
        raise Unavailable(f"{answer}; give a contact address with --contact or BERT_CONTACT")
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        raise NotFound(f"{answer}; the file may have moved")
    if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        raise Unavailable(f"{answer}; try another source")


def retry_after(text: str) -> float:
    """Return the seconds that a server asks to wait, a number or a date, or 0 if it is neither."""
    try:
        return RETRIES.parse_retry_after(text)
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return 0


def _short(error: BaseException) -> str:
    """Return the innermost reason, without the objects that the outer exceptions quote."""
    inner: Any = error
    while isinstance(deeper := getattr(inner, "reason", None) or next(iter(inner.args), None), Exception):
        inner = deeper
    return shown(str(inner).split(": ", 1)[-1])[:120] or type(inner).__name__
