"""Requests and answers: what is asked, what is refused and why, what is counted."""

import asyncio
import dataclasses
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the service needs it")

from starlette.testclient import TestClient

from bert.core.errors import UsageError
from serve import __main__ as main
from serve import app, description
from serve.heads import of_models
from serve.items import MOST_ANSWERS
from serve.models import Models
from tests.waiting import wait_for

LIMITS = {"body": 5000, "answer": 50_000, "windows": 7, "queue": 29, "receive_seconds": 5.0, "answer_seconds": 20.0}


@contextmanager
def client(
    models: Models, hosts: Any = ("*",), origins: Any = (), log: bool = False, **limits: float
) -> Iterator[TestClient]:
    settings: dict[str, Any] = LIMITS | limits
    service = app.Service(models, app.Limits(**settings), batch=8, delay=0.0, watch=0.0, log=log)
    made = app.application(service, version="1.2", hosts=hosts, origins=origins)
    with TestClient(made, raise_server_exceptions=False) as found:
        found.app_state["service"] = service
        yield found


@pytest.fixture(scope="module")
def asked(models: Models) -> Iterator[Callable[..., Any]]:
    """Ask a service; the answer is a status and its JSON."""
    with client(models) as found:

        def ask(route: str, fields: Any = None, **more: Any) -> tuple[int, Any]:
            response = found.post(f"/v1/{route}", **({"json": fields} if fields is not None else {}), **more)
            return response.status_code, response.json()

        yield ask


@pytest.mark.slow
def test_each_use_is_answered(asked: Callable[..., Any], models: Models) -> None:
    for head in of_models():
        model = models.choose(None, head.route)
        assert model is not None
        status, answer = asked(head.route, _sent(model.heads[head.route].example()))
        assert status == 200, answer
        assert answer["model"] == model.name and len(answer) > 1


def _sent(item: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(item).items() if value is not None}


def test_a_list_of_one_input_is_answered_as_a_list(asked: Callable[..., Any]) -> None:
    for item, answered in (({"text": "a"}, "label"), ({"txt": "a"}, "error")):
        status, found = asked("classify", {"model": "classify", "inputs": [item]})
        assert status == 200 and [answered in one for one in found["outputs"]] == [True]


def test_several_inputs_have_an_answer_each_and_a_bad_one_spoils_no_other(asked: Callable[..., Any]) -> None:
    status, found = asked("classify", {"model": "classify", "inputs": [{"text": "a"}, {"txt": "a"}, 7, {"text": "b"}]})
    assert status == 200 and found["model"] == "classify"
    good, unknown, number, last = found["outputs"]
    assert good["label"] in ("no", "yes", "perhaps") and set(last) == {"label", "probabilities", "truncated"}
    assert unknown["error"]["status"] == 400 and "unknown field 'txt'" in unknown["error"]["reason"]
    assert "no object" in number["error"]["reason"]
    assert asked("classify", {"text": "a"})[1]["probabilities"] == pytest.approx(good["probabilities"], abs=1e-5)


def test_a_model_is_chosen_by_its_name(asked: Callable[..., Any]) -> None:
    assert "value" in asked("classify", {"model": "regress", "text": "a"})[1]
    assert "label" in asked("classify", {"model": "classify", "text": "a"})[1]


QUESTION = {"question": "Who?", "context": "a river"}


