"""Question sets are read whole, and each fault is named."""

import json
import lzma
from typing import Any

import pytest

from bert.errors import InputError
from squad import examples
from squad.examples import Answer

CONTEXT = "Ada met Bob. Then Bob met Cid."


def tree(**changes):
    """A file of one question, with keys of the question replaced, or removed where the value is None."""
    answers = [{"text": "Bob", "answer_start": 18}]
    qa = {"id": "q1", "question": "Whom did Ada meet?", "answers": answers} | changes
    qa = {key: value for key, value in qa.items() if value is not None}
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": [qa]}]}]}


def written(tmp_path, content):
    path = tmp_path / "train.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_compressed_file_reads_like_a_plain_one(tmp_path):
    plain = written(tmp_path, tree())
    packed = tmp_path / "train.json.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    dataset = examples.read(packed)
    assert dataset == examples.read(plain)
    assert dataset.passages == [CONTEXT]
    assert dataset.examples[0].answers == (Answer(text="Bob", start=18),)


def test_equal_passages_are_held_once(tmp_path):
    content = tree()
    content["data"].append(tree(id="q2")["data"][0])
    dataset = examples.read(written(tmp_path, content))
    assert dataset.passages == [CONTEXT]
    assert [example.passage for example in dataset.examples] == [0, 0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([], "a list, not an object"),
        ({"version": "1.1"}, "no 'data'"),
        ({"data": []}, "no questions"),
        ({"data": [{"title": "t", "paragraphs": []}]}, "no questions"),
        ({"data": [{"title": "t"}]}, "article 0: no 'paragraphs'"),
        ({"data": [7]}, "article 0: an integer, not an object"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "no questions"),
        ({"data": [{"paragraphs": [{"context": CONTEXT}]}]}, "article 0, paragraph 0: no 'qas'"),
        ({"data": [{"paragraphs": [{"qas": [{"id": "q1", "question": "?"}]}]}]}, r"\(id 'q1'\): no 'context'"),
        ('{"data": %s}' % ("9" * 5000), "not JSON"),
        (tree(id=None), "question 0: no 'id'"),
        (tree(id=7), "'id' is an integer, not a string"),
        (tree(question=None), r"\(id 'q1'\): no 'question'"),
        (tree(question=["?"]), "'question' is a list, not a string"),
        (tree(answers="Bob"), "'answers' is a string, not a list"),
        (tree(answers=[{"text": "Bob"}]), r"\(id 'q1'\), answer 0: no 'answer_start'"),
        (tree(answers=[{"text": "Bob", "answer_start": True}]), "'answer_start' is a boolean, not an integer"),
        (tree(answers=[{"text": "Bob", "answer_start": float("nan")}]), "'answer_start' is a number, not an integer"),
        (tree(question="half of \ud83d"), "surrogate pair at character 8"),
    ],
)
def test_malformed_files_are_refused_with_place_and_reason(tmp_path, content, reason):
    with pytest.raises(InputError, match=f"train.json: .*{reason}"):
        examples.read(written(tmp_path, content))


def test_an_id_may_occur_once_only(tmp_path):
    content = tree()
    content["data"] *= 2
    with pytest.raises(InputError, match=r"article 1.*'q1'.*occurs twice"):
        examples.read(written(tmp_path, content))


@pytest.mark.parametrize(
    ("claimed", "found"), [(8, 8), (18, 18), (9, 8), (12, 8), (14, 18), (10**9, 18), (-5, 8), (30, 18)]
)
def test_a_misplaced_answer_is_taken_at_its_nearest_occurrence(claimed, found):
    assert examples.locate(CONTEXT, Answer(text="Bob", start=claimed)) == found
    assert CONTEXT[found:].startswith("Bob")


def test_what_cannot_be_learnt_from_is_named_with_its_reason(tmp_path):
    changes: list[dict[str, Any]] = [
        {"id": "right"},
        {"id": "near", "answers": [{"text": "Bob", "answer_start": 20}]},
        {"id": "absent", "answers": [{"text": "Dora", "answer_start": 0}]},
        {"id": "blank", "answers": [{"text": " ", "answer_start": 3}]},
        {"id": "unlabelled", "answers": []},
        {"id": "impossible", "answers": [], "is_impossible": True},
    ]
    content = tree()
    content["data"] = [tree(**change)["data"][0] for change in changes]
    found = examples.spans(examples.read(written(tmp_path, content)), impossible=False)
    assert [(span.example.id, span.start, span.end) for span in found.spans] == [("right", 18, 21), ("near", 18, 21)]
    assert found.inferred == ["near"]
    assert found.dropped.keys() == {"absent", "blank", "unlabelled", "impossible"}
