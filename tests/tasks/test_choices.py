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
        (line(label=3), "'label' is not an index of the 3 choices"),
        (line(label=-1), "'label'"),
        (line(label=True), "'label'"),
        (line(label="1"), "'label'"),
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