@pytest.mark.parametrize(
    ("route", "fields", "status", "reason"),
    [
        ("answer", QUESTION | {"n_best": 0}, 400, "n_best is 0; send 1 to 20"),
        ("answer", QUESTION | {"n_best": MOST_ANSWERS + 1}, 400, "n_best is 21"),
        ("answer", QUESTION | {"n_best": True}, 400, "n_best is True"),
        ("answer", QUESTION | {"question": " "}, 400, "question is empty"),
        ("answer", QUESTION | {"context": []}, 400, "context is empty"),
        ("answer", QUESTION | {"context": [1]}, 400, "context"),
        ("answer", QUESTION | {"context": ["a"] * 8}, 400, "8 passages; send at most 7"),
        ("answer", {"question": "Who?"}, 400, "no context"),
        ("answer", QUESTION | {"context": "river " * 400}, 400, "windows of the model; send one of at most 7"),
        ("answer", QUESTION | {"model": 3}, 400, "model is no string"),
        ("answer", QUESTION | {"model": "tag"}, 404, "no model 'tag' here for /v1/answer"),
        ("tag", {"text": "a", "words": ["a"]}, 400, "send either text or words"),
        ("tag", {}, 400, "send either text or words"),
        ("embed", {"text": "a", "pool": "sum"}, 400, "pool is 'sum'"),
        ("classify", [1], 400, "no JSON object"),
        ("classify", {"inputs": []}, 400, "0 inputs; send 1 to 256"),
        ("classify", {"inputs": [{"text": "a"}] * 257}, 400, "257 inputs"),
        ("classify", {"inputs": {"text": "a"}}, 400, "inputs is no list"),
        ("classify", {"inputs": [{"text": "a"}], "text": "b"}, 400, "other fields stand beside it"),
        ("classify", {"text": "a" * 5000}, 413, "more than 5,000 bytes"),
        ("classify", {"inputs": [{"text": "a"}] * 30}, 400, "more than 29 windows together"),
        ("nothing", {"text": "a"}, 404, "no such address"),
    ],
)
def test_a_bad_request_is_told_why(
    asked: Callable[..., Any], route: str, fields: Any, status: int, reason: str
) -> None:
    found, answer = asked(route, fields)
    assert (found, answer["error"]["status"]) == (status, status)
    assert reason in answer["error"]["reason"]


def test_an_answer_is_refused_as_soon_as_it_is_too_large(
    models: Models, asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = {"text": "[MASK] " * 9, "top": 20}
    one, finished = asked("fill", {"inputs": [fill]})[1]["outputs"][0], []
    size = len(json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode())
    rendered = app._output_or_error

    def counted(*about: Any) -> dict[str, Any]:
        finished.append(1)
        return rendered(*about)

    monkeypatch.setattr(app, "_output_or_error", counted)
    with client(models, answer=4 * size) as found:
        for count, status in ((3, 200), (20, 400)):
            finished.clear()
            response = found.post("/v1/fill", json={"inputs": [fill] * count})
            assert response.status_code == status
        assert len(finished) <= 5 and f"more than {4 * size:,} bytes" in response.json()["error"]["reason"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "reason"),
    [
        (b"", "application/json", 400, "not JSON in UTF-8"),
        (b'{"text": "\xff"}', "application/json", 400, "not JSON in UTF-8"),
        (b'{"text": "a"', "application/json", 400, "not JSON in UTF-8"),
        (b"[" * 4000, "application/json", 400, "nested too deeply"),
        (b'{"text": ' * 400 + b"1" + b"}" * 400, "application/json", 400, "text is an object"),
        (b'{"text": "\\ud800"}', "application/json; charset=utf-8", 400, "not Unicode text"),
        (b'{"\\ud800": 1}', "application/json", 400, "unknown field '\\ud800'"),
        (b'{"model": "\\ud800", "text": "a"}', "application/json", 404, "no model '\\ud800'"),
        (b'{"text": ' + b"1" * 4500 + b"}", "application/json", 400, "a number of too many digits"),
        ("{}".encode("utf-16"), "application/json", 400, "not JSON in UTF-8"),
        (b'{"text": NaN}', "application/json", 400, "text is nan"),
        (b"text=a", "application/x-www-form-urlencoded", 415, "not application/json"),
    ],
)
def test_a_bad_body_is_told_why(asked: Callable[..., Any], body: bytes, kind: str, status: int, reason: str) -> None:
    found, answer = asked("classify", content=body, headers={"content-type": kind})
    assert (found, answer["error"]["status"]) == (status, status)
    assert reason in answer["error"]["reason"]


