"""SWAG's CSV becomes pairs of a sentence and its continuation."""

import csv
import io
import json
from pathlib import Path

import pytest

from bert.core.errors import InputError
from tasks import swag
from tasks.examples import ChoiceExample, Skipped

HEADER = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
HEADER += [f"ending{number}" for number in range(4)]


def row(index: int = 5, source: str = "gold", label: str | None = "2", **changes: str) -> list[str]:
    values = {"sent1": "He waits.", "sent2": "Then he", "ending0": "sits.", "ending1": 'says "no", twice.'}
    values |= {"ending2": "leaves.", "ending3": "two\nlines"} | changes
    fields = [str(index), "clip", "17", "He waits. Then he", values["sent1"], values["sent2"], source]
    return fields + [values[f"ending{number}"] for number in range(4)] + ([] if label is None else [label])


def write(path: Path, *rows: list[str], labelled: bool = True, end: str = "\n") -> Path:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows([HEADER + ["label"] * labelled, *rows])
    path.write_bytes(text.getvalue().encode())
    return path


def read(path: Path, skipped: Skipped | None = None, generated: bool = True) -> list[ChoiceExample]:
    return list(swag.read(path, skipped or Skipped(strict=True), generated))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_row_is_a_sentence_and_four_continuations(tmp_path: Path, end: str) -> None:
    (example,) = read(write(tmp_path / "train.csv", row(), end=end))
    assert example == ChoiceExample(
        id="5",
        pairs=(
            ("He waits.", "Then he sits."),
            ("He waits.", 'Then he says "no", twice.'),
            ("He waits.", "Then he leaves."),
            ("He waits.", "Then he two\nlines"),
        ),
        label=2,
    )


def test_one_space_stands_before_an_ending(tmp_path: Path) -> None:
    (example,) = read(write(tmp_path / "train.csv", row(sent2="Then he ", ending0=" sits.", ending1="  leaves. ")))
    assert [second for _, second in example.pairs[:2]] == ["Then he sits.", "Then he leaves. "]
    (example,) = read(write(tmp_path / "dev.csv", row(sent2="", ending0=" Sits.")))
    assert example.pairs[0] == ("He waits.", "Sits.")


def test_the_test_file_has_no_labels(tmp_path: Path) -> None:
    examples = read(write(tmp_path / "test.csv", row(3, label=None), row(4, label=None), labelled=False))
    assert [(example.id, example.label) for example in examples] == [("3", None), ("4", None)]


def test_labels_are_not_looked_at_where_none_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "test.csv", row(3, label="-1"), row(4, label=""))
    found = list(swag.read(path, Skipped(strict=True), labels=False))
    assert [(example.id, example.label) for example in found] == [("3", None), ("4", None)]
    with pytest.raises(InputError, match="the label is '-1'"):
        read(path)


def test_rows_with_generated_gold_endings_can_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv", row(0), row(1, source="gen-orig"), row(2, source="gold1-orig"))
    skipped = Skipped()
    assert [example.id for example in read(path, skipped)] == ["0", "1", "2"]
    assert [example.id for example in read(path, skipped, generated=False)] == ["0", "2"]
    assert not skipped.count  # left out on request


def test_without_an_index_the_id_is_the_number_of_the_row(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("\ufeffsent1,sent2,ending0,ending1,ending2,ending3\na.,b,c,d,e,f\n\na.,,c,d,e,f")
    first, second = read(path)
    assert (first.id, second.id) == ("0", "1")
    assert first.pairs[1] == ("a.", "b d")
    assert second.pairs[1] == ("a.", "d")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(label="4"), "the label is '4', not one of 0, 1, 2, 3"),
        (row(label=""), "the label is ''"),
        (row(sent1=" "), "sent1 is empty"),
        (row(ending2=""), "ending2 is empty"),
        (row()[:-1], "11 columns, not 12"),
        ([*row(), "more"], "13 columns, not 12"),
    ],
)
def test_a_malformed_row_is_left_out_with_its_line(tmp_path: Path, bad: list[str], reason: str) -> None:
    path = write(tmp_path / "train.csv", row(0), bad, row(2))
    skipped = Skipped()
    assert [example.id for example in read(path, skipped)] == ["0", "2"]
    assert skipped.count == 1
    assert skipped.reasons[0].startswith(f"{path}: line 4: {reason}")  # the row before has two lines
    with pytest.raises(InputError, match="line 4"):
        read(path)


