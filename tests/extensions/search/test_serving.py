"""Search in the service: what it finds is what the command finds, and bad requests are told why."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the service needs it")

import bert
from bert.core.errors import InputError
from extensions.search import search
from serve.models import Models, Search
from tests.serve import runs
from tests.serve.conftest import TEXTS
from tests.serve.test_app import client

Asked = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def asked(models: Models) -> Iterator[Asked]:
    with client(models) as found:

        def ask(**fields: Any) -> tuple[int, Any]:
            response = found.post("/v1/search", json=fields)
            return response.status_code, response.json()

        yield ask


def same(found: list[dict[str, Any]], hits: list[Any]) -> None:
    assert len(found) == len(hits) > 1
    for one, hit in zip(found, hits, strict=True):
        assert one["score"] == pytest.approx(hit.score, abs=1e-5)
        assert {**one, "score": 0} == {name: getattr(hit, name) for name in one} | {"score": 0}


@pytest.mark.slow
def test_the_index_is_searched_as_by_the_command(asked: Asked, folders: dict[str, Path], index: Path) -> None:
    model = bert.load(folders["fill"])
    for query in ("river", "\u6771\u4eac?", "z" * 300):
        status, found = asked(query=query, top=4)
        assert status == 200 and found.keys() == {"model", "passages"} and found["model"] == "library"
        same(found["passages"], model.search(index, query, 4))
    status, found = asked(model="library", inputs=[{"query": "river"}, {"query": ""}, {"query": "x y", "top": 1}])
    assert [len(one.get("passages", ())) for one in found["outputs"]] == [5, 0, 1]
    assert "query is empty" in found["outputs"][1]["error"]["reason"]


@pytest.mark.slow
def test_documents_of_a_request_are_searched_as_an_index_of_them(
    asked: Asked, folders: dict[str, Path], tmp_path: Path
) -> None:
    documents = [*TEXTS, "caf\u00e9 river " * 30]
    texts, made = tmp_path / "texts.txt", tmp_path / "index"
    texts.write_text("\n".join(documents) + "\n", encoding="utf-8")
    search.main(["index", str(texts), str(made), "--model", str(folders["fill"])])
    hits = bert.load(folders["fill"]).search(made, "which river", 6)
    status, found = asked(query="which river", top=6, documents=documents)
    assert status == 200
    for one in found["passages"]:
        assert documents[int(one["id"])][one["start"] : one["end"]] == one["text"]
        one["id"] = str(int(one["id"]) + 1)  # of lines they begin with 1
    same(found["passages"], hits)


@pytest.mark.parametrize("documents", [None, ["a river", "b \u6771\u4eac c", "caf\u00e9 " * 90]])
def test_the_answer_is_that_of_the_passages_found(asked: Asked, models: Models, documents: list[str] | None) -> None:
    status, found = asked(query="a river", top=2, answer=True, documents=documents)
    assert status == 200
    with client(models) as other:
        context = [one["text"] for one in found["passages"]]
        told = other.post("/v1/answer", json={"question": "a river", "context": context}).json()
    assert found.keys() == told.keys() | {"passages"} and (found["answer"] is None) == (told["answer"] is None)
    assert found["candidates"] and len(found["candidates"]) == len(told["candidates"])
    for one, other_one in zip(found["candidates"], told["candidates"], strict=True):
        assert one["probability"] == pytest.approx(other_one["probability"], abs=1e-5)
        assert context[one["passage"]][one["start"] : one["end"]] == one["text"]


def test_answers_and_plain_searches_stand_in_one_request(asked: Asked) -> None:
    inputs: list[dict[str, Any]] = [{"query": "a river", "top": 2, "answer": n % 2 == 0} for n in range(4)]
    inputs.append({"query": "a", "documents": [" "]})
    status, found = asked(model="library", inputs=inputs)
    assert status == 200
    assert ["candidates" in one for one in found["outputs"]] == [True, False, True, False, False]
    assert "the documents have no words" in found["outputs"][4]["error"]["reason"]


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"query": " "}, 400, "query is empty"),
        ({}, 400, "no query"),
        ({"query": "a", "top": 0}, 400, "top is 0; send 1 to 100"),
        ({"query": "a", "top": 101}, 400, "top is 101"),
        ({"query": "a", "answer": "yes"}, 400, "answer is 'yes'"),
        ({"query": "a", "documents": []}, 400, "documents is empty"),
        ({"query": "a", "documents": [""]}, 400, "the documents have no words"),
        ({"query": "a", "documents": "a"}, 400, "documents"),
        ({"query": "a", "documents": ["a"] * 8}, 400, "more than 7 passages"),
        ({"query": "a", "documents": ["a" * 6000]}, 413, "more than 5,000 bytes"),
        ({"query": "a", "top": 100, "answer": True, "documents": ["a b c " * 300]}, 400, "more than 7 passages"),
        ({"query": "a", "inputs": [{"query": "a"}]}, 400, "other fields stand beside it"),
        ({"model": "fill", "query": "a"}, 404, "no model 'fill' here for /v1/search"),
        ({"inputs": [{"query": "a river", "answer": True, "top": 2}] * 20}, 400, "more than 29 windows together"),
    ],
)
def test_a_bad_search_is_told_why(fields: dict[str, Any], status: int, reason: str, asked: Asked) -> None:
    found, answer = asked(**fields)
    assert (found, answer["error"]["status"]) == (status, status) and reason in answer["error"]["reason"]


@pytest.mark.slow
def test_a_service_may_have_no_index_or_nobody_who_answers(folders: dict[str, Path], tmp_path: Path) -> None:
    alone = Models({"tag": folders["tag"]}, "float32", 4, search=Search(index=None, encoder=folders["fill"]))
    with client(alone) as found:
        assert "no index here; send documents" in found.post("/v1/search", json={"query": "a"}).text
        assert "no model here answers questions" in found.post("/v1/search", json={"query": "a", "answer": True}).text
        assert found.post("/v1/search", json={"query": "a", "documents": ["b"]}).status_code == 200
        details = found.get("/v1/models").json()["models"][1]
        assert (details["name"], details["uses"], details["passages"]) == ("fill", ["search"], 0)
    with client(Models({"tag": folders["tag"]}, "float32", 4)) as found:
        assert found.post("/v1/search", json={"query": "a"}).status_code == 404


@pytest.mark.slow
def test_a_new_index_takes_the_place_of_the_old_one_and_a_bad_one_does_not(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, made = tmp_path / "texts.txt", tmp_path / "index"

    def write(*lines: str) -> None:
        texts.write_text("\n".join(lines) + "\n")
        search.main(["index", str(texts), str(made), "--model", str(folders["fill"])])

    write("a river")
    served = Models({}, "float32", 4, search=Search(index=made, encoder=None))
    with client(served) as found:

        def ids() -> list[str]:
            answer = found.post("/v1/search", json={"query": "a"}).json()
            return sorted(one["text"] for one in answer["passages"])

        assert ids() == ["a river"] and served.reload() == []
        write("a river", "b")
        assert ids() == ["a river"]  # the files of the old one are still open
        assert served.reload() == ["index"] and ids() == ["a river", "b"]
        (made / "manifest.json").write_text("{}")
        assert served.reload() == [] and "the earlier one serves on" in capsys.readouterr().err
        assert ids() == ["a river", "b"]
    with pytest.raises(InputError, match="made by another model"):
        write_index = tmp_path / "other"
        search.main(["index", str(texts), str(write_index), "--model", str(folders["fill"])])
        Models({}, "float32", 4, search=Search(index=write_index, encoder=runs.of_questions(tmp_path / "run")))
