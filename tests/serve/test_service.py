"""The service as a process: clients that go away or misbehave, load, a replaced model, signals."""

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("uvicorn", reason="the service needs it")

from tests.serve import runs
from tests.serve.process import Service, service

pytestmark = pytest.mark.faults
LONG = "a river " * 1500


@pytest.fixture(scope="module")
def running(folders: dict[str, Path]) -> Iterator[Service]:
    limits = ("--receive_seconds", 0.5, "--windows", 2000, "--queue", 4000)
    with service("--model", folders["answer"], folders["tag"], *limits) as found:
        yield found
        assert found.stop() == 0


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


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
    until(lambda: running.metric('bert_dropped_total{reason="client gone"}') >= 1)
    until(lambda: running.metric("bert_waiting_rows") == 0)
    assert running.ask("answer", question="Who?", context="a river").status_code == 200


def test_a_body_that_never_ends_gets_408(running: Service) -> None:
    with raw(running, f"{HEAD}content-length: 100\n", b'{"question"') as slow:
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")
    with raw(running, "POST /v1/answer HTTP/1.1\nhost: localhost\n"[:-1] + "\ncontent-le"):  # a head that never ends
        assert running.ask("tag", text="a river").status_code == 200


@pytest.mark.parametrize("declared", [True, False])
def test_fifty_megabytes_are_refused_before_they_are_read(running: Service, declared: bool) -> None:
    before = running.memory()
    how = f"content-length: {50 << 20}\n" if declared else "transfer-encoding: chunked\n"
    with raw(running, HEAD + how) as client:
        piece = b"a" * 65_536 if declared else b"10000\r\n" + b"a" * 65_536 + b"\r\n"
        try:
            for _ in range((50 << 20) // 65_536):
                client.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it hung up
        else:
            assert client.recv(1000).startswith(b"HTTP/1.1 413")
    assert running.memory() < before + 40
    assert running.ask("tag", text="a river").status_code == 200


@pytest.mark.parametrize(
    "nonsense",
    [b"\x00\xff\xfe\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/tag HTTP/1.1\r\ncontent-length: x\r\n\r\n"],
)
def test_nonsense_is_refused(running: Service, nonsense: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as client:
        client.sendall(nonsense)
        assert client.recv(1000)[9:12] in (b"400", b"411", b"413")
    assert running.ask("tag", text="a river").status_code == 200


@pytest.mark.slow
def test_ten_thousand_small_requests_are_answered(running: Service) -> None:
    expected = running.ask("tag", text="a river").json()
    before = running.memory()

    def some(count: int) -> int:
        with httpx.Client(base_url=running.address, timeout=60) as client:
            return sum(_close(client.post("/v1/tag", json={"text": "a river"}).json(), expected) for _ in range(count))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(some, [1250] * 8)) == 10_000
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
        until(lambda: len(statuses) > 12)
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
        until(lambda: httpx.get(f"{found.address}/v1/models").json()["models"][0]["weights"] not in weights)
        (run / "bert_config.json").write_text("{")  # damaged: what is loaded serves on
        found.process.send_signal(signal.SIGHUP)
        until(lambda: found.metric('bert_reloads_total{result="failed"}') >= 1)
        time.sleep(0.1)
        done.set()
        for thread in threads:
            thread.join(30)
        assert set(statuses) == {200} and len(statuses) > 20
        assert found.stop(signal.SIGINT) == 0


def test_what_cannot_start_says_so_in_one_line(folders: dict[str, Path], run_module: Any, tmp_path: Path) -> None:
    def error(*arguments: object) -> tuple[int, str]:
        result = run_module("serve", *arguments)
        (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        assert "Traceback" not in result.stderr
        return result.returncode, line

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, line = error("--model", folders["tag"], "--port", port)
        assert code == 2 and f"--port {port}" in line
    assert error("--model", tmp_path / "none")[0] == 3
    assert error("--model", folders["tag"], "--host", "nowhere.invalid")[0] == 2
    damaged = tmp_path / "damaged"
    shutil.copytree(folders["tag"], damaged)
    os.truncate(next(damaged.glob("checkpoints/*/*.data*")), 100)
    assert error("--model", damaged)[0] == 4