class Gate:
    """Holds back one head of a model, or lets it fail."""

    def __init__(self, models: Models, name: str, patch: pytest.MonkeyPatch) -> None:
        model = models.choose(name, name)
        assert model is not None
        self.open, self.seen, self.broken = threading.Event(), 0, ""
        head: Any = model.heads[name]
        compute = head.compute

        def held(rows: Any) -> Any:
            self.seen += len(rows)
            self.open.wait(20)
            if self.broken:
                raise RuntimeError(self.broken)
            return compute(rows)

        patch.setattr(head, "compute", held)


@pytest.fixture
def gate(models: Models, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(models, "classify", monkeypatch)
    yield made
    made.open.set()


def _classify(service: TestClient) -> None:
    service.post("/v1/classify", json={"text": "a"})


def test_beyond_the_bound_clients_are_told_when_to_come_again(models: Models, gate: Gate) -> None:
    with client(models, queue=3) as found:
        waiting = [threading.Thread(target=_classify, args=(found,)) for _ in range(4)]
        waiting[0].start()
        wait_for(lambda: gate.seen, "first request")
        for thread in waiting[1:]:
            thread.start()
        wait_for(lambda: len(found.app_state["service"].queue) == 3, "three requests that wait")
        response = found.post("/v1/classify", json={"text": "c"})
        assert response.status_code == 503 and int(response.headers["retry-after"]) >= 1
        assert "bert_waiting_rows 3.0" in found.get("/metrics").text
        gate.open.set()
        for thread in waiting:
            thread.join(60)
        assert found.post("/v1/classify", json={"text": "c"}).status_code == 200
        assert gate.seen == 5  # the refused one was never computed


def test_what_would_be_too_late_is_refused_at_once(models: Models, gate: Gate) -> None:
    with client(models) as found:
        service = found.app_state["service"]
        first = threading.Thread(target=_classify, args=(found,))
        first.start()
        wait_for(lambda: gate.seen, "first request")
        second = threading.Thread(target=_classify, args=(found,))
        second.start()
        wait_for(lambda: len(service.queue), "second request")
        service.worker.rate = 0.01  # rows a second: 100 s for the one that waits
        response = found.post("/v1/classify", json={"text": "b"})
        assert response.status_code == 503 and response.headers["retry-after"] == "60"
        gate.open.set()
        first.join(60)
        second.join(60)


def test_what_is_too_late_gets_504_and_is_not_computed(models: Models, gate: Gate) -> None:
    with client(models) as found:
        first = threading.Thread(target=_classify, args=(found,))
        first.start()
        wait_for(lambda: gate.seen, "first request")
        service = found.app_state["service"]
        service.limits = dataclasses.replace(service.limits, answer_seconds=0.2)
        response = found.post("/v1/classify", json={"text": "b"})
        assert response.status_code == 504 and "not computed within 0.2 s" in response.json()["error"]["reason"]
        gate.open.set()
        first.join(60)
        time.sleep(0.05)
        assert gate.seen == 1
        assert 'bert_dropped_total{reason="expired"}' in found.get("/metrics").text


def test_a_model_that_fails_answers_500_and_the_service_goes_on(models: Models, gate: Gate) -> None:
    gate.broken = "no luck"
    gate.open.set()
    with client(models) as found:
        response = found.post("/v1/classify", json={"text": "a"})
        assert (response.status_code, response.json()["error"]["reason"]) == (500, "the model failed: no luck")
        outputs = found.post("/v1/classify", json={"inputs": [{"text": "a"}, {"text": "b"}]}).json()["outputs"]
        assert [one["error"]["status"] for one in outputs] == [500, 500]
        gate.broken = ""
        assert found.post("/v1/classify", json={"text": "a"}).status_code == 200
        assert found.get("/healthz").status_code == found.get("/readyz").status_code == 200


@pytest.fixture
def head(models: Models, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The classifier's, whose functions are set back after the test."""
    model = models.choose("classify", "classify")
    assert model is not None
    monkeypatch.setattr(model.heads["classify"], "prepare", model.heads["classify"].prepare)
    return model.heads["classify"]


@pytest.mark.parametrize("late", [False, True])
def test_an_input_that_fails_unexpectedly_spoils_no_other(late: bool, models: Models, head: Any) -> None:
    prepare = head.prepare

    def fail(results: Any) -> Any:
        raise LookupError("no luck\nsecond line")

    def prepared(item: Any, most: int) -> Any:
        found = prepare(item, most)
        if item.text != "luck":
            return found
        return dataclasses.replace(found, finish=fail) if late else fail([])

    head.prepare = prepared
    with client(models) as found:
        several = [{"text": "a"}, {"text": "luck"}, {"text": "b"}]
        first, failed, last = found.post("/v1/classify", json={"model": "classify", "inputs": several}).json()[
            "outputs"
        ]
        assert failed["error"] == {"status": 500, "reason": "the model failed: no luck"}
        assert "label" in first and "label" in last
        response = found.post("/v1/classify", json={"model": "classify", "text": "luck"})
        assert response.status_code == 500 and response.json()["error"]["reason"] == "the model failed: no luck"


def test_a_mistake_of_ours_is_logged_by_its_place_and_without_a_text(
    models: Models, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def choose(*_: Any) -> Any:
        raise KeyError("secret")

    monkeypatch.setattr(models, "choose", choose)
    with client(models) as found:
        response = found.post("/v1/classify", json={"text": "secret"})
        assert response.status_code == 500 and "its log says where" in response.json()["error"]["reason"]
        assert 'path="/v1/classify",status="500"' in found.get("/metrics").text
    said = capsys.readouterr().err
    assert "KeyError in test_app.py:" in said and "secret" not in said and "Traceback" not in said


def test_inputs_beyond_the_bound_are_not_encoded(models: Models, head: Any) -> None:
    seen, prepare = [], head.prepare

    def counted(item: Any, most: int) -> Any:
        seen.append(item)
        return prepare(item, most)

    head.prepare = counted
    with client(models, queue=7) as found:
        response = found.post("/v1/classify", json={"model": "classify", "inputs": [{"text": "a"}] * 200})
        assert response.status_code == 400 and "more than 7 windows together" in response.json()["error"]["reason"]
    assert len(seen) == 8


def test_what_nobody_waits_for_is_not_encoded(models: Models, head: Any) -> None:
    seen, prepare, left = [], head.prepare, asyncio.Event()

    def slowly(item: Any, most: int) -> Any:
        seen.append(item)
        if len(seen) == 3:
            loops[0].call_soon_threadsafe(left.set)
        time.sleep(0.05)
        return prepare(item, most)

    body = json.dumps({"model": "classify", "inputs": [{"text": "a"}] * 40}).encode()
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if parts:
            return parts.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    async def ask(app: Any) -> None:
        loops.append(asyncio.get_running_loop())
        headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/v1/classify",
            "headers": headers,
            "query_string": b"",
        }
        await app(scope, receive, send)

    loops: list[asyncio.AbstractEventLoop] = []
    head.prepare = slowly
    with client(models) as found:
        asyncio.run(ask(found.app))
        assert 3 <= len(seen) < 40
        assert 'bert_dropped_total{reason="client gone"} 40.0' in found.get("/metrics").text


def test_what_is_too_late_is_not_encoded(models: Models, head: Any) -> None:
    seen, prepare = [], head.prepare

    def slowly(item: Any, most: int) -> Any:
        seen.append(item)
        time.sleep(0.15)
        return prepare(item, most)

    head.prepare = slowly
    with client(models, answer_seconds=0.1) as found:
        response = found.post("/v1/classify", json={"model": "classify", "inputs": [{"text": "a"}] * 20})
        assert response.status_code == 504 and len(seen) <= 1  # none, if the time was over before the first
        assert 'bert_dropped_total{reason="expired"} 20.0' in found.get("/metrics").text


def test_the_state_of_the_service_is_told(models: Models) -> None:
    with client(models) as found:
        service = found.app_state["service"]
        service.stopping = True
        assert found.get("/readyz").status_code == 503 and found.get("/healthz").status_code == 200
        service.queue.close()
        service.worker.join(60)
        assert found.get("/healthz").status_code == 503


def test_only_known_names_of_the_service_are_answered(models: Models) -> None:
    with client(models, hosts=("localhost", "[::1]")) as found:
        for name in ("localhost:8000", "LOCALHOST", "[::1]:7"):
            assert found.get("/healthz", headers={"host": name}).status_code == 200
        for name in ("evil.example", "localhost.evil.example", "localhost:80@evil.example", "::1", "[::1", "", "127.1"):
            response = found.get("/healthz", headers={"host": name})
            assert response.status_code == 400 and "--allow_host" in response.json()["error"]["reason"]


def test_a_local_address_answers_to_local_names_only() -> None:
    for host in ("127.0.0.1", "localhost", "LOCALHOST", "127.1", "127.0.0.2"):  # one address has many spellings
        with main.listener(host, 0) as bound:
            names = main._hosts(
                main.Options(model=("x",), host=host, allow_host=("bert.example",)), bound.getsockname()[0]
            )
        assert {"localhost", "[::1]", "bert.example", host} <= set(names) and "*" not in names
    assert "*" not in main._hosts(main.Options(model=("x",), host="::1"), "::1")
    everywhere = main.Options(model=("x",), host="0.0.0.0")
    assert main._hosts(everywhere, "0.0.0.0") == ("*",)
    assert main._hosts(dataclasses.replace(everywhere, allow_host=("a.b",)), "0.0.0.0") == ("a.b",)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/", 200),
        ("HEAD", "/healthz", 200),
        ("HEAD", "/v1/answer", 405),
        ("GET", "/v1/answer", 405),
        ("OPTIONS", "/v1/answer", 405),
        ("DELETE", "/page.js", 405),
        ("TRACE", "/", 405),
        ("GET", "/../app.py", 404),
        ("GET", "/%2e%2e/app.py", 404),
        ("GET", "/..%2f..%2fetc/passwd", 404),
        ("GET", "/page.js%00", 404),
        ("GET", "/page/index.html", 404),
        ("GET", "/docs/", 404),  # no redirect: it would repeat the header Host
        ("POST", "/v1/answer/", 404),
    ],
)
def test_only_what_is_described_is_served(method: str, path: str, status: int, models: Models) -> None:
    with client(models) as found:
        response = found.request(method, path, follow_redirects=False)
        assert response.status_code == status
        assert response.headers["x-content-type-options"] == "nosniff"
        if status >= 400 and method != "HEAD":
            assert response.json()["error"]["status"] == status


