"""Indexes: what is found, what is kept and encoded again, what is refused, and what a kill leaves."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert
from bert import hidden_states, resumable
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.retrieval import index as public
from extensions.search import search
from extensions.search.index import Index
from tests.serve import runs

TEXTS = [f"caf{'e' * (number % 5)} river {number} " * (1 + number % 4) for number in range(23)]


class Killed(BaseException):
    """Ends a command as a kill does: nothing of ours catches it."""


class Made:
    """A run, a file of texts, and the folder of their index; counts the texts that are encoded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model, self.texts, self.output = folder / "run", folder / "texts.jsonl", folder / "index"
        runs.of_pretraining(self.model)
        self.write(TEXTS)
        self.encoded, self.last = 0, 10**9
        batch = hidden_states.Reader._batch

        def counted(reader: Any, ids: np.ndarray, mask: np.ndarray) -> Any:
            if self.encoded >= self.last:
                raise Killed
            self.encoded += len(ids)
            return batch(reader, ids, mask)

        monkeypatch.setattr(hidden_states.Reader, "_batch", counted)
        made = hidden_states.Reader.__init__
        monkeypatch.setattr(made, "__kwdefaults__", (made.__kwdefaults__ or {}) | {"compiled": False})  # no XLA

    def write(self, texts: list[str]) -> None:
        lines = (json.dumps({"_id": f"d{n}", "title": f"b{n % 3}", "text": text}) for n, text in enumerate(texts))
        self.texts.write_text("\n".join(lines) + "\n")

    def index(self, *more: str) -> int:
        """Run the command; return how many passages it encoded."""
        self.encoded = 0
        given = ["--model", str(self.model), "--length", "19", "--batch", "4", *more]
        search.main(["index", str(self.texts), str(self.output), *given])
        return self.encoded

    def content(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.output.iterdir()}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--score", "dot", "--dtype", "float16", "--pool", "cls")])
def test_what_is_found_is_what_comparing_all_embeddings_finds(
    more: tuple[str, ...], made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    made.index(*more)
    model, opened = bert.load(made.model, batch=4), Index.open(str(made.output))
    passages = [opened.passage(row) for row in range(len(opened))]
    assert [one.text for one in passages] == [TEXTS[int(one.id[1:])][one.start : one.end] for one in passages]
    assert len(passages) > len(TEXTS)  # some are divided
    pool: Any = "cls" if more else "auto"
    vectors = model.embed([f"{one.title} {one.text}" for one in passages], pool=pool).astype(np.float64)
    queries = ["cafe river 3", "b2", "x"]
    asked = model.embed(queries, pool=pool).astype(np.float64)
    if not more:
        vectors, asked = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (vectors, asked))
    scores = asked @ vectors.T
    for found, expected in zip(model.search(opened, queries, top=9), scores, strict=True):
        best = np.sort(expected)[::-1][:9]
        np.testing.assert_allclose([one.score for one in found], best, rtol=1e-2 if more else 1e-4)
        for one in found:
            row = next(n for n, p in enumerate(passages) if (p.id, p.start, p.text) == (one.id, one.start, one.text))
            assert one.score == pytest.approx(expected[row], rel=1e-2 if more else 1e-4)
    capsys.readouterr()
    search.main(["query", str(made.output), "cafe", "river", "3", "--top", "2", "--json"])
    told = json.loads(capsys.readouterr().out)["passages"]
    for one, hit in zip(told, model.search(made.output, "cafe river 3", top=2), strict=True):
        assert {**one, "score": pytest.approx(hit.score, abs=1e-3)} == {n: getattr(hit, n) for n in one}
    search.main(["query", str(made.output), "cafe river 3", "--top", "1"])
    shown = capsys.readouterr().out
    assert told[0]["id"] in shown and " ".join(told[0]["text"].split()) in shown


@pytest.mark.slow
def test_a_second_index_encodes_what_is_new_and_leaves_out_what_is_gone(made: Made, tmp_path: Path) -> None:
    first = made.index()
    assert made.index() == 0  # up to date
    before = Index.open(made.output)
    kept = {before.passage(row)[1:]: before.vectors[row].copy() for row in range(len(before))}
    texts = [*TEXTS[3:11], "river x", *TEXTS[:2], "river x"]
    made.write(texts)
    changed = made.index()
    assert 0 < changed < first
    after, again = Index.open(made.output), {}
    assert {after.passage(row).id for row in range(len(after))} == {f"d{n}" for n in range(len(texts))}
    for row in range(len(after)):
        if (old := kept.get(after.passage(row)[1:])) is not None:
            np.testing.assert_array_equal(after.vectors[row], old)
        again[row] = after.vectors[row].copy()
    made.output.rename(tmp_path / "elsewhere")
    assert made.index() > changed  # all of it: the same vectors up to the batches in which they were computed
    anew = Index.open(made.output)
    np.testing.assert_allclose(anew.vectors, list(again.values()), atol=1e-5)
    assert (made.output / "passages.jsonl").read_bytes() == (tmp_path / "elsewhere" / "passages.jsonl").read_bytes()


def test_equal_passages_are_encoded_once(made: Made) -> None:
    made.texts = made.texts.with_suffix(".txt")
    made.texts.write_text("a river\nb\na river\na river\n")
    assert made.index() == 2
    vectors = Index.open(made.output).vectors
    assert (vectors[0] == vectors[2]).all() and (vectors[0] == vectors[3]).all() and (vectors[0] != vectors[1]).any()


