"""The server by which the ranks of horovodrun find each other: values under /SCOPE/KEY, over HTTP.

Gloo's client in Horovod (http_store.cc) asks for the address of every other rank, and where a rank has not put it yet,
again after 10 ms. Horovod's own server answers 404 at once, with a thread for each request: ranks that start keep it
busy, which makes the start longer, which makes more requests. Here such a GET is held until the address is there.

What remains grows with the square of the ranks (docs/launch.md), each request on a connection of its own. So one thread
answers all of them, without the layers of http.server or asyncio: a request takes a fifth of the time.

The client waits for an answer without end, and looks at the clock (HOROVOD_GLOO_TIMEOUT_SECONDS) only between two
requests. So a request is held for a few seconds and then answered by 404.
"""

import contextlib
import re
import selectors
import socket
import threading
import time

# The keys that the client waits for: numbers, in three scopes: all ranks, the ranks of a host, and the ranks with the
# same place on their hosts. A process set's name may follow the scope. The client asks for other keys (rank_N) only
# once, and goes on without them. bert.training.distributed asks whether a key in the scope "waited" is there.
AWAITED = re.compile("/(global|local_|cross_)[^/]*/[0-9]+")
PATIENCE = 5.0  # seconds for which a GET waits for its key, and a connection for the rest of a request or of an answer
LARGEST = 1 << 20  # bytes of a request; the addresses of 1,000 ranks are some 100 KB
WAITING = 4096  # connections that the kernel keeps until they are accepted: all ranks may come at once
LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,9})\r\n", re.IGNORECASE)


class _Client:
    """A connection, which has one request and one answer."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.received = bytearray()
        self.unsent = b""
        self.awaited = ""  # the key for which the request is held
        self.deadline = 0.0
        self.events = 0  # for which the selector has it


class Rendezvous:
    """A server like horovodrun's, on a free port of all interfaces. It runs in a thread until the process ends."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.requests = 0
        self.seconds = 0.0  # of the processor
        self._patience = patience
        self._values: dict[str, bytes] = {}
        self._open: dict[_Client, None] = {}  # connections that are not answered at once, by their deadlines
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("", 0), backlog=WAITING)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        while True:
            first = next(iter(self._open), None)
            left = None if first is None else max(0.0, first.deadline - time.monotonic())
            for key, events in self._selector.select(left):
                if key.data is None:
                    self._accept()
                elif events & selectors.EVENT_READ:
                    self._receive(key.data)
                else:
                    self._send(key.data)
            self._expire()
            self.seconds = time.thread_time()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:  # it is gone
            return
        except OSError:  # no file is left for it: others end
            time.sleep(0.01)
            return
        connection.setblocking(False)
        self._receive(_Client(connection))

    def _receive(self, client: _Client) -> None:
        """Read what has come, and answer the request if it is complete."""
        try:
            piece = client.connection.recv(1 << 16)
        except BlockingIOError:
            self._keep(client, selectors.EVENT_READ)
            return
        except OSError:
            self._close(client)
            return
        client.received += piece
        if not piece or len(client.received) > LARGEST:
            self._close(client)
            return
        head, blank, value = bytes(client.received).partition(b"\r\n\r\n")
        length = LENGTH.search(head + b"\r\n")
        if blank and len(value) >= (int(length[1]) if length else 0):
            method, path, *_ = [*head.decode("latin-1").split(" ", 2), "", ""]
            self._do(client, method, path, value)
        else:
            self._keep(client, selectors.EVENT_READ)

    def _do(self, client: _Client, method: str, path: str, value: bytes) -> None:
        """Do what a request asks for, and answer it or hold it."""
        self.requests += 1
        if path.count("/") != 2:
            self._answer(client, "400 Bad Request")
        elif method == "GET":
            if path in self._values:
                self._answer(client, "200 OK", self._values[path])
            elif AWAITED.fullmatch(path):
                client.awaited = path
                self._keep(client, 0)
            else:
                self._answer(client, "404 Not Found")
        elif method == "PUT":
            self._values[path] = value
            self._answer(client, "200 OK")
            for held in [held for held in self._open if held.awaited == path]:
                self._answer(held, "200 OK", value)
        elif method == "DELETE":
            # A rank that is connected to all others says so after they have met: nobody asks for its address any more.
            scope, _, rank = path.rpartition("/")
            for key in (path, f"{scope}/rank_{rank}"):
                self._values.pop(key, None)
            self._answer(client, "200 OK")
        else:
            self._answer(client, "501 Not Implemented")

    def _answer(self, client: _Client, status: str, body: bytes = b"") -> None:
        client.awaited = ""
        client.unsent = f"HTTP/1.0 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        self._send(client)

    def _send(self, client: _Client) -> None:
        try:
            client.unsent = client.unsent[client.connection.send(client.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            client.unsent = b""
        if client.unsent:
            self._keep(client, selectors.EVENT_WRITE)
        else:
            self._close(client)

    def _keep(self, client: _Client, events: int) -> None:
        """Have the selector look for these events, or for none; start the time of what the connection waits for."""
        if events == client.events and client in self._open:
            return
        if client.events:
            self._selector.unregister(client.connection)
        if events:
            self._selector.register(client.connection, events, client)
        client.events = events
        client.deadline = time.monotonic() + self._patience
        self._open.pop(client, None)
        self._open[client] = None

    def _close(self, client: _Client) -> None:
        if client.events:
            self._selector.unregister(client.connection)
        self._open.pop(client, None)
        with contextlib.suppress(OSError):
            client.connection.close()

    def _expire(self) -> None:
        """Answer what was held for too long, and close what is too slow."""
        now = time.monotonic()
        while (client := next(iter(self._open), None)) and client.deadline <= now:
            if client.awaited:
                self._answer(client, "404 Not Found")
            else:
                self._close(client)