def test_other_sites_may_ask_only_where_allowed(models: Models) -> None:
    asking = {"origin": "https://a.example", "access-control-request-method": "POST"}
    asking |= {"access-control-request-headers": "content-type"}
    with client(models) as found:
        response = found.options("/v1/tag", headers=asking)
        assert response.status_code == 405 and "access-control-allow-origin" not in response.headers
    with client(models, origins=("https://a.example",)) as found:
        response = found.options("/v1/tag", headers=asking)
        assert response.is_success  # else a browser does not send the request (Fetch, CORS-preflight fetch)
        assert response.headers["access-control-allow-origin"] == "https://a.example"
        assert "POST" in response.headers["access-control-allow-methods"].split(", ")
        assert "content-type" in response.headers["access-control-allow-headers"].lower().split(", ")
        for body in ({"text": "a"}, {"txt": "a"}):  # a page must be able to read why it is refused
            answer = found.post("/v1/tag", json=body, headers={"origin": "https://a.example"})
            assert answer.headers["access-control-allow-origin"] == "https://a.example"
        other = found.options("/v1/tag", headers=asking | {"origin": "https://b.example"})
        assert not other.is_success and "access-control-allow-origin" not in other.headers
        put = found.options("/v1/tag", headers=asking | {"access-control-request-method": "PUT"})
        assert not put.is_success


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("allow_origin", "https://a.example/"),  # as it is in the address bar
        ("allow_origin", "https://a.example/page"),
        ("allow_origin", "https://A.example"),
        ("allow_origin", "https://a.example:443"),
        ("allow_origin", "a.example"),
        ("allow_origin", "null"),
        ("allow_host", "a.example:8000"),
        ("allow_host", "https://a.example"),
        ("allow_host", "::1"),
        ("allow_host", ""),
    ],
)
def test_a_name_that_no_request_has_is_refused(flag: str, value: str) -> None:
    known = main.Options(model=("x",), allow_origin=("https://b.example:8443", "http://[::1]:8"), allow_host=("B.c",))
    changed: dict[str, Any] = {flag: (*getattr(known, flag), value)}
    with pytest.raises(UsageError, match=f"--{flag}"):
        dataclasses.replace(known, **changed)