@pytest.mark.slow
def test_after_a_kill_the_same_command_goes_on_and_another_does_not(
    made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(resumable, "SECONDS", 0.0)
    made.index()
    expected, total = made.content(), made.encoded
    made.write(TEXTS[:9])
    made.output.rename(tmp_path / "whole")
    made.index()
    small = made.content()
    made.write(TEXTS)
    made.last = 9
    with pytest.raises(Killed):
        made.index()
    assert made.content() == small  # the earlier index is as it was
    made.last = 10**9
    went_on = made.index()
    assert 0 < went_on < total - 9
    np.testing.assert_allclose(
        np.load(made.output / "vectors.npy"), np.load(tmp_path / "whole" / "vectors.npy"), atol=1e-5
    )
    assert made.content()["passages.jsonl"] == expected["passages.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "run", "texts.jsonl", "whole"]


@pytest.mark.slow
def test_what_is_kept_after_a_kill_belongs_to_the_index_that_was_there(
    made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without that index other passages are encoded, so the kept vectors would be those of other texts."""
    monkeypatch.setattr(resumable, "SECONDS", 0.0)
    made.write(TEXTS[:9])
    made.index()
    made.write(TEXTS)
    made.last = 9
    with pytest.raises(Killed):
        made.index()
    made.output.rename(tmp_path / "gone")
    made.last = 10**9
    made.index()
    assert "of other flags; beginning anew" in capsys.readouterr().err
    opened, model = Index.open(made.output), bert.load(made.model)
    read = [f"{one.title} {one.text}" for one in map(opened.passage, range(len(opened)))]
    vectors = model.embed(read)
    np.testing.assert_allclose(opened.vectors, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=1e-5)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vectors.npy", "passages.jsonl", "offsets.npy", "keys.npy", "manifest.json"])
def test_a_damaged_file_is_refused_by_its_name(name: str, made: Made) -> None:
    made.index()
    _flip(made.output / name)
    for command in (["query", str(made.output), "a"], None):
        with pytest.raises(IntegrityError, match=name):
            search.main(command) if command else made.index()
    os.truncate(made.output / name, 10)
    with pytest.raises(IntegrityError, match=name):
        Index.open(made.output)


@pytest.mark.slow
def test_an_index_of_another_model_or_pool_is_refused(made: Made, tmp_path: Path) -> None:
    made.index()
    before, other = made.content(), runs.of_questions(tmp_path / "other")
    others = {"pool": "cls", "score": "dot", "dtype": "float16", "compute": "bfloat16"}
    for what, value in others.items():
        more = f"--{what}", value
        with pytest.raises(InputError, match=f"an index with another {what}; remove it, or choose another folder"):
            made.index(*more)
    made.model = other
    with pytest.raises(InputError, match="an index with another model"):
        made.index()
    with pytest.raises(InputError, match="made by another model than"):
        search.main(["query", str(made.output), "a", "--model", str(other)])
    with pytest.raises(InputError, match="made by another model than"):
        bert.load(other).search(made.output, "a")
    assert made.content() == before
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(InputError, match=r"its model is no longer at .*/run; give the run directory \(--model\)"):
        search.main(["query", str(made.output), "a"])
    search.main(["query", str(made.output), "a", "--model", str(tmp_path / "moved")])


def test_what_cannot_be_done_is_said(made: Made, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no index; make one: python -m bert\.search index"):
        Index.open(made.output)
    with pytest.raises(InputError, match="made by"):
        Index.open(next((made.model / "checkpoints").iterdir()))
    made.texts.write_text('{"text": " "}\n')
    with pytest.raises(InputError, match="no text with a word"):
        made.index()
    assert not made.output.exists()
    made.write(TEXTS)
    made.output.mkdir()
    (made.output / "mine").touch()
    with pytest.raises(UsageError, match="not made by this program"):
        made.index()
    for wrong, problem in (
        (["qery"], "no command 'qery'; did you mean query"),
        ([], "no command given; give one of index query"),
        (["query", "a", " "], "the query is empty"),
        (["query", "a", "b", "--top", "0"], "must be from 1"),
        (["index", "a", "b", "--model", "c", "--length", "4"], "must be from 8"),
    ):
        with pytest.raises(UsageError, match=problem):
            search.main(wrong)


@pytest.mark.slow
def test_a_question_is_answered_from_what_is_found(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.index()
    reader = runs.of_questions(tmp_path / "reader", impossible=False)
    capsys.readouterr()
    search.main(["query", str(made.output), "which river?", "--top", "5", "--json", "--answer", str(reader)])
    told = json.loads(capsys.readouterr().out)
    answer, passages = told["answer"], told["passages"]
    found = passages[answer["passage"]]
    assert answer["text"] and found["text"][answer["start"] : answer["end"]] == answer["text"]
    model = bert.load(reader)
    alone = [model.answer("which river?", one["text"]) for one in passages]
    assert answer["text"] in {one.text for one in alone}
    assert sum(one["probability"] for one in answer["candidates"]) == pytest.approx(1)
    # Within a passage, the odds of two candidates do not depend on the other passages.
    mine = [one for one in answer["candidates"] if one["passage"] == answer["passage"]]
    there = {one.text: one.probability for one in alone[answer["passage"]].candidates}
    for one, other in itertools.pairwise(mine):
        odds = there[one["text"]] / there[other["text"]]
        assert one["probability"] / other["probability"] == pytest.approx(odds, rel=1e-3)
    search.main(["query", str(made.output), "which river?", "--top", "5", "--answer", str(reader)])
    assert f">>>{' '.join(answer['text'].split())}<<<" in capsys.readouterr().out
    with pytest.raises(UsageError, match="this model has no answer"):
        bert.load(made.model).answer_among("which?", ["a"])
    with pytest.raises(UsageError, match="give a list"):
        model.answer_among("which?", "a")  # type: ignore[arg-type]


def test_the_name_for_users_is_the_class() -> None:
    assert public.Index is Index and not hasattr(public, "Passages")