def test_a_quote_that_does_not_end_is_an_error_and_joins_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv", row(0))
    with path.open("a") as stream:
        stream.write(
            '1,clip,17,x,"He waits.,Then he,gold,a,b,c,d,1\n' + "2,clip,17,x,He waits.,He,gold,a,b,c,d,1\n" * 9
        )
    with pytest.raises(InputError, match=r"train\.csv: line 4: not CSV"):
        read(path, Skipped())


def test_the_files_with_all_texts_are_refused_by_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "train_full.csv"
    path.write_text("video-id,fold-ind,startphrase,sent1,sent2,gold-ending,distractor-0\n")
    with pytest.raises(InputError, match=r"no column ending0, ending1, ending2, ending3 .*_full\.csv"):
        read(path)


def test_generated_endings_can_be_left_out_only_where_the_file_says_which_they_are(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("sent1,sent2,ending0,ending1,ending2,ending3,label\na.,b,c,d,e,f,1\n")
    assert len(read(path)) == 1
    with pytest.raises(InputError, match="no column gold-source"):
        read(path, generated=False)


def test_an_empty_file_has_no_header(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("")
    with pytest.raises(InputError, match="no column sent1"):
        read(tmp_path / "train.csv")


def test_two_columns_of_one_name_are_refused_but_two_indices_are_not(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(",,sent1,sent2,ending0,ending1,ending2,ending3\n7,8,a.,b,c,d,e,f\n")
    assert [example.id for example in read(path)] == ["7"]
    path.write_text("sent1,sent2,ending0,ending1,ending2,ending3,ending0\n")
    with pytest.raises(InputError, match="two columns ending0 in the header"):
        read(path)


def test_an_ending_that_is_a_list_is_refused(tmp_path: Path) -> None:
    good = {name: "x" for name in swag.REQUIRED} | {"label": 1, "tags": ["not read"]}
    path = tmp_path / "val.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (good, good | {"ending1": ["a", "b"]})))
    with pytest.raises(InputError, match=r'val\.jsonl: line 2: ending1 is not a text but \["a", "b"\]'):
        read(path)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_hellaswag_is_read_as_it_is_distributed(tmp_path: Path, form: str) -> None:
    """The keys are those of hellaswag_train.jsonl; `datasets` has the label as a text, and "" in the test set."""
    endings = ["sits.", "leaves.", "waits.", 'says "no".']
    rows = [
        {
            "ind": 4,
            "ctx_a": "He waits.",
            "ctx_b": "then he",
            "ctx": "He waits. then he",
            "label": 3,
            "endings": endings,
        },
        {"ind": 8, "ctx_a": "[header] How.", "ctx_b": "", "ctx": "[header] How.", "label": 0, "endings": endings},
        {"ind": 9, "ctx_a": "He.", "ctx_b": "", "ctx": "He.", "label": 0, "endings": endings[:3]},
    ]
    path, skipped = tmp_path / f"val.{form}", Skipped()
    if form == "parquet":
        parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        rows = [each | {"label": str(each["label"])} for each in rows]
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif form == "csv":  # as pandas writes it
        text = io.StringIO()
        csv.writer(text).writerows([list(rows[0]), *(list(each.values()) for each in rows)])
        path.write_text(text.getvalue())
    else:
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    first, second = read(path, skipped)
    assert (first.id, first.label, second.id, second.label) == ("4", 3, "8", 0)
    assert first.pairs[3] == ("He waits.", 'then he says "no".') and second.pairs[0] == ("[header] How.", "sits.")
    assert skipped.count == 1 and "ending0 is empty" in skipped.reasons[0]
    assert [each.label for each in swag.read(path, skipped, labels=False)] == [None, None]
