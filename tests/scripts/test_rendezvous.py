"""The launcher's server by which ranks find each other: what it holds, what it answers, how often it is asked."""

import http.client
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts" / "launcher"))

from rendezvous import Rendezvous  # noqa: E402 the launcher's modules are a folder that is run

ADDRESS = "/local_node-7/3"
PATIENCE = 1.0


@pytest.fixture(scope="module")
def server() -> Rendezvous:
    return Rendezvous(PATIENCE)


def ask(server: Rendezvous, method: str, path: str, value: bytes | None = None) -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    client.request(method, path, value)
    answer = client.getresponse()
    return answer.status, answer.read()


def answers(server: Rendezvous, request: bytes) -> bytes:
    """The answer to bytes as they are; nothing where the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(request)
        return connection.recv(1 << 16)


def test_a_get_is_held_until_the_address_is_put() -> None:
    server = Rendezvous(patience=60)
    found: list[tuple[int, bytes]] = []
    waiting = [threading.Thread(target=lambda: found.append(ask(server, "GET", ADDRESS))) for _ in range(5)]
    before = server.requests
    for thread in waiting:
        thread.start()
    while server.requests < before + 5:
        time.sleep(0.001)
    assert not found
    assert ask(server, "PUT", ADDRESS, b"where") == (200, b"")
    for thread in waiting:
        thread.join()
    assert found == [(200, b"where")] * 5
    assert server.requests == before + 6
    assert ask(server, "GET", ADDRESS) == (200, b"where")


def test_a_get_is_not_held_for_ever(server: Rendezvous) -> None:
    # Gloo's client looks at the clock only between two requests
    began = time.monotonic()
    assert ask(server, "GET", "/cross_0/17") == (404, b"")
    assert time.monotonic() - began > 0.9 * PATIENCE


@pytest.mark.parametrize("path", ["/waited/3", "/global/rank_3", "/globe/3"])
def test_what_a_client_asks_only_once_is_answered_at_once(path: str) -> None:
    assert ask(Rendezvous(patience=1000), "GET", path) == (404, b"")


def test_the_scope_of_a_process_set_is_held_too(server: Rendezvous) -> None:
    began = time.monotonic()
    assert ask(server, "GET", "/global_process_set_hash_8f0a/0") == (404, b"")
    assert time.monotonic() - began > 0.9 * PATIENCE


def test_a_connected_rank_takes_its_own_address_away(server: Rendezvous) -> None:
    # the ranks may meet again, at other addresses
    for path in ("/global/0", "/global/rank_0", "/global/1"):
        ask(server, "PUT", path, path.encode())
    assert ask(server, "DELETE", "/global/0") == (200, b"")
    assert ask(server, "GET", "/global/rank_0")[0] == 404
    assert ask(server, "GET", "/global/1") == (200, b"/global/1")
    assert ask(server, "GET", "/global/0")[0] == 404


def test_a_long_value_comes_and_goes_in_pieces(server: Rendezvous) -> None:
    value = bytes(range(256)) * 3000
    assert ask(server, "PUT", "/global/5", value) == (200, b"")
    assert ask(server, "GET", "/global/5") == (200, value)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /a HTTP/1.1\r\n\r\n", b"HTTP/1.0 400 "),
        (b"GET\r\n\r\n", b"HTTP/1.0 400 "),
        (b"\r\n\r\n", b"HTTP/1.0 400 "),
        (b"POST /a/b HTTP/1.1\r\n\r\n", b"HTTP/1.0 501 "),
        (b"GET /a/b HTTP/1.1", b""),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: 5\r\n\r\n1234", b""),
        (b"\xff" * (2 << 20), b""),
    ],
)
def test_other_requests_end_and_harm_nobody(request_: bytes, answer: bytes, server: Rendezvous) -> None:
    try:
        assert answers(server, request_).startswith(answer) or not answer
    except ConnectionError:
        assert not answer
    ask(server, "PUT", "/global/6", b"6")
    assert ask(server, "GET", "/global/6") == (200, b"6")


def test_a_client_that_has_gone_harms_nobody(server: Rendezvous) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /global/8 HTTP/1.1\r\n\r\n")
    ask(server, "PUT", "/global/8", b"8")
    assert ask(server, "GET", "/global/8") == (200, b"8")


BARE = ROOT / "benchmarks" / "bare_rank.py"
Launch = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def start(clean: dict[str, str]) -> Launch:
    """`start(ranks, flags...)` starts ranks that only join; a line of shell may stand before."""

    def run(ranks: int, *flags: str, before: str = ":") -> subprocess.CompletedProcess[str]:
        words = [str(ROOT / "scripts/launch.sh"), "-np", str(ranks), *flags, "--", "sh", "-c"]
        command = [*words, f"{before}; exec {sys.executable} {BARE}"]
        return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=300)

    return run


@pytest.mark.multiprocess
@pytest.mark.slow
def test_eight_ranks_ask_as_often_as_the_algorithm_does(start: Launch) -> None:
    done = start(8, "--horovod-log", "debug")
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall("^rank ([0-9]) of 8: ", done.stdout, re.MULTILINE)) == list("01234567")
    # Six times a rank puts two keys and takes them away: all ranks, those of its host and those of its place, each for
    # the job and for its set of all processes. In the four that are of 8 ranks it asks twice for each other one, and
    # once for each earlier one.
    asked = 8 * 6 * 3 + 4 * (2 * 8 * 7 + 8 * 7 // 2)
    counted = re.search("^rendezvous: ([0-9]+) requests", done.stderr, re.MULTILINE)
    assert counted, "the ranks did not ask the launcher's server"
    # Where a rank starts late, each of the others asks again every five seconds; a client that polls would ask 100
    # times a second.
    assert asked <= int(counted[1]) <= asked + 300


@pytest.mark.multiprocess
@pytest.mark.slow
def test_a_rank_that_dies_before_it_registers_ends_the_others_in_one_line(start: Launch) -> None:
    done = start(3, before="[ $HOROVOD_RANK != 1 ] || kill -9 $$")
    assert done.returncode == 137
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error")]  # TensorFlow prints others
    assert line.startswith("error: a rank was ended by SIGKILL") and "Traceback" not in done.stderr
