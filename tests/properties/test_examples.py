"""Damaged question sets and predictions are refused, or are read with every question accounted for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bert.core.errors import UserError
from squad import examples, metric
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, damaged_json, survives
from tests.properties.test_text_sources import HARD

T = TypeVar("T")
PASSAGE = "The \U0001f600 river Rhine is 1,233 km long. Kr\u00f6nungsfest, the end."


def question(number: int, **changes: Any) -> dict[str, Any]:
    answer = {"text": "Rhine", "answer_start": PASSAGE.index("Rhine")}
    return {"id": f"q{number}", "question": "Which river?", "answers": [answer]} | changes


GOOD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Rhine",
            "paragraphs": [
                {"context": PASSAGE, "qas": [question(1), question(2, answers=[], is_impossible=True)]},
                {"context": PASSAGE[::-1], "qas": [question(3, answers=[{"text": "gnol", "answer_start": 0}])]},
            ],
        }
    ],
}
LINES = b"".join(json.dumps(question(number) | {"context": PASSAGE}).encode() + b"\n" for number in range(3))
PREDICTIONS = {"q1": "Rhine", "q2": "", "q3": "the end"}
ODDS = {"q1": -3.5, "q2": 7.25, "q3": 0}
TREE, LONG = json.dumps(GOOD).encode(), b'"' + b"q" * 9999 + b'"'


def refused_or(read: Callable[[], T]) -> T | None:
    """Return what is read, or None if it is refused with a line of bounded length."""

    def bounded() -> T:
        try:
            return read()
        except UserError as error:
            assert len(str(error)) < 2000
            raise

    return survives(bounded)


def check(dataset: examples.Dataset) -> None:
    for text in (*dataset.passages, *(fault.reason for fault in dataset.faults)):
        text.encode()
    for one in dataset.examples:
        f"{one.id}{metric.normalize(one.question)}".encode()
    found = examples.spans(dataset, impossible=True)
    assert len(found.spans) + len(found.dropped) == len(dataset.examples)
    for span in found.spans:
        if span.start >= 0:
            passage = dataset.passages[span.example.passage]
            assert passage[span.start : span.end] == span.example.answers[0].text


@pytest.mark.parametrize("strict", [False, True])
@given(content=damaged_json(GOOD) | damaged(TREE, HARD))
@example(content=TREE.replace(b'"q1"', LONG).replace(b"question", b"questions"))
@fuzz
def test_a_question_set_is_refused_or_its_spans_are_in_its_passages(
    strict: bool, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "dev.json"
    path.write_bytes(content)
    dataset = refused_or(lambda: examples.read_dataset(path, strict=strict))
    if dataset:
        check(dataset)
        assert not (strict and dataset.faults)


@pytest.mark.parametrize("strict", [False, True])
@given(content=damaged(LINES, HARD) | damaged_json(question(1) | {"context": PASSAGE}))
@example(content=b'{"id": "a", ' + b", ".join(b'"k%d": 1' % number for number in range(999)) + b"}")
@fuzz
def test_questions_by_line_are_refused_or_their_spans_are_in_their_passages(
    strict: bool, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_bytes(content)
    pieces = refused_or(lambda: list(examples.read_pieces(path, strict=strict, questions=1)))
    for dataset in pieces or ():
        check(dataset)


@given(
    predictions=damaged_json(PREDICTIONS) | damaged(json.dumps(PREDICTIONS).encode(), HARD),
    odds=st.none() | damaged_json(ODDS) | damaged(json.dumps(ODDS).encode(), HARD),
)
@fuzz
def test_predictions_are_refused_or_scored(
    predictions: bytes, odds: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = []
    for name, content in (("dev.json", json.dumps(GOOD).encode()), ("predictions.json", predictions)):
        (tmp_path / name).write_bytes(content)
        words.append(str(tmp_path / name))
    if odds is not None:
        (tmp_path / "odds.json").write_bytes(odds)
        words += ["--na_prob", str(tmp_path / "odds.json")]
    capsys.readouterr()
    refused_or(lambda: metric.main(words))
    if text := capsys.readouterr().out:
        scores = json.loads(text)
        assert 0 <= scores["exact"] <= scores["f1"] <= 100
