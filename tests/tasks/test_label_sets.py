"""The forms in which files say that a text has several labels, or none."""

import json
from pathlib import Path

import pytest

from bert.core.errors import InputError, UsageError
from tasks import datasets, label_sets
from tasks.config import TaskData
from tasks.examples import Skipped

JIGSAW = ("toxic", "threat", "insult")


def read(path: Path, content: str, **settings: object) -> list[tuple[tuple[str, ...] | None, tuple[str, ...]]]:
    path.write_text(content)
    data = TaskData(task="multilabel", **{"label": "labels"} | settings)  # type: ignore[arg-type]
    datasets.check(data)
    return [(one.labels, one.unknown) for one in datasets.of(data).read(data, path, "train", Skipped(strict=True))]


def test_lists_names_in_a_field_and_columns_say_the_same(tmp_path: Path) -> None:
    sets: list[list[str]] = [["toxic", "insult"], [], ["threat"]]
    expected = [(tuple(names), ()) for names in sets]
    lines = "\n".join(json.dumps({"text": "a", "labels": names}) for names in sets)
    assert read(tmp_path / "a.jsonl", lines) == expected
    for separator in (",", " ", "|", ", "):
        rows = "\n".join(f"a\t{separator.join(names)}" for names in sets)
        assert read(tmp_path / "a.tsv", f"text\tlabels\n{rows}\n", separator=separator) == expected
    rows = "\n".join(f'a,"{names}"' for names in sets)  # as pandas writes lists
    assert read(tmp_path / "a.csv", f"text,labels\n{rows}\n") == expected
    rows = "\n".join(f'a,"{tuple(names)}"' for names in sets)
    assert read(tmp_path / "a.csv", f"text,labels\n{rows}\n") == expected
    assert read(tmp_path / "a.csv", "text,labels\na,{'toxic'}\na,set()\n") == [(("toxic",), ()), ((), ())]
    rows = "\n".join(",".join(["a", *(str(int(name in names)) for name in JIGSAW)]) for names in sets)
    of_columns = read(tmp_path / "b.csv", f"text,{','.join(JIGSAW)}\n{rows}\n", label_columns=JIGSAW)
    assert [({*(found or ())}, unknown) for found, unknown in of_columns] == [({*names}, ()) for names in sets]


def test_numbers_are_names_and_labels_may_be_unknown(tmp_path: Path) -> None:
    assert read(tmp_path / "a.jsonl", '{"text": "a", "labels": [27, 2, 27]}') == [(("27", "2"), ())]
    row = '{"text": "a", "toxic": true, "threat": -1, "insult": 0}'
    assert read(tmp_path / "a.jsonl", row, label_columns=JIGSAW) == [(("toxic",), ("threat",))]


@pytest.mark.parametrize(
    ("name", "content", "columns", "reason"),
    [
        ("a.jsonl", '{"text": "a", "labels": null}', (), "labels is None, not a list of the names of labels"),
        ("a.jsonl", '{"text": "a", "labels": [["b"]]}', (), r"labels is \[\['b'\]\], not a list"),
        ("a.csv", "text,labels\na,[2 27]\n", (), r"'\[2 27\]' is not a list"),
        ("a.csv", "text,labels\na,\"['b'\n 'c']\"\n", (), "names without a comma between them"),
        ("a.csv", "text,labels\na,{'b': 1}\n", (), "is not a list of the names"),
        ("a.csv", 'text,labels\na,"b,,c"\n', (), "not a list of the names"),
        ("a.csv", "text,toxic,threat,insult\na,1,0,2\n", JIGSAW, "insult is '2', not 0, 1 or -1"),
        ("a.csv", "text,toxic,threat,insult\na,-1,-1,-1\n", JIGSAW, "all labels are -1"),
        ("a.csv", "text,toxic,threat\na,1,0\n", JIGSAW, "the column 'insult' is missing"),
    ],
)
def test_a_row_that_does_not_say_is_named(
    tmp_path: Path, name: str, content: str, columns: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        read(tmp_path / name, content, label_columns=columns)


def test_one_column_is_a_question_for_classify(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"one label is two classes; use classify with --data\.label toxic"):
        read(tmp_path / "a.csv", "text,toxic\na,1\n", label_columns=("toxic",))
    with pytest.raises(UsageError, match="are for multilabel"):
        datasets.check(TaskData(task="classify", label_columns=JIGSAW))


@pytest.mark.parametrize(
    ("name", "content"),
    [  # by place, as MultiLabelBinarizer of scikit-learn, simpletransformers and the text of arrays have them
        ("a.jsonl", '{"text": "a", "labels": [1, 0, 1]}'),
        ("a.jsonl", '{"text": "a", "labels": [0.0, 0.0]}'),
        ("a.jsonl", '{"text": "a", "labels": [true, false]}'),
        ("a.jsonl", '{"text": "a", "labels": ["1", "0", "0"]}'),
        ("a.jsonl", '{"text": "a", "labels": "1 0 1"}'),
        ("a.csv", 'text,labels\na,"[1, 0, 1]"\n'),
        ("a.csv", 'text,labels\na,"1,0,1"\n'),
        *(("a.csv", f"text,labels\na,{mark.join('101')}\n") for mark in ";:_-|"),
        ("a.csv", 'text,labels\na,"Yes,No,No"\n'),
        ("a.csv", "text,labels\na,[1 0]\n"),
        ("a.csv", "text,labels\na,[0. 1. 0.]\n"),
        ("a.csv", "text,labels\na,[ True False]\n"),
        ("a.csv", 'text,labels\na,"tensor([1., 0.])"\n'),
        ("a.csv", 'text,labels\na,"array([0., 1.], dtype=float32)"\n'),
    ],
)
def test_places_of_labels_are_no_names(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(InputError, match=r"0 or 1 for each label; give a column .*--data\.label_columns"):
        read(tmp_path / name, content)
    data = TaskData(task="multilabel", label="labels")
    with pytest.raises(InputError, match=r"line [12]"):  # not only left out
        list(datasets.of(data).read(data, tmp_path / name, "train", Skipped()))


def test_places_without_a_repetition_are_found_by_all_rows() -> None:
    for names in (["1", "0"], ["0", "1", "-1"], ["1 0", "0 1"], ["(1", "0)"], ["010", "101"], ["1"], ["True", "False"]):
        assert label_sets.are_positions(names)
    for names in (["0", "1", "2"], ["27", "1"], ["toxic", "0"], ["10", "2"], []):
        assert not label_sets.are_positions(names)


def test_a_number_with_a_point_is_the_whole_number(tmp_path: Path) -> None:
    assert read(tmp_path / "a.jsonl", '{"text": "a", "labels": [27.0, 2.0]}') == [(("27", "2"), ())]
    with pytest.raises(InputError, match=r"labels has 0\.5, not the name of a label"):
        read(tmp_path / "a.jsonl", '{"text": "a", "labels": [0.5, 0.2]}')
