"""Measure the rate of a link in both directions, and its round trip, by TCP.

    python -m benchmarks.slow_network.probe serve ADDRESS PORT
    python -m benchmarks.slow_network.probe ask ADDRESS PORT BYTES

The second prints the Mb/s of receiving and of sending so many bytes each, and the milliseconds of a round trip.
"""

import socket
import statistics
import struct
import sys
import time

PINGS = 21
PIECE = bytes(1 << 16)


def receive(connection: socket.socket, count: int) -> None:
    """Read so many bytes."""
    while count:
        got = len(connection.recv(min(count, 1 << 20)))
        if not got:
            raise ConnectionError("the other end closed the connection")
        count -= got


def send(connection: socket.socket, count: int) -> None:
    """Write so many bytes."""
    for first in range(0, count, len(PIECE)):
        connection.sendall(PIECE[: min(len(PIECE), count - first)])


def serve(address: str, port: int) -> None:
    """Answer one client: echo pings, send the bytes that it asks for, receive as many, and confirm."""
    with socket.create_server((address, port)) as server:
        print("listening", flush=True)
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            for _ in range(PINGS):
                receive(connection, 1)
                connection.sendall(b"p")
            request = b""
            while len(request) < 8:
                request += connection.recv(8 - len(request))
            (count,) = struct.unpack("!q", request)
            send(connection, count)
            receive(connection, count)
            connection.sendall(b"d")
            connection.recv(1)  # until the client is gone


def ask(address: str, port: int, count: int) -> tuple[float, float, float]:
    """Return the Mb/s of receiving, of sending, and the milliseconds of a round trip."""
    with socket.create_connection((address, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for _ in range(PINGS):
            began = time.perf_counter()
            connection.sendall(b"p")
            receive(connection, 1)
            times.append(time.perf_counter() - began)
        began = time.perf_counter()
        connection.sendall(struct.pack("!q", count))
        receive(connection, count)
        back = time.perf_counter() - began
        began = time.perf_counter()
        send(connection, count)
        receive(connection, 1)
        there = time.perf_counter() - began
    megabits = 8 * count / 1e6
    return megabits / back, megabits / there, 1000 * statistics.median(times)


if __name__ == "__main__":
    command, host, number, *more = sys.argv[1:]
    if command == "serve":
        serve(host, int(number))
    else:
        print(*ask(host, int(number), int(more[0])))
