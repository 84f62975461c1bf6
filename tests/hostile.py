"""A real HTTP server on this machine that keeps the rules, or breaks them as it is told, request by request."""

import contextlib
import hashlib
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[["Handler", bytes], None]
MODIFIED = "Sun, 01 Nov 2026 10:20:30 GMT"


class Handler(BaseHTTPRequestHandler):
    """Answers one connection; the server is a `Site`'s."""

    protocol_version = "HTTP/1.1"
    site: "Site"

    def handle(self) -> None:
        with contextlib.suppress(ConnectionResetError):  # the client has left
            super().handle()

    def do_GET(self) -> None:
        site, path = self.site, self.path
        with site.lock:
            site.requests.append((path, dict(self.headers)))
            site.open_now += 1
            site.most_open = max(site.most_open, site.open_now)
            fault = site.faults[path].pop(0) if site.faults[path] else None
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                body = site.files.get(path)
                if fault:
                    fault(self, body or b"")
                elif body is None:
                    status(404)(self, b"")
                else:
                    plain(self, body)
        finally:
            with site.lock:
                site.open_now -= 1

    def head(self, code: int, **headers: Any) -> None:
        """Status line and headers; `_` stands for `-`."""
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class Site:
    """`files` by path; `faults` by path, each for one request, after which the server keeps the rules."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.lock, self.open_now, self.most_open = threading.Lock(), 0, 0
        handler = type("OurHandler", (Handler,), {"site": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator["Site"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def asked(self, header: str) -> list[str | None]:
        """What the requests had in this header, in order."""
        return [headers.get(header) for _, headers in self.requests]


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def plain(handler: Handler, body: bytes) -> None:
    """As the rules say: ranges, but only of the version that the client has begun."""
    wanted = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    if not wanted or handler.headers.get("If-Range", etag(body)) not in (etag(body), MODIFIED):
        handler.head(200, Content_Length=len(body), ETag=etag(body), Last_Modified=MODIFIED)
        handler.wfile.write(body)
    elif int(wanted[1]) >= len(body):
        handler.head(416, Content_Length=0, Content_Range=f"bytes */{len(body)}")
    else:
        rest = body[int(wanted[1]) :]
        place = f"bytes {int(wanted[1])}-{len(body) - 1}/{len(body)}"
        handler.head(206, Content_Length=len(rest), Content_Range=place, ETag=etag(body), Last_Modified=MODIFIED)
        handler.wfile.write(rest)


def cut(fraction: float, then: Callable[[], None] = lambda: None, version: str | None = None) -> Fault:
    """Sends a part of what it promised, under the ETag `version` if given, and hangs up; `then` is called."""

    def fault(handler: Handler, body: bytes) -> None:
        handler.head(200, Content_Length=len(body), ETag=etag(body) if version is None else version)
        handler.wfile.write(body[: int(len(body) * fraction)])
        handler.close_connection = True
        then()

    return fault


def status(code: int, **headers: Any) -> Fault:
    return lambda handler, _: handler.head(code, Content_Length=0, **headers)


def after(seconds: float) -> Fault:
    """Keeps the rules, in a while."""

    def fault(handler: Handler, body: bytes) -> None:
        time.sleep(seconds)
        plain(handler, body)

    return fault


def whole(handler: Handler, body: bytes) -> None:
    """Knows nothing of ranges."""
    handler.head(200, Content_Length=len(body))
    handler.wfile.write(body)


def promise(length: int) -> Fault:
    """A Content-Length that is not the body's."""

    def fault(handler: Handler, body: bytes) -> None:
        handler.head(200, Content_Length=length, ETag=etag(body))
        handler.wfile.write(body[:length])
        handler.close_connection = True

    return fault


def rest_of_any_version(handler: Handler, body: bytes) -> None:
    """Sends the range asked for and does not look at If-Range."""
    del handler.headers["If-Range"]
    plain(handler, body)


def chunked(fraction: float = 1) -> Fault:
    """No length, but marked ends; hangs up early if told."""

    def fault(handler: Handler, body: bytes) -> None:
        handler.head(200, Transfer_Encoding="chunked")
        part = body[: int(len(body) * fraction)]
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) + b"0\r\n\r\n" * (fraction == 1))
        handler.close_connection = True

    return fault


def trickle(seconds: float) -> Fault:
    """A byte at a time."""

    def fault(handler: Handler, body: bytes) -> None:
        handler.head(200, Content_Length=len(body), ETag=etag(body))
        for at in range(len(body)):
            handler.wfile.write(body[at : at + 1])
            time.sleep(seconds)

    return fault


def silent(seconds: float) -> Fault:
    """Promises, and sends nothing for a while."""

    def fault(handler: Handler, body: bytes) -> None:
        handler.head(200, Content_Length=len(body))
        time.sleep(seconds)
        handler.close_connection = True

    return fault
