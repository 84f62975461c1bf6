"""One's own texts are read by the names of their columns."""

import csv
import gzip
import json
import re
from pathlib import Path

import pytest

from bert.core.errors import InputError, UsageError
from tasks import tables
from tasks.examples import Skipped, TextExample
from tasks.label_sets import LabelSets


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


def test_parquet_gives_the_same_examples_as_lines_of_json(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"id": str(n), "text": f"text {n}\r\u2028", "label": n % 3} for n in range(tables.ROWS + 5)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read(tmp_path / "a.parquet") == read(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match="column 'topic' is missing; it has id, text, label"):
        read(tmp_path / "a.parquet", label="topic")
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"a\.parquet: damaged after row 0"):
        read(tmp_path / "a.parquet")


def test_booleans_and_whole_numbers_are_names_of_classes_as_json_writes_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        "\n".join(f'{{"text": "a", "label": {value}}}' for value in ("true", "false", "1.0", "0.0", "1", '"1.0"'))
    )
    assert [example.label for example in read(tmp_path / "a.jsonl")] == ["true", "false", "1", "0", "1", "1.0"]


ROWS = [
    {"id": "a", "label": "x", "probabilities": {"x": 0.75, "y": 0.25}, "words": ["one", "two, three"]},
    {"id": 'b\u2028"', "label": "y", "probabilities": {"x": 0.1, "y": 0.9}, "words": []},
]


def test_what_is_written_has_the_format_of_its_suffix_and_reads_back(tmp_path: Path) -> None:
    for suffix in (".jsonl", ".csv", ".tsv", ".parquet"):
        if suffix == ".parquet":
            pytest.importorskip("pyarrow")
        with tables.writer(tmp_path / f"a{suffix}") as add:
            for row in ROWS:
                add(row)
        found = [row for _, row in tables.rows(tmp_path / f"a{suffix}", ())]
        if suffix in (".jsonl", ".parquet"):
            assert found == ROWS
            continue
        flat = [
            [row["id"], row["label"], *map(str, row["probabilities"].values()), json.dumps(row["words"])]  # type: ignore[attr-defined]
            for row in ROWS
        ]
        assert [list(row.values()) for row in found if row] == flat
        assert found[0] and [*found[0]] == ["id", "label", "probabilities.x", "probabilities.y", "words"]


@pytest.mark.parametrize("value", ["a\rb", "a\nb", '"', 'a "b", c', " a ", "\r", ""])
def test_csv_quotes_what_it_must(tmp_path: Path, value: str) -> None:
    row = {"id": value, "label": "x", value or "y": "z"}
    with tables.writer(tmp_path / "a.csv") as add:
        add(row)
    assert [row for _, row in tables.rows(tmp_path / "a.csv", ())] == [row]


