"""A connection lasts as long as its client reads."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the service needs it")

import uvicorn

from serve import connections

SIZE = 24 << 20  # bytes, more than the buffers between service and client hold
SECONDS = 2.5


async def large(scope: Any, receive: Any, send: Any) -> None:
    """Answer with more than the buffers hold."""
    length = [(b"content-length", str(SIZE).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": b"a" * SIZE})


async def read(answers: int, seconds: float) -> list[int]:
    """Return the bytes of each answer on one connection; each is read in that time."""
    config = uvicorn.Config(large, http=connections.limited(SECONDS, 10), lifespan="off", ws="none", log_level="error")
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[bound := _bound()])
    found = []
    try:
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        for _ in range(answers):
            writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(seconds)
            size = 0
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
                size = len(await reader.readexactly(SIZE))
            found.append(size)
        writer.close()
    finally:
        server.should_exit = True
        await server.shutdown(sockets=[bound])
    return found


def _bound() -> socket.socket:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


def test_answers_that_are_read_in_time_are_whole_however_many_there_are() -> None:
    assert asyncio.run(read(4, 0.35 * SECONDS)) == [SIZE] * 4


def test_an_answer_that_is_not_read_in_time_is_cut_off() -> None:
    assert asyncio.run(read(1, 1.3 * SECONDS)) != [SIZE]
