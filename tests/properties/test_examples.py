"""Damaged question sets and predictions are refused, or are read with every question accounted for."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squad import examples, metric
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, damaged_json, survives

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


def check(dataset: examples.Dataset) -> None:
    found = examples.spans(dataset, impossible=True)
    assert len(found.spans) + len(found.dropped) == len(dataset.examples)
    for span in found.spans:
        if span.start >= 0:
            passage = dataset.passages[span.example.passage]
            assert passage[span.start : span.end] == span.example.answers[0].text


@pytest.mark.parametrize("strict", [False, True])
@given(content=damaged_json(GOOD))
@fuzz
def test_a_question_set_is_refused_or_its_spans_are_in_its_passages(
    strict: bool, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "dev.json"
    path.write_bytes(content)
    dataset = survives(lambda: examples.read_dataset(path, strict=strict))
    if dataset:
        check(dataset)
        assert not (strict and dataset.faults)


@given(content=damaged(LINES) | damaged_json(question(1) | {"context": PASSAGE}))
@fuzz
def test_questions_by_line_are_refused_or_their_spans_are_in_their_passages(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_bytes(content)
    pieces = survives(lambda: list(examples.read_pieces(path, strict=False, questions=1)))
    for dataset in pieces or ():
        check(dataset)


@given(predictions=damaged_json(PREDICTIONS), odds=st.none() | damaged_json(ODDS))
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
    survives(lambda: metric.main(words))
    if text := capsys.readouterr().out:
        scores = json.loads(text)
        assert 0 <= scores["exact"] <= scores["f1"] <= 100
