"""One's own multiple choice is read line by line."""

import json
from pathlib import Path
from typing import Any

import pytest

from bert.core.errors import InputError
from tasks import choices
from tasks.examples import ChoiceExample, Skipped


def line(**changes: Any) -> dict[str, Any]:
    return {"id": "a7", "context": "It rains.", "choices": ["Stay.", "Go.", "Sing."], "label": 1} | changes


def write(path: Path, *lines: Any) -> Path:
    path.write_text("\n".join(item if isinstance(item, str) else json.dumps(item) for item in lines), encoding="utf-8")
    return path


def read(path: Path, skipped: Skipped | None = None) -> list[ChoiceExample]:
    return list(choices.read(path, skipped or Skipped(strict=True)))


def test_each_choice_is_paired_with_the_context(tmp_path: Path) -> None:
    (example,) = read(write(tmp_path / "dev.jsonl", line(group="easy")))
    pairs = (("It rains.", "Stay."), ("It rains.", "Go."), ("It rains.", "Sing."))
    assert example == ChoiceExample(id="a7", pairs=pairs, label=1, group="easy")


def test_id_and_label_may_be_missing_and_empty_lines_are_no_examples(tmp_path: Path) -> None:
    bare = line()
    del bare["id"], bare["label"]
    path = write(tmp_path / "dev.jsonl", "\ufeff" + json.dumps(line(label=None)), " ", bare, line(id=5, label=None))
    assert [(example.id, example.label) for example in read(path)] == [("a7", None), ("2", None), ("5", None)]


def test_a_file_without_labels_has_none_in_any_line(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", line(label=None), line())
    with pytest.raises(InputError, match="line 2: the first to have a label"):
        read(path)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"id": ', "not JSON"),
        ("3", "not a JSON object"),
        (line(id=True), "'id'"),
        (line(id="\ud800"), "half a surrogate pair"),
        (line(context=" "), "'context'"),
        (line(context=["It rains."]), "'context'"),
        (line(choices=["Stay."]), "'choices' is not a list of at least 2"),
        (line(choices="Stay."), "'choices'"),
        (line(choices=["Stay.", "", "Sing."]), "one of 'choices'"),
        (line(choices=["Stay.", "Go."]), "2 choices, where the first example has 3"),
        (line(label=None), "no label, unlike the first example"),
        (line(label=3), "'label' is '3': not an index of the 3 choices"),
        (line(label=-1), "'label'"),
        (line(label=True), "'label'"),
        (line(label="one"), "'label' is 'one': not an index of the 3 choices, from 0, or a letter"),
        (line(label="D"), "'label'"),
        (line(label="1", choices=["1", "2", "3"]), "'1', which could be several of the choices"),
        (line(question=["?"]), "'question'"),
        (line(group=4), "'group'"),
    ],
)
def test_a_malformed_line_is_left_out_with_its_number(tmp_path: Path, bad: Any, reason: str) -> None:
    path = write(tmp_path / "dev.jsonl", line(), bad, line(id="last", label=0))
    skipped = Skipped()
    assert [example.id for example in read(path, skipped)] == ["a7", "last"]
    assert skipped.count == 1
    assert skipped.reasons[0].startswith(f"{path}: line 2: ")
    assert reason in skipped.reasons[0]
    with pytest.raises(InputError, match="line 2"):
        read(path)


def test_labels_that_count_from_1_are_refused_and_a_single_wrong_one_is_left_out(tmp_path: Path) -> None:
    from_1 = write(tmp_path / "a.jsonl", *(line(id=n, label=1 + n % 3) for n in range(5)))
    with pytest.raises(InputError, match=r"a\.jsonl: the labels seem to count the choices from 1"):
        read(from_1, Skipped())
    from_0 = write(tmp_path / "b.jsonl", *(line(id=n, label=n) for n in range(4)))
    assert [example.label for example in read(from_0, Skipped())] == [0, 1, 2]


TWO = ["Stay.", "Go."]


@pytest.mark.parametrize(
    ("row", "pair", "label"),
    [  # as on the cards of Rowan/hellaswag, allenai/ai2_arc, tau/commonsense_qa, allenai/openbookqa and ehovy/race
        ({"ctx": "It rains.", "ctx_a": "a", "endings": TWO, "label": "1", "ind": 7}, ("It rains.", "Go."), 1),
        (
            {"question": "What?", "choices": {"text": TWO, "label": ["A", "B"]}, "answerKey": "B"},
            ("What?", "Go."),
            1,
        ),
        ({"question": "What?", "choices": {"text": TWO, "label": ["1", "2"]}, "answerKey": "1"}, ("What?", "Go."), 0),
        (
            {"question_stem": "I", "choices": {"text": TWO, "label": ["A", "B"]}, "answerKey": ""},
            ("I", "Go."),
            None,
        ),
        (
            {"article": "It rains.", "question": "I _ now.", "options": TWO, "answer": "A", "example_id": "high1.txt"},
            ("I Go. now.", "It rains."),
            0,
        ),
        ({"context": "It rains.", "question": "What?", "choices": TWO, "label": 1.0}, ("What? Go.", "It rains."), 1),
        ({"context": "It rains.", "choices": TWO, "label": "0"}, ("It rains.", "Go."), 0),
        ({"context": "It rains.", "choices": TWO, "label": "B"}, ("It rains.", "Go."), 1),
        ({"context": "It rains.", "choices": TWO, "label": "Go."}, ("It rains.", "Go."), 1),
        ({"question": "What?", "choices": TWO, "answer": 1}, ("What?", "Go."), 1),  # cais/mmlu
        ({"question": "I", "choices": {"text": ["2", "1"], "label": ["1", "2"]}, "answerKey": "1"}, ("I", "1"), 0),
    ],
)
def test_rows_of_published_sets_are_read(
    tmp_path: Path, row: dict[str, Any], pair: tuple[str, str], label: int | None
) -> None:
    (example,) = read(write(tmp_path / "dev.jsonl", row))
    assert example.pairs[1] == pair and example.label == label and example.id == "0"
    parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "dev.parquet")
    assert read(tmp_path / "dev.parquet") == [example]


def test_other_names_are_told_with_those_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", {"goal": "a", "sol1": "b", "sol2": "c", "label": 0})
    with pytest.raises(InputError, match="'context' is not a string, or empty; its keys are 'goal', 'sol1', 'sol2'"):
        read(path)


def test_an_id_with_a_point_is_the_whole_number_and_none_is_that_of_the_line(tmp_path: Path) -> None:
    path = write(tmp_path / "dev.jsonl", line(id=7.0), line(id=None), line(id=""))
    assert [example.id for example in read(path)] == ["7", "1", "2"]
