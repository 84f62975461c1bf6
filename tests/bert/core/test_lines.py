"""Reading lines and tables by the rule of bert/core/files.py, wherever a user's file is read."""

import io
from pathlib import Path

import pytest

from bert import encode
from bert.core import files
from bert.core.errors import InputError
from data.layouts import plain
from data.layouts import tables as text_tables
from tasks import choices, conll, glue, swag, tables
from tasks.examples import Skipped

MARK = b"\xef\xbb\xbf"
ENDS = {  # bytes, and the lines that google-research/bert's reader (bytes, split at line feeds) and `wc -l` find
    "line feeds": (b"one\ntwo\n", ["one", "two"]),
    "no final end": (b"one\ntwo", ["one", "two"]),
    "carriage return and line feed": (b"one\r\ntwo\r\n", ["one", "two"]),
    "a final end that is cut": (b"one\r\ntwo\r", ["one", "two"]),
    "byte order mark": (MARK + b"one\ntwo\n", ["one", "two"]),
    "a mark that is not the first": (b"one\n" + MARK + b"two\n", ["one", "\ufefftwo"]),
    "lone carriage return": (b"one\rhalf\ntwo\n", ["one\rhalf", "two"]),
    "two before a line feed": (b"one\r\r\ntwo\n", ["one\r", "two"]),
    "other characters": ("o\x85n\u2028e\x0b\x0c\x1c\ntwo\u2029\n".encode(), ["o\x85n\u2028e\x0b\x0c\x1c", "two\u2029"]),
    "empty lines": (b"\none\n\ntwo\n\n", ["", "one", "", "two", ""]),
}


def written(folder: Path, content: bytes, name: str = "file.txt") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize(("content", "expected"), ENDS.values(), ids=ENDS)
def test_every_reader_of_lines_finds_the_lines_that_line_feeds_divide(content, expected, tmp_path):
    path = written(tmp_path, content)
    with files.open_text(path) as stream:
        assert [line.removesuffix("\n") for line in files.read_lines(stream, path)] == expected
    assert list(encode.read_texts(path)) == expected
    with files.open_text(path) as stream:
        documents = [text.text for text in plain.documents(stream, "line", path)]
    assert documents == [line for line in expected if line.strip()]


def test_standard_input_is_read_as_a_file_is(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(MARK + b"one\rhalf\r\ntwo")))
    assert list(encode.read_texts(Path("-"))) == ["one\rhalf", "two"]


def test_a_file_whose_only_line_ends_are_carriage_returns_is_refused(tmp_path):
    with pytest.raises(InputError, match="its only line ends are carriage returns"):
        list(encode.read_texts(written(tmp_path, b"one\rtwo\r")))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", MARK])
def test_a_mark_and_line_ends_do_not_change_what_is_read_of_a_table(mark, end, tmp_path):
    def made(name: str, lines: list[str], final: bool = False) -> Path:
        return written(tmp_path, mark + end.join(line.encode() for line in lines) + end * final, name)

    def rows(path: Path) -> list[tuple[str, object]]:
        found = tables.read(path, ["text"], "label", regression=False, skipped=Skipped(strict=True))
        return [(example.first, example.label) for example in found]

    expected = [("good, lamp", "pos"), ("bad\u2028boat", "neg")]
    quoted = ['"text","label"', '"good, lamp","pos"', "bad\u2028boat,neg"]
    assert rows(made("a.csv", quoted)) == rows(made("b.csv", quoted, final=True)) == expected
    assert rows(made("a.tsv", ["text\tlabel", "good, lamp\tpos", "bad\u2028boat\tneg"])) == expected
    objects = ['{"text": "good, lamp", "label": "pos"}', '{"text": "bad\u2028boat", "label": "neg"}']
    assert rows(made("a.jsonl", objects)) == expected

    found = text_tables.separated(made("c.csv", quoted), "utf-8", ",")
    assert [row.values for row in found] == [dict(zip(("text", "label"), row, strict=True)) for row in expected]
    names = ",".join(f'"{name}"' for name in ("sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label"))
    swag_rows = list(swag.read(made("swag.csv", [names, "He came.,He,a,b,c,d,2"]), Skipped(strict=True)))
    assert [(row.label, row.pairs[0]) for row in swag_rows] == [(2, ("He came.", "He a"))]
    sst = made("train.tsv", ["sentence\tlabel", "good\t1"])
    assert [row.first for row in glue.read(glue.TASKS["sst2"], sst, "train", Skipped())] == ["good"]
    tagged = list(conll.read(made("words.tsv", ["Ann\tB-PER", "ran\tO", "", "No\tO"]), Skipped(strict=True)))
    assert [sentence.words for sentence in tagged] == [("Ann", "ran"), ("No",)]
    chosen = made("choices.jsonl", ['{"context": "He", "choices": ["sat", "sang"], "label": 1}'])
    assert [example.label for example in choices.read(chosen, Skipped(strict=True))] == [1]


def test_a_lone_carriage_return_does_not_make_two_rows_of_one(tmp_path):
    def read(path: Path) -> list[tuple[str, object]]:
        found = tables.read(path, ["text"], "label", regression=False, skipped=Skipped(strict=True))
        return [(example.first, example.label) for example in found]

    lines = written(tmp_path, b"text\tlabel\ngood\rlamp\tpos\nplain\tneg\n", "rows.tsv")
    assert read(lines) == [("good\rlamp", "pos"), ("plain", "neg")]
    quoted = written(tmp_path, b'text,label\n"good\rlamp",pos\nplain,neg\n', "rows.csv")
    assert read(quoted) == [("good\rlamp", "pos"), ("plain", "neg")]
    with pytest.raises(InputError, match=r"line 2: not CSV \(a carriage return in a value without quotes"):
        read(written(tmp_path, b"text,label\ngood\rlamp,pos\n", "bare.csv"))


def test_a_whole_text_has_no_mark_and_line_feeds_alone(tmp_path):
    path = written(tmp_path, MARK + b"one\r\ntwo\rhalf\xc2\x85")
    assert files.read_text(path, 99, "") == "one\ntwo\rhalf\x85"
    assert files.read_json(written(tmp_path, MARK + b'{"a": 1}', "a.json")) == {"a": 1}