def test_the_page_asks_nothing_from_outside(models: Models) -> None:
    with client(models) as found:
        for path in (*app.FILES, "/docs"):
            response = found.get(path)
            assert response.status_code == 200
            assert "default-src 'none'" in response.headers["content-security-policy"]
            assert "http://" not in response.text and "https://" not in response.text
            assert "<script>" not in response.text and "style=" not in response.text  # the policy forbids both


def test_requests_are_counted_under_known_names_only(models: Models) -> None:
    with client(models) as found:
        found.post("/v1/classify", json={"text": "a"})
        found.get("/x" * 50)
        text = found.get("/metrics").text
        assert 'bert_requests_total{path="/v1/classify",status="200"} 1.0' in text
        assert 'bert_requests_total{path="other",status="404"} 1.0' in text and "/x/x" not in text
        assert "bert_batch_rows_sum 1.0" in text


def test_requests_are_logged_without_their_text(models: Models, capsys: pytest.CaptureFixture[str]) -> None:
    with client(models, log=True) as found:
        found.post("/v1/classify?secret=1", json={"inputs": [{"text": "secret"}, {"text": "b"}]})
        found.request("secret" * 500, "/v1/classify")
    line, other = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert {"event": "request", "path": "/v1/classify", "status": 200, "rows": 2}.items() <= line.items()
    assert (other["method"], other["status"]) == ("other", 405)
    assert "secret" not in json.dumps([line, other])


