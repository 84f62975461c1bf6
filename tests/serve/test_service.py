"""The service as a process: clients that go away or misbehave, load, a replaced model, signals."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("uvicorn", reason="the service needs it")

from bert.core.errors import InputError, IntegrityError, UsageError
from bert.engines import engine
from serve.__main__ import Options, _listen, listener, main
from tests.bert.export.served import CONFIG
from tests.serve import runs
from tests.serve.process import Service, service
from tests.waiting import wait_for

pytestmark = pytest.mark.faults
LONG = "a river " * 1500
ENGINE = engine.choose("auto", CONFIG, "float32")


@pytest.fixture(scope="module")
def running(folders: dict[str, Path]) -> Iterator[Service]:
    limits = ("--receive_seconds", 0.5, "--windows", 2000, "--queue", 4000)
    with service("--model", folders["answer"], folders["tag"], folders["label"], *limits) as found:
        sharing = [line for line in found.said if line.startswith("one encoder")]
        assert sharing == [f"one encoder in memory, computed by {ENGINE}: tag, label\n"]
        yield found
        assert found.stop() == 0
        said = "".join(found.said)
        assert "Traceback" not in said and "never retrieved" not in said
        begun = next(number for number, line in enumerate(found.said) if line.startswith("listening on "))
        assert {line[0] for line in found.said[begun + 1 :]} == {"{"}  # whatever is reported, a line of JSON


def raw(to: Service, head: str, body: bytes = b"") -> socket.socket:
    """A connection on which a request has been sent."""
    connection = socket.create_connection(("127.0.0.1", to.port), timeout=20)
    connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
    return connection


HEAD = "POST /v1/answer HTTP/1.1\nhost: localhost\ncontent-type: application/json\n"


def test_work_for_a_client_that_went_away_is_dropped(running: Service) -> None:
    body = ('{"question": "Who?", "context": "' + LONG + '"}').encode()
    for _ in range(3):
        raw(running, f"{HEAD}content-length: {len(body)}\n", body).close()
    wait_for(lambda: running.metric('bert_dropped_total{reason="client gone"}') >= 1, "dropped request")
    wait_for(lambda: running.metric("bert_waiting_rows") == 0, "empty queue")
    assert running.ask("answer", question="Who?", context="a river").status_code == 200


def test_a_body_that_never_ends_gets_408(running: Service) -> None:
    with raw(running, f"{HEAD}content-length: 100\n", b'{"question"') as slow:
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")


def until_closed(connection: socket.socket, seconds: float = 20) -> bytes:
    """What comes until the service closes the connection."""
    connection.settimeout(seconds)
    found = b""
    try:
        while part := connection.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"POST /v1/tag HTTP/1.1\r\nhost: localhost\r\ncontent-le"])
def test_a_head_that_never_ends_does_not_keep_its_connection(running: Service, sent: bytes) -> None:
    for before in (b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"):  # the first head, and a later one
        with socket.create_connection(("127.0.0.1", running.port)) as slow:
            slow.sendall(before + sent)
            assert running.ask("tag", text="a river").status_code == 200
            assert (b"200 OK" in until_closed(slow)) == bool(before)


def test_the_rest_of_a_refused_body_is_not_awaited(running: Service) -> None:
    for head in ("POST /v1/tag", "POST /nothing"):
        with raw(running, f"{head} HTTP/1.1\nhost: localhost\ncontent-length: 999999\n", b"{") as slow:
            assert until_closed(slow)[9:12] in (b"415", b"404")


def test_an_answer_that_nobody_reads_does_not_keep_its_connection(running: Service) -> None:
    body = json.dumps({"words": ["a" * 900_000]}).encode()  # the answer repeats it
    head = f"POST /v1/tag HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", running.port))
        with contextlib.suppress(ConnectionError):  # it may end while this still sends
            for _ in range(9):  # more than the buffers between client and service hold
                slow.sendall(head.encode() + b"\r\n\r\n" + body)
        wait_for(lambda: len(connections(running)) == 0, "end of the connection")
        assert running.ask("tag", text="a river").status_code == 200


def connections(to: Service) -> list[str]:
    """The established connections to a service, of which it still holds its end."""
    lines = Path(f"/proc/{to.process.pid}/net/tcp").read_text().splitlines()[1:]
    ours = (line.split() for line in lines)
    return [line[2] for line in ours if line[1].endswith(f":{to.port:04X}") and line[3] == "01"]


def test_questions_on_too_many_connections_are_refused_and_told_why(folders: dict[str, Path]) -> None:
    with service("--model", folders["tag"], "--connections", 2) as found:
        with contextlib.ExitStack() as idle:
            for _ in range(2):
                idle.enter_context(socket.create_connection(("127.0.0.1", found.port)))
            wait_for(lambda: len(connections(found)) == 2, "two connections")
            refused = found.ask("tag", text="a river")
            assert refused.status_code == 503 and "too many connections" in refused.json()["error"]["reason"]
            assert int(refused.headers["retry-after"]) >= 1 and refused.headers["connection"] == "close"
            assert httpx.get(f"{found.address}/healthz").status_code == 200
        wait_for(lambda: len(connections(found)) == 0, "end of the connections")
        assert found.ask("tag", text="a river").status_code == 200
        assert found.stop() == 0


def test_a_client_that_sends_all_of_a_large_body_learns_why_it_is_refused(folders: dict[str, Path]) -> None:
    with service("--model", folders["tag"]) as found:
        for _ in range(10):
            connection = http.client.HTTPConnection("127.0.0.1", found.port, timeout=30)
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/tag", b"a" * (8 << 20), headers)
            assert connection.getresponse().status == 413
            connection.close()
        assert found.stop() == 0


def test_pipelined_requests_are_answered_in_order(running: Service) -> None:
    bodies = [json.dumps({"words": ["a"] * count}).encode() for count in (3, 1, 2)]
    head = "POST /v1/tag HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    parts = [f"{head}content-length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(b"".join(parts) + b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        told = until_closed(client).decode()
    counts = [len(json.loads(found)["words"]) for found in re.findall(r"\{\"model.*?\}", told)]
    assert counts == [3, 1, 2] and told.endswith('{"status":"ok"}')


@pytest.mark.parametrize("declared", [True, False])
def test_fifty_megabytes_are_refused_before_they_are_read(running: Service, declared: bool) -> None:
    before = running.memory()
    how = f"content-length: {50 << 20}\n" if declared else "transfer-encoding: chunked\n"
    with raw(running, HEAD + how) as client:
        piece = b"a" * 65_536 if declared else b"10000\r\n" + b"a" * 65_536 + b"\r\n"
        try:
            for _ in range((50 << 20) // 65_536):
                client.sendall(piece)
            assert client.recv(1000).startswith(b"HTTP/1.1 413")
        except ConnectionError:
            pass  # it hung up
    assert running.memory() < before + 40
    assert running.ask("tag", text="a river").status_code == 200


BOTH_LENGTHS = (
    b"POST /v1/tag HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
)


def test_a_request_that_another_server_may_divide_otherwise_ends_its_connection(running: Service) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as client:
        client.sendall(BOTH_LENGTHS + b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answers = b"".join(iter(lambda: client.recv(1000), b""))
    assert answers[9:12] == b"400" and answers.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "nonsense",
    [b"\x00\xff\xfe\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/tag HTTP/1.1\r\ncontent-length: x\r\n\r\n"],
)
def test_nonsense_is_refused(running: Service, nonsense: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as client:
        client.sendall(nonsense)
        assert client.recv(1000)[9:12] in (b"400", b"411", b"413", b"505")
    assert running.ask("tag", text="a river").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("requests", [1000, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_many_small_requests_are_answered(running: Service, requests: int) -> None:
    expected = running.ask("tag", text="a river").json()
    before = running.memory()

    def some(count: int) -> int:
        with httpx.Client(base_url=running.address, timeout=60) as client:
            return sum(_close(client.post("/v1/tag", json={"text": "a river"}).json(), expected) for _ in range(count))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(some, [requests // 8] * 8)) == requests
    assert running.memory() < before + 200


def _close(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return found["tags"] == expected["tags"] and found["probabilities"] == pytest.approx(
        expected["probabilities"], abs=1e-5
    )


def test_a_stop_under_load_answers_what_was_taken(folders: dict[str, Path]) -> None:
    with service("--model", folders["answer"]) as found:
        statuses: list[int] = []
        refused = threading.Event()

        def ask() -> None:
            while not refused.is_set():
                try:
                    statuses.append(found.ask("answer", question="Who?", context=LONG[:2000]).status_code)
                except httpx.TransportError as error:
                    # Nobody listens any more, or an idle connection was closed; a request that was taken is answered.
                    assert isinstance(error, httpx.ConnectError | httpx.ReadError | httpx.RemoteProtocolError)
                    refused.set()

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(statuses) > 12, "answers")
        assert found.stop() == 0
        for thread in threads:
            thread.join(30)
        assert set(statuses) == {200}
        answered = [line for line in found.logged() if line.get("path") == "/v1/answer"]
        assert {line["status"] for line in answered} == {200} and len(answered) == len(statuses)


def test_a_replaced_model_loses_no_request(tmp_path: Path) -> None:
    run, other = runs.of_questions(tmp_path / "run"), runs.of_questions(tmp_path / "other", seed=2)
    with service("--model", run, "--reload_seconds", 0.2) as found:
        weights = [model["weights"] for model in httpx.get(f"{found.address}/v1/models").json()["models"]]
        done, statuses = threading.Event(), []

        def ask() -> None:
            while not done.is_set():
                statuses.append(found.ask("answer", question="Who?", context="a river").status_code)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        run.rename(tmp_path / "old")
        other.rename(run)
        wait_for(
            lambda: httpx.get(f"{found.address}/v1/models").json()["models"][0]["weights"] not in weights, "new model"
        )
        (run / "bert_config.json").write_text("{")  # damaged: what is loaded serves on
        found.process.send_signal(signal.SIGHUP)
        wait_for(lambda: found.metric('bert_reloads_total{result="failed"}') >= 1, "reload that fails")
        time.sleep(0.1)
        done.set()
        for thread in threads:
            thread.join(30)
        assert set(statuses) == {200} and len(statuses) > 6  # more than two of each client, also on busy cores
        assert found.stop(signal.SIGINT) == 0


def test_what_cannot_start_says_so_in_one_line(folders: dict[str, Path], run_module: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_module("serve", "--model", folders["tag"], "--port", port)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.returncode == 2 and f"--port {port}" in line and "Traceback" not in result.stderr
    late = pytest.raises(UsageError, match="give another port")
    with listener("127.0.0.1", 0) as bound, socket.create_server(bound.getsockname()), late:
        _listen(bound, Options(model=("run",)))
    damaged = tmp_path / "damaged"
    shutil.copytree(folders["tag"], damaged)
    os.truncate(next(damaged.glob("checkpoints/*/*.data*")), 100)
    for error, words in (
        (InputError, [tmp_path / "none"]),
        (UsageError, [folders["tag"], "--host", "nowhere.invalid"]),
        (IntegrityError, [damaged]),
    ):
        with pytest.raises(error):
            main(["--model", *map(str, words), "--port", "0"])