def test_many_rows_of_parquet_are_written_in_pieces(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [{"id": str(n), "value": n / 2} for n in range(2 * tables.ROWS + 3)]
    with tables.writer(tmp_path / "a.parquet") as add:
        for row in rows:
            add(row)
    assert [row for _, row in tables.rows(tmp_path / "a.parquet", ("value",))] == rows


def test_lists_of_parquet_have_texts_after_many_that_are_empty(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [{"id": str(n), "labels": ["rare"] if n >= tables.ROWS else []} for n in range(tables.ROWS + 2)]
    with tables.writer(tmp_path / "a.parquet") as add:
        for row in rows:
            add(row)
    assert [row for _, row in tables.rows(tmp_path / "a.parquet", ("labels",))] == rows


def test_what_a_format_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    for name, value, reason in (("a.tsv", "x\ty", "a tab or a line end"), ("a.tsv", "x\ny", "a tab or a line end")):
        with pytest.raises(InputError, match=reason), tables.writer(tmp_path / name) as add:
            add({"id": value})
    for name in ("a.csv.gz", "a.xlsx"):
        with pytest.raises(UsageError, match=r"name must end in \.jsonl, \.tsv, \.csv or \.parquet"):
            tables.writer(tmp_path / name).__enter__()
    assert not [*tmp_path.iterdir()]


def test_a_column_called_id_names_the_examples(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\nq9,hello\n")
    assert read(tmp_path / "a.csv", label=None) == [TextExample(id="q9", first="hello")]
    (tmp_path / "a.jsonl").write_text('{"text": "a", "id": null}\n{"text": "b", "id": 7}\n{"text": "c"}\n')
    assert [example.id for example in read(tmp_path / "a.jsonl", label=None)] == ["0", "7", "2"]
    (tmp_path / "b.csv").write_text("id,text\n,hello\n,bye\n")
    assert [example.id for example in read(tmp_path / "b.csv", label=None)] == ["0", "1"]


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


@pytest.mark.parametrize(
    ("value", "texts"), [("1", "ac"), ("1.0", "c"), ("true", "b"), ("x y", "d"), ("", "e"), ("0.5", "f"), ("2", "")]
)
def test_numbers_and_booleans_are_compared_as_they_are_written(tmp_path: Path, value: str, texts: str) -> None:
    values = ["1", "true", "1.0", '"x y"', "null", "0.5"]
    lines = [f'{{"text": "{text}", "label": "z", "fold": {one}}}' for text, one in zip("abcdef", values, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert "".join(example.first for example in read(tmp_path / "a.jsonl", where={"fold": value})) == texts


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"id": "\ud83d", "text": "a", "label": "x"}, "id"),
        ({"text": "a", "label": "x\ude00"}, "label"),
        ({"text": "a", "label": "x", "labels": ["y", "\ud83d"]}, "labels"),
    ],
)
def test_what_outputs_have_again_is_unicode(tmp_path: Path, row: dict[str, object], named: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    several = LabelSets() if "labels" in row else None
    with pytest.raises(InputError, match=f"line 1: {named} has half a surrogate pair"):
        read(tmp_path / "a.jsonl", several=several)


def test_a_field_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "word " * 100_000 + ",x\n")
    assert len(read(tmp_path / "a.csv")[0].first) == 500_000


@pytest.mark.parametrize(
    ("name", "content", "reason", "good"),
    [
        ("a.tsv", "text\tlabel\na\tx\nb\n", "a.tsv: line 3: not as many columns as the first line", 1),
        ("a.tsv", "text\tlabel\n  \tx\n", "line 2: text is empty", 0),
        ("a.tsv", "text\tlabel\na\t\n", "line 2: label is '', not the name of a class", 0),
        ("a.tsv", "text\tlabel\na\t \nb\tx\n", "line 2: label is ' ', not the name of a class", 1),
        ("a.jsonl", '{"text": "a", "label": 0.5}', "line 1: label is 0.5, not the name of a class", 0),
        ("a.jsonl", '{"text": "a", "label": null}', "line 1: label is None, not the name of a class", 0),
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


def test_values_of_a_tsv_that_look_quoted_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["a", '"b" and "c"', '"d"', 'e ""f""', 'He said "no"']
    rows = [("text", "label"), *((text, "x") for text in texts)]
    (tmp_path / "raw.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    with (tmp_path / "pandas.tsv").open("w") as stream:
        csv.writer(stream, delimiter="\t").writerows(rows)
    for name, line in (("raw.tsv", ""), ("pandas.tsv", "line 3")):
        skipped = Skipped()
        read(tmp_path / name, skipped=skipped)
        skipped.report()
        said = capsys.readouterr().err
        assert (f"{name}: {line}: a value in quotes" in said) if line else not said


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
        ("a.jsonl", '\n{"text": "a"}\n', "the column 'label' is missing; it has text"),
        ("a.xlsx", "", r"the name must end in \.tsv, \.csv, \.jsonl or \.parquet"),
    ],
)
def test_what_is_not_of_the_format_is_one_line(tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=reason):
        read(tmp_path / name)


def test_ids_with_a_point_are_whole_numbers_and_gaps_have_none(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = pyarrow.array([7.0, None, float("nan"), 1.5])  # as pandas writes whole numbers with gaps
    parquet.write_table(pyarrow.table({"id": column, "text": list("abcd"), "label": [1.0] * 4}), tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    assert [(example.id, example.label) for example in found] == [("7", "1"), ("1", "1"), ("2", "1"), ("1.5", "1")]
    rows = list(tables.lines(tmp_path / "a.parquet"))
    assert [fields[0] for _, fields in rows[1:]] == ["7", "", "", "1.5"]  # as glue.py reads them
