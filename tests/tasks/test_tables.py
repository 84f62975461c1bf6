"""One's own texts are read by the names of their columns."""

import gzip
import json
import re
from pathlib import Path

import pytest

from bert.errors import InputError
from tasks import tables
from tasks.examples import Skipped, TextExample


def read(
    path: Path, text: tuple[str, ...] = ("text",), label: str | None = "label", **more: object
) -> list[TextExample]:
    settings: dict[str, object] = {"regression": False, "skipped": Skipped(strict=True)} | more
    return list(tables.read(path, text, label, **settings))  # type: ignore[arg-type]


def test_all_formats_give_the_same_examples(tmp_path: Path) -> None:
    expected = [
        TextExample(id="0", first='a "b', second="c, d", label="x"),
        TextExample(id="1", first="e", second="\u6c34", label="7"),
    ]
    (tmp_path / "a.tsv").write_text('label\tone\ttwo\nx\ta "b\tc, d\n7\te\t\u6c34', encoding="utf-8-sig")
    (tmp_path / "a.csv").write_text('two,one,label\n"c, d","a ""b",x\n\n\u6c34,e,7\n', encoding="utf-8-sig")
    lines = [{"one": 'a "b', "two": "c, d", "label": "x"}, {"two": "\u6c34", "one": "e", "label": 7, "z": None}]
    (tmp_path / "a.jsonl").write_text("\n\n".join(map(json.dumps, lines)))
    with gzip.open(tmp_path / "b.TSV.gz", "wb") as stream:
        stream.write((tmp_path / "a.tsv").read_bytes())
    for name in ("a.tsv", "a.csv", "a.jsonl", "b.TSV.gz"):
        assert read(tmp_path / name, ("one", "two")) == expected, name


def test_a_column_called_id_names_the_examples(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\nq9,hello\n")
    assert read(tmp_path / "a.csv", label=None) == [TextExample(id="q9", first="hello")]


def test_columns_of_a_file_without_a_header_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("@GENE$ causes @DISEASE$.\t1\nIt does not.\t0\n")
    found = read(tmp_path / "train.tsv", ("0",), "1")
    assert [(example.first, example.label) for example in found] == [
        ("@GENE$ causes @DISEASE$.", "1"),
        ("It does not.", "0"),
    ]


def test_only_rows_with_a_value_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(
        "language\tgold_label\tsentence1\tsentence2\nde\tneutral\tA\tB\nfr\tneutral\tC\tD\n"
    )
    found = read(tmp_path / "a.tsv", ("sentence1", "sentence2"), "gold_label", where={"language": "fr"})
    assert [example.first for example in found] == ["C"]


def test_a_field_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "word " * 100_000 + ",x\n")
    assert len(read(tmp_path / "a.csv")[0].first) == 500_000


@pytest.mark.parametrize(
    ("name", "content", "reason", "good"),
    [
        ("a.tsv", "text\tlabel\na\tx\nb\n", "a.tsv: line 3: not as many columns as the first line", 1),
        ("a.tsv", "text\tlabel\n  \tx\n", "line 2: text is empty", 0),
        ("a.tsv", "text\tlabel\na\t\n", "line 2: label is '', not the name of a class", 0),
        ("a.jsonl", '{"text": "a", "label": true}', "line 1: label is True, not the name of a class", 0),
        ("a.jsonl", '{"text": 3, "label": "x"}', "line 1: text is not a text", 0),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": "a"}', "line 2: not as many columns", 1),
    ],
)
def test_a_malformed_row_is_left_out_or_ends_the_command(
    tmp_path: Path, name: str, content: str, reason: str, good: int
) -> None:
    (tmp_path / name).write_text(content)
    skipped = Skipped()
    left = read(tmp_path / name, skipped=skipped)
    assert skipped.count == 1 and reason in skipped.reasons[0] and len(left) == good
    with pytest.raises(InputError, match=re.escape(reason)):
        read(tmp_path / name)


@pytest.mark.parametrize("value", ["nan", "inf", "1e999", "two", ""])
def test_a_number_is_finite(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.tsv").write_text(f"text\tlabel\na\t-2.5e1\nb\t{value}\n")
    skipped = Skipped()
    assert [example.label for example in read(tmp_path / "a.tsv", regression=True, skipped=skipped)] == [-25.0]
    assert skipped.count == 1 and "not a number" in skipped.reasons[0]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.tsv", "text\tother\na\tx\n", "the column 'label' is missing; it has text, other"),
        ("a.tsv", "text\tlabel\tlabel\na\tx\ty\n", "the column 'label' is there twice"),
        ("a.tsv", "", "the column 'text' is missing"),
        ("a.csv", "", "the column 'text' is missing"),
        ("a.csv", 'text,label\n"a,x\n', "line 2: not CSV"),
        ("a.jsonl", "[1]\n", "line 1: not a JSON object"),
        ("a.jsonl", "{\n", "line 1: not JSON"),
        ("a.xlsx", "", r"the name must end in \.tsv, \.csv or \.jsonl"),
    ],
)
def test_what_is_not_of_the_format_is_one_line(tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=reason):
        read(tmp_path / name)
