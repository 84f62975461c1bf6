"""The server by which the ranks of horovodrun find each other: values under /SCOPE/KEY, over HTTP.

Gloo's client in Horovod (http_store.cc) asks for the address of every other rank, and where a rank has not put it yet,
again after 10 ms. Horovod's own server answers 404 at once, with a thread for each request: ranks that start keep it
busy, which makes the start longer, which makes more requests. Here such a GET is held until the address is there, and
one thread answers all.

The client has no timeout of its own for an answer. It compares its HOROVOD_GLOO_TIMEOUT_SECONDS with the clock between
two requests only, so a request is held for a few seconds and then answered by 404.
"""

import asyncio
import re
import socket
import threading
import time

# The keys that the client waits for: numbers, in the scopes of all ranks, of those of a host and of those with the same
# place on their hosts, also where a process set's name is behind it. It asks for all others (rank_N) only once, and
# goes on without them. bert.training.distributed asks whether a key in the scope "waited" is there.
AWAITED = re.compile("/(global|local_|cross_)[^/]*/[0-9]+")
HELD = 5.0  # seconds for which a GET waits for its key
READING = 10.0  # seconds for a client to send its request
LARGEST = 1 << 24  # bytes of a value; the addresses of 1,000 ranks are some 100 KB
WAITING = 4096  # connections that the kernel keeps until they are accepted: all ranks may come at once


class Rendezvous:
    """A server on a free port of all interfaces, as that of horovodrun; it runs in a thread until the process ends."""

    def __init__(self, held: float = HELD) -> None:
        self.requests = 0
        self.seconds = 0.0  # of the processor
        self._held = held
        self._values: dict[str, bytes] = {}
        self._arrivals: dict[str, asyncio.Event] = {}  # of the keys for which requests are held
        self._listener = socket.create_server(("", 0), backlog=WAITING)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, sock=self._listener, limit=LARGEST, backlog=WAITING)
        async with server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read a request and answer it; say nothing to a client that is too slow, is gone or sends something else."""
        try:
            async with asyncio.timeout(READING):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = head.decode("latin-1").split(" ", 2)
                length = re.search(rb"\r\ncontent-length: *([0-9]{1,8})\r\n", head, re.IGNORECASE)
                value = await reader.readexactly(int(length[1]) if length else 0)
            self.requests += 1
            status, body = await self._do(method, path, value)
            writer.write(f"HTTP/1.0 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):  # OSError includes TimeoutError
            pass
        finally:
            writer.close()
            self.seconds = time.thread_time()

    async def _do(self, method: str, path: str, value: bytes) -> tuple[str, bytes]:
        """Return the status and the body that answer a request."""
        if path.count("/") != 2:
            return "400 Bad Request", b""
        if method == "PUT":
            self._values[path] = value
            if arrival := self._arrivals.pop(path, None):
                arrival.set()
        elif method == "GET":
            if path not in self._values and AWAITED.fullmatch(path):
                await self._arrival(path)
            if path not in self._values:
                return "404 Not Found", b""
            return "200 OK", self._values[path]
        elif method == "DELETE":
            # A rank that is connected to all others, as all others are. Horovod's server removes the values of a scope
            # when its last rank says so.
            scope, _, rank = path.rpartition("/")
            self._values.pop(path, None)
            self._values.pop(f"{scope}/rank_{rank}", None)
        else:
            return "501 Not Implemented", b""
        return "200 OK", b""

    async def _arrival(self, path: str) -> None:
        """Wait until the key is put, at most for the time that a request is held."""
        arrival = self._arrivals.setdefault(path, asyncio.Event())
        try:
            async with asyncio.timeout(self._held):
                await arrival.wait()
        except TimeoutError:
            pass