def test_reports_of_libraries_are_lines_of_json_without_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    reports = logging.Logger("of a library")
    reports.addHandler(app.Lines())
    try:
        raise ValueError("secret")
    except ValueError:
        reports.exception("it %s\n", "failed")
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "error" and line["message"].startswith("it failed (ValueError in test_app.py:")


def test_requests_are_answered_when_nobody_reads_the_log(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        flush = write

    with client(models, log=True) as found:
        monkeypatch.setattr(sys, "stderr", Closed())
        assert found.post("/v1/classify", json={"text": "a"}).status_code == 200


def test_every_use_is_described() -> None:
    found = description.openapi("1.2")
    assert found["info"]["version"] == "1.2"
    for head in of_models():
        operation = found["paths"][f"/v1/{head.route}"]["post"]
        one = operation["requestBody"]["content"]["application/json"]["schema"]["anyOf"][0]["allOf"][0]
        schema = found["components"]["schemas"][one["$ref"].removeprefix("#/components/schemas/")]
        assert schema == description.schema(head.item) and schema["properties"]
        assert all(field["description"] for field in schema["properties"].values())
        assert f"/v1/{head.route}" in description.page(found)


def test_calls_to_load_again_do_not_pile_up(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = list[bool](), threading.Event()
    ends = list[Callable[[], bool]]()

    def reload(force: bool, stopping: Callable[[], bool]) -> list[str]:
        begun.append(force)
        ends.append(stopping)
        assert not stopping()
        go_on.wait(30)
        return []

    monkeypatch.setattr(models, "reload", reload)
    with client(models) as found:
        service = found.app_state["service"]
        assert found.portal
        for _ in range(100):
            found.portal.call(service.ask_to_reload)
        wait_for(lambda: begun, "a reload")
        found.portal.call(service.ask_to_reload)
        go_on.set()
        wait_for(lambda: len(begun) == 2, "the reload that waited")
    assert begun == [True, True] and ends[0]()
