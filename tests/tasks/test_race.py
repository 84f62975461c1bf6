"""RACE's files become pairs of question with answer, and article."""

import json
from pathlib import Path
from typing import Any

import pytest

from bert.core.errors import InputError
from tasks import race
from tasks.examples import ChoiceExample, Skipped

ARTICLE = "The Rhine is long.\nIt has many ships."
OPTIONS = ["Rhine", "Elbe", "Aare", "Thur"]


def passage(**changes: Any) -> dict[str, Any]:
    return {
        "article": ARTICLE,
        "questions": ["Which river is long?", "The _ is long, and _ has ships."],
        "options": [OPTIONS, OPTIONS[::-1]],
        "answers": ["A", "D"],
        "id": "high1.txt",
    } | changes


def write(folder: Path, name: str, record: Any, level: str = "high", split: str = "train") -> None:
    path = folder / split / level / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record if isinstance(record, str) else json.dumps(record), encoding="utf-8")


def read(
    folder: Path, skipped: Skipped | None = None, levels: tuple[race.Level, ...] = ("high",)
) -> list[ChoiceExample]:
    return list(race.read(folder, "train", levels, skipped or Skipped(strict=True)))


def test_an_option_stands_in_every_blank_or_behind_the_question(tmp_path: Path) -> None:
    write(tmp_path, "1.txt", passage())
    first, second = read(tmp_path)
    assert first.pairs[2] == ("Which river is long? Aare", ARTICLE)
    assert second.pairs[2] == ("The Elbe is long, and Elbe has ships.", ARTICLE)
    assert (first.id, first.label, first.group) == ("high/1.txt/0", 0, "high")
    assert (second.id, second.label, second.group) == ("high/1.txt/1", 3, "high")


def test_a_blank_may_have_several_underscores() -> None:
    assert race.with_answer("___ is long; __ has a _.", "It") == "It is long; It has a It."


def test_answers_are_not_looked_at_where_none_are_needed(tmp_path: Path) -> None:
    names = {"1.txt": passage(answers=None), "2.txt": passage(answers=["", 7, "A"]), "3.txt": passage()}
    del names["1.txt"]["answers"]
    for name, record in names.items():
        write(tmp_path, name, record)
    found = list(race.read(tmp_path, "train", ("high",), Skipped(strict=True), answers=False))
    assert [example.label for example in found] == [None] * 6
    assert [example.pairs for example in found] == [example.pairs for example in found[:2]] * 3


def test_a_backslash_in_an_option_is_text(tmp_path: Path) -> None:
    write(tmp_path, "1.txt", passage(options=[OPTIONS, [r"\1", r"\g<0>", "_", "d"]]))
    assert [pair[0] for pair in read(tmp_path)[1].pairs] == [
        r"The \1 is long, and \1 has ships.",
        r"The \g<0> is long, and \g<0> has ships.",
        "The _ is long, and _ has ships.",
        "The d is long, and d has ships.",
    ]


def test_files_are_read_by_number_and_levels_as_asked(tmp_path: Path) -> None:
    for name in ("10.txt", "9.txt", "100.txt", "x.txt", "._9.txt", "notes.md"):
        write(tmp_path, name, "" if name in ("._9.txt", "notes.md") else passage())
    write(tmp_path, "7.txt", passage(), level="middle")
    names = [example.id for example in read(tmp_path, levels=("middle", "high"))[::2]]
    assert names == ["middle/7.txt/0", "high/9.txt/0", "high/10.txt/0", "high/100.txt/0", "high/x.txt/0"]
    assert [example.id for example in read(tmp_path)[::2]] == names[1:]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        (passage(article=" \n"), "no article"),
        (passage(article=None), "no article"),
        (passage(questions=["one"]), "1 questions, 2 lists of options, 2 answers"),
        (passage(answers="AB"), "not three lists"),
        (passage(answers=None), "not three lists"),
    ],
)
def test_a_malformed_file_is_left_out_with_its_name(tmp_path: Path, record: Any, reason: str) -> None:
    write(tmp_path, "1.txt", record)
    write(tmp_path, "2.txt", passage())
    skipped = Skipped()
    assert [example.id for example in read(tmp_path, skipped)] == ["high/2.txt/0", "high/2.txt/1"]
    assert skipped.count == 1
    assert skipped.reasons[0].startswith(f"{tmp_path / 'train/high/1.txt'}: line 1: ")
    assert reason in skipped.reasons[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": [OPTIONS[:3], OPTIONS]}, "question 0: 3 options, not 4"),
        ({"options": ["Rhine", OPTIONS]}, "question 0: no list of options, not 4"),
        ({"options": [["Rhine", "Elbe", " ", "Thur"], OPTIONS]}, "question 0: an option is empty"),
        ({"options": [["Rhine", "Elbe", 3, "Thur"], OPTIONS]}, "question 0: an option is empty"),
        ({"answers": ["E", "A"]}, "question 0: the answer is 'E', not one of A, B, C, D"),
        ({"answers": ["", "A"]}, "question 0: the answer is ''"),
        ({"answers": [None, "A"]}, "question 0: the answer is 'None'"),
        ({"questions": [5, "Who?"]}, "question 0: its text is not a string"),
    ],
)
def test_a_malformed_question_is_left_out_and_the_others_keep_their_ids(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    write(tmp_path, "1.txt", passage(**changes))
    skipped = Skipped()
    assert [example.id for example in read(tmp_path, skipped)] == ["high/1.txt/1"]
    assert reason in skipped.reasons[0]
    with pytest.raises(InputError, match="question 0"):
        read(tmp_path)


def test_a_folder_without_the_level_or_without_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train/high: no such folder; give the folder RACE"):
        read(tmp_path)
    (tmp_path / "train" / "high").mkdir(parents=True)
    with pytest.raises(InputError, match=r"train/high: no file NUMBER\.txt"):
        read(tmp_path)
