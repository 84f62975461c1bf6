"""Requests and answers: what is asked, what is refused and why, what is counted."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the service needs it")

from starlette.testclient import TestClient

from serve import app, description
from serve.heads import HEADS
from serve.items import MOST_ANSWERS
from serve.models import Models

LIMITS = {"body": 5000, "windows": 7, "queue": 29, "receive_seconds": 5.0, "answer_seconds": 20.0}


@contextmanager
def client(models: Models, hosts: Any = ("*",), origins: Any = (), **limits: float) -> Iterator[TestClient]:
    settings: dict[str, Any] = LIMITS | limits
    service = app.Service(models, app.Limits(**settings), batch=8, delay=0.0, watch=0.0, log=False)
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


def test_each_use_is_answered(asked: Callable[..., Any], models: Models) -> None:
    for head in HEADS:
        model = models.choose(None, head.route)
        assert model is not None
        status, answer = asked(head.route, _sent(model.heads[head.route].example()))
        assert status == 200, answer
        assert answer["model"] == model.name and len(answer) > 1


def _sent(item: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(item).items() if value is not None}


def test_several_inputs_have_an_answer_each_and_a_bad_one_spoils_no_other(asked: Callable[..., Any]) -> None:
    status, found = asked("classify", {"model": "classify", "inputs": [{"text": "a"}, {"txt": "a"}, 7, {"text": "b"}]})
    assert status == 200 and found["model"] == "classify"
    good, unknown, number, last = found["outputs"]
    assert good["label"] in ("no", "yes", "perhaps") and set(last) == {"label", "probabilities"}
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
        ("answer", {"question": "Who?"}, 400, "no context"),
        ("answer", QUESTION | {"context": "river " * 400}, 400, "windows of the model; send one of at most 7"),
        ("answer", QUESTION | {"model": 3}, 400, "model is no string"),
        ("answer", QUESTION | {"model": "tag"}, 404, "no model 'tag' here for /v1/answer"),
        ("tag", {"text": "a", "words": ["a"]}, 400, "send either text or words"),
        ("tag", {}, 400, "send either text or words"),
        ("embed", {"text": "a", "pool": "max"}, 400, "pool is 'max'"),
        ("classify", [1], 400, "no JSON object"),
        ("classify", {"inputs": []}, 400, "0 inputs; send 1 to 256"),
        ("classify", {"inputs": [{"text": "a"}] * 257}, 400, "257 inputs"),
        ("classify", {"inputs": {"text": "a"}}, 400, "inputs is no list"),
        ("classify", {"inputs": [{"text": "a"}], "text": "b"}, 400, "other fields stand beside it"),
        ("classify", {"text": "a" * 5000}, 413, "more than 5,000 bytes"),
        ("classify", {"inputs": [{"text": "a"}] * 30}, 400, "30 windows together; send at most 29"),
        ("nothing", {"text": "a"}, 404, "no such address"),
    ],
)
def test_a_bad_request_is_told_why(
    asked: Callable[..., Any], route: str, fields: Any, status: int, reason: str
) -> None:
    found, answer = asked(route, fields)
    assert (found, answer["error"]["status"]) == (status, status)
    assert reason in answer["error"]["reason"]


@pytest.mark.parametrize(
    ("body", "kind", "status", "reason"),
    [
        (b"", "application/json", 400, "not JSON in UTF-8"),
        (b'{"text": "\xff"}', "application/json", 400, "not JSON in UTF-8"),
        (b'{"text": "a"', "application/json", 400, "not JSON in UTF-8"),
        (b"[" * 4000, "application/json", 400, "nested too deeply"),
        (b'{"text": "\\ud800"}', "application/json; charset=utf-8", 400, "not Unicode text"),
        (b'{"text": NaN}', "application/json", 400, "text is nan"),
        (b"text=a", "application/x-www-form-urlencoded", 415, "not application/json"),
    ],
)
def test_a_bad_body_is_told_why(asked: Callable[..., Any], body: bytes, kind: str, status: int, reason: str) -> None:
    found, answer = asked("classify", content=body, headers={"content-type": kind})
    assert (found, answer["error"]["status"]) == (status, status)
    assert reason in answer["error"]["reason"]


def test_a_body_without_a_length_is_bounded_too(asked: Callable[..., Any]) -> None:
    pieces = (b"a" * 1000 for _ in range(50))
    status, answer = asked("classify", content=pieces, headers={"content-type": "application/json"})
    assert status == 413 and "more than 5,000 bytes" in answer["error"]["reason"]


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
        while not gate.seen:
            time.sleep(0.001)
        for thread in waiting[1:]:
            thread.start()
        while len(found.app_state["service"].queue) < 3:
            time.sleep(0.001)
        response = found.post("/v1/classify", json={"text": "c"})
        assert response.status_code == 503 and int(response.headers["retry-after"]) >= 1
        assert "bert_waiting_rows 3.0" in found.get("/metrics").text
        gate.open.set()
        for thread in waiting:
            thread.join(20)
        assert found.post("/v1/classify", json={"text": "c"}).status_code == 200
        assert gate.seen == 5  # the refused one was never computed


def test_what_would_be_too_late_is_refused_at_once(models: Models, gate: Gate) -> None:
    with client(models) as found:
        service = found.app_state["service"]
        first = threading.Thread(target=_classify, args=(found,))
        first.start()
        while not gate.seen:
            time.sleep(0.001)
        second = threading.Thread(target=_classify, args=(found,))
        second.start()
        while not len(service.queue):
            time.sleep(0.001)
        service.worker.rate = 0.01  # rows a second: 100 s for the one that waits
        response = found.post("/v1/classify", json={"text": "b"})
        assert response.status_code == 503 and response.headers["retry-after"] == "60"
        gate.open.set()
        first.join(20)
        second.join(20)


def test_what_is_too_late_gets_504_and_is_not_computed(models: Models, gate: Gate) -> None:
    with client(models, answer_seconds=0.2) as found:
        first = threading.Thread(target=_classify, args=(found,))
        first.start()
        while not gate.seen:
            time.sleep(0.001)
        response = found.post("/v1/classify", json={"text": "b"})
        assert response.status_code == 504 and "not computed within 0.2 s" in response.json()["error"]["reason"]
        gate.open.set()
        first.join(20)
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


def test_the_state_of_the_service_is_told(models: Models) -> None:
    with client(models) as found:
        service = found.app_state["service"]
        service.stopping = True
        assert found.get("/readyz").status_code == 503 and found.get("/healthz").status_code == 200
        service.queue.close()
        service.worker.join(10)
        assert found.get("/healthz").status_code == 503


def test_only_known_names_of_the_service_are_answered(models: Models) -> None:
    with client(models, hosts=("localhost",)) as found:
        assert found.get("/healthz", headers={"host": "localhost:8000"}).status_code == 200
        assert found.get("/healthz", headers={"host": "evil.example"}).status_code == 400


def test_other_sites_may_ask_only_where_allowed(models: Models) -> None:
    asking = {"origin": "https://a.example", "access-control-request-method": "POST"}
    asking |= {"access-control-request-headers": "content-type"}
    with client(models) as found:
        response = found.options("/v1/tag", headers=asking)
        assert response.status_code == 405 and "access-control-allow-origin" not in response.headers
    with client(models, origins=("https://a.example",)) as found:
        response = found.options("/v1/tag", headers=asking)
        assert response.headers["access-control-allow-origin"] == "https://a.example"
        other = found.options("/v1/tag", headers=asking | {"origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


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
    limits: dict[str, Any] = LIMITS
    service = app.Service(models, app.Limits(**limits), batch=8, delay=0.0, watch=0.0, log=True)
    with TestClient(app.application(service, version="1")) as found:
        found.post("/v1/classify?secret=1", json={"inputs": [{"text": "secret"}, {"text": "b"}]})
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert {"event": "request", "path": "/v1/classify", "status": 200, "rows": 2}.items() <= line.items()
    assert "secret" not in json.dumps(line)


def test_every_use_is_described() -> None:
    found = description.openapi("1.2")
    assert found["info"]["version"] == "1.2"
    for head in HEADS:
        operation = found["paths"][f"/v1/{head.route}"]["post"]
        one = operation["requestBody"]["content"]["application/json"]["schema"]["anyOf"][0]["allOf"][0]
        schema = found["components"]["schemas"][one["$ref"].removeprefix("#/components/schemas/")]
        assert schema == description.schema(head.item) and schema["properties"]
        assert all(field["description"] for field in schema["properties"].values())
        assert f"/v1/{head.route}" in description.page(found)
