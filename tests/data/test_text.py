"""Text from anywhere: each format gives the same documents, every one is counted, and a malformed line is named."""

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from data import verify
from data.layouts import json_text
from data.pipeline import sources

TEXTS = [
    "The river rises.\nIt floods in spring.",
    "A caf\u00e9 \U0001f41d.",
    "\u0627\u0644\u0646\u0647\u0631 \u064a\u0641\u064a\u0636.",
]


def lines(texts=TEXTS):
    return "".join(json.dumps({"id": n, "text": text}, ensure_ascii=bool(n % 2)) + "\n" for n, text in enumerate(texts))


def counts(folder):
    return json.loads((folder / "manifest.json").read_text())["counts"]


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: pytest.importorskip("pyarrow").compress(content, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("suffix", list(PACK))
def test_json_lines_are_read_whichever_way_they_are_compressed(tmp_path, stage, read, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(PACK[suffix](("\ufeff" + lines() + "\n \n").encode()))
    assert stage("text", "--source", path, "--output", tmp_path / "out")[0] == 0
    assert read(tmp_path / "out") == [{"id": f"text:{path.name}:{n}", "text": text} for n, text in enumerate(TEXTS)]
    expected = {"files": 1, "documents": 3, "empty": 0, "refused": 0, "pieces": 3}
    assert counts(tmp_path / "out") == expected


def test_a_mixed_folder_is_read_in_the_order_of_its_paths_by_any_workers(tmp_path, stage, read, contents, monkeypatch):
    source = tmp_path / "in"
    (source / "deep").mkdir(parents=True)
    (source / "b.txt").write_bytes("A caf\u00e9\r\nby the river.\r\n\r\nIt closed.".encode("cp1252"))
    (source / "a.jsonl").write_text('{"text": "One."}\n{"id": "x", "text": " "}\n\n{"text": "Two.", "more": [1]}')
    (source / "deep" / "c.jsonl.gz").write_bytes(gzip.compress(lines().encode()))
    (source / "c.txt").write_bytes(b"")
    (source / "d.txt").write_bytes(bytes(range(32)))
    (source / "notes.rst").write_text("not text of the corpus")
    monkeypatch.setattr(sources, "GROUP_BYTES", 99)
    for workers in (1, 3):
        code, said = stage("text", "--source", source, "--output", tmp_path / f"out{workers}", "--workers", workers)
        assert (
            code == 0
            and "d.txt: binary" in said[-3]
            and "not read, because of their names: 1 files (notes.rst)" in said[-2]
        )
    assert contents(tmp_path / "out1") == contents(tmp_path / "out3")
    assert len(list((tmp_path / "out1").glob("part-*"))) == 3
    documents = [{"id": f"text:in/deep/c.jsonl.gz:{n}", "text": text} for n, text in enumerate(TEXTS)]
    assert read(tmp_path / "out1") == [
        {"id": "text:in/a.jsonl@1", "text": "One."},
        {"id": "text:in/a.jsonl@4", "text": "Two."},
        {"id": "text:in/b.txt", "text": "A caf\u00e9 by the river.\nIt closed."},
        *documents,
    ]
    found = counts(tmp_path / "out1")
    assert found == {"files": 5, "documents": 6, "empty": 2, "refused": 1, "pieces": 6, "in cp1252": 1, "in utf-8": 1}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"text": "A."', "not JSON"),
        (b'{"text": "A."} {}', "not JSON"),
        (b'"A."', "not a JSON object"),
        (b'{"texts": "A."}', "no column 'text', only 'texts'"),
        (b'{"text": null}', "text is null, not a text"),
        (b'{"text": ["A."]}', "text is list, not a text"),
        (b'{"text": "A.", "id": [1]}', "id is neither a text nor a number"),
        (b'{"text": "A.", "id": true}', "id is neither a text nor a number"),
        (b'{"text": "A.", "id": "a\\ud800"}', "id has half a surrogate pair"),
        (b'{"text": "A \xff."}', "not JSON"),
        (b"[" * 200_000, "not JSON"),
    ],
)
def test_a_malformed_line_is_named_and_leaves_nothing(tmp_path, stage, content, reason):
    path = tmp_path / "in" / "a.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'{"text": "A river."}\n\n' + content + b"\n")
    code, said = stage("text", "--source", path.parent, "--output", tmp_path / "work" / "out")
    assert code == 3 and f"error: {path}: line 3: {reason}" in said[-1]
    if content != b"[" * 200_000:
        code, said = stage("text", "--source", path.parent, "--output", tmp_path / "work" / "out", "--skip_bad", 1)
        assert code == 0 and "1 bad rows" in said[-2] and "1 documents" in said[-2]
        return
    assert not (tmp_path / "work" / "out").exists()


def test_what_holds_no_text_is_refused(tmp_path, stage):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.rst").write_text("A river.")
    for source in (tmp_path / "none", tmp_path / "in", tmp_path / "in" / "a.rst"):
        code, said = stage("text", "--source", source, "--output", tmp_path / "out")
        assert code == 3 and str(source) in said[-1]
    (tmp_path / "in" / "a.txt").write_text(" \n")
    code, said = stage("text", "--source", tmp_path / "in", "--output", tmp_path / "out")
    assert code == 3 and '"empty": 1' in said[-1]


def test_a_long_text_becomes_several_documents_and_loses_nothing(tmp_path, stage, read, monkeypatch):
    for function in (sources.pieces, sources.stream_pieces):
        monkeypatch.setattr(function, "__defaults__", (50,))
    (tmp_path / "in").mkdir()
    text = "\n".join(f"Line {n} of the river ends here." for n in range(7))
    (tmp_path / "in" / "a.jsonl").write_text(json.dumps({"id": "r", "text": text}))
    (tmp_path / "in" / "b.txt").write_text(text)
    assert stage("text", "--source", tmp_path / "in", "--output", tmp_path / "out")[0] == 0
    found = read(tmp_path / "out")
    assert [document["id"] for document in found[:2]] == ["text:in/a.jsonl:r", "text:in/a.jsonl:r#2"]
    for name in ("text:in/a.jsonl:r", "text:in/b.txt"):
        pieces = [document["text"] for document in found if document["id"].split("#")[0] == name]
        assert len(pieces) > 4 and " ".join(pieces).split() == text.split()
    assert counts(tmp_path / "out")["documents"] == 2 and counts(tmp_path / "out")["pieces"] == len(found)
    assert verify.run(verify.Options(folders=(tmp_path / "out",), workers=1)) == {tmp_path / "out": []}


@pytest.mark.parametrize("kind", ["line", "blank_line"])
def test_a_long_line_or_block_is_one_document_whose_pieces_have_their_own_ids(tmp_path, stage, read, monkeypatch, kind):
    monkeypatch.setattr(sources.pieces, "__defaults__", (50,))
    monkeypatch.setattr(sources, "MAX_DOCUMENT", 50)
    line = " ".join(f"Line {n} of the river ends here." for n in range(7))
    texts = {"line": [line, "Short."], "blank_line": [line.replace(". ", ".\n"), "Short."]}[kind]
    (tmp_path / "a.txt").write_text({"line": "\n", "blank_line": "\n\n"}[kind].join(texts))
    code, _ = stage("text", "--source", tmp_path / "a.txt", "--output", tmp_path / "out", "--document", kind)
    found = read(tmp_path / "out")
    assert code == 0 and counts(tmp_path / "out")["documents"] == 2
    ids = [document["id"] for document in found]
    assert ids[:2] == ["text:a.txt@1", "text:a.txt@1#2"] and len(set(ids)) == len(ids) > 4
    assert " ".join(document["text"] for document in found).split() == " ".join(texts).split()


def test_parquet_without_pyarrow_is_one_clear_line(tmp_path, stage, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    code, said = stage("text", "--source", tmp_path / "a.parquet", "--output", tmp_path / "out")
    assert code == 2 and said[-1].endswith("reading Parquet needs pyarrow; pip install pyarrow")


@pytest.fixture
def write_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def write(name, columns):
        parquet.write_table(pyarrow.table(columns), tmp_path / name, row_group_size=2)
        return tmp_path / name

    return write


def test_parquet_gives_the_same_documents(tmp_path, stage, read, write_table):
    path = write_table("a.parquet", {"text": TEXTS, "id": [0, 1, 2], "url": ["u"] * 3})
    assert stage("text", "--source", path, "--output", tmp_path / "out")[0] == 0
    expected = [{"id": f"text:a.parquet:{n}", "text": text} for n, text in enumerate(TEXTS)]
    assert read(tmp_path / "out") == expected


def test_damaged_parquet_is_named(tmp_path, stage, write_table):
    cases = {
        "none.parquet": ({"body": TEXTS}, "no column 'text', only 'body'"),
        "null.parquet": ({"text": [*TEXTS, None]}, "row 4: text is null"),
        "number.parquet": ({"text": [1, 2]}, "row 1: text is int"),
    }
    for name, (columns, reason) in cases.items():
        code, said = stage("text", "--source", write_table(name, columns), "--output", tmp_path / "out")
        assert code == 3 and name in said[-1] and reason in said[-1]
    whole = write_table("a.parquet", {"text": TEXTS * 99}).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-20])
    (tmp_path / "bad.parquet").write_bytes(whole[:40] + bytes(40) + whole[80:])
    for name in ("cut.parquet", "bad.parquet"):
        code, said = stage("text", "--source", tmp_path / name, "--output", tmp_path / "out")
        assert code == 3 and name in said[-1] and "damaged after row 0" in said[-1]


ROWS = [{"id": f"n{n}", "title": f"T{n}", "body": f'The river {n}.\nIt floods, "they" say.'} for n in range(5)]


def written_as(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def csv_of(rows, delimiter):
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, [*rows[0]], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "b.json", "a.ndjson", "a.parquet", "a.arrow", "b.arrow"])
def test_every_layout_of_records_gives_the_same_documents(name, tmp_path, stage, read):
    if name.endswith((".parquet", ".arrow")):
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.Table.from_pylist(ROWS)
        path = tmp_path / name
        if name == "a.parquet":
            pytest.importorskip("pyarrow.parquet").write_table(table, path)
        else:
            kind = pyarrow.ipc.new_stream if name == "a.arrow" else pyarrow.ipc.new_file
            with kind(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=2)
    else:
        lines = "\n".join(map(json.dumps, ROWS))
        content = {
            "a.csv": lambda: b"\xef\xbb\xbf" + csv_of(ROWS, ","),
            "a.tsv": lambda: csv_of(ROWS, "\t"),
            "a.json": lambda: json.dumps(ROWS, indent=1).encode(),
            "b.json": lines.encode,
            "a.ndjson": lines.encode,
        }
        path = written_as(tmp_path, name, content[name]())
    arguments = ("--text_column", "title", "body", "--id_column", "id")
    assert stage("text", "--source", path, "--output", tmp_path / "out", *arguments)[0] == 0
    expected = [{"id": f"text:{name}:{row['id']}", "text": f"{row['title']}\n{row['body']}"} for row in ROWS]
    assert read(tmp_path / "out") == expected


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_an_empty_id_is_none(name, tmp_path, stage, read):
    """Rows without an id are not versions of one document."""
    rows = [{"id": "7" if n == 1 else "", "text": f"The river {n} floods."} for n in range(3)]
    content = csv_of(rows, ",") if name == "a.csv" else "\n".join(map(json.dumps, rows)).encode()
    assert stage("text", "--source", written_as(tmp_path, name, content), "--output", tmp_path / "out")[0] == 0
    numbers = ["@2", ":7", "@4"] if name == "a.csv" else ["@1", ":7", "@3"]
    assert [document["id"] for document in read(tmp_path / "out")] == [f"text:{name}{number}" for number in numbers]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_half_a_surrogate_pair_is_replaced_and_counted_and_a_pair_is_a_character(name, tmp_path, stage, read):
    """What a pair is: RFC 8259, section 7. U+FFFD for what is none: Unicode 16, section 3.9."""
    rows = [r'{"text": "A bee \ud83d is cut.\u0001"}', r'{"text": "\ud83d\udc1d, \udc1d\ud83d and \\ud83d?"}']
    content = "\n".join(rows) if name == "a.jsonl" else f"[{','.join(rows)}]"
    assert stage("text", "--source", written_as(tmp_path, name, content.encode()), "--output", tmp_path / "out")[0] == 0
    texts = [document["text"] for document in read(tmp_path / "out")]
    assert texts == ["A bee \ufffd is cut.", "\U0001f41d, \ufffd\ufffd and \\ud83d?"]
    assert counts(tmp_path / "out")["half surrogate pairs replaced"] == 3


def test_an_id_with_a_point_is_a_whole_number_and_none_can_be_asked_for(tmp_path, stage, read):
    """pandas writes a column of whole numbers with gaps as 1.0, NaN, 3.0."""
    lines = [f'{{"text": "The river {n} floods.", "id": {value}}}' for n, value in enumerate(("7.0", "NaN", "[3]"))]
    path = written_as(tmp_path, "a.jsonl", "\n".join(lines).encode())
    assert stage("text", "--source", path, "--output", tmp_path / "some", "--skip_bad", 1)[0] == 0
    assert [document["id"] for document in read(tmp_path / "some")] == ["text:a.jsonl:7", "text:a.jsonl@2"]
    assert stage("text", "--source", path, "--output", tmp_path / "none", "--id_column", "")[0] == 0
    assert [document["id"] for document in read(tmp_path / "none")] == [f"text:a.jsonl@{n}" for n in (1, 2, 3)]


def test_a_long_array_of_json_is_read_an_element_at_a_time(tmp_path, stage, read, monkeypatch):
    monkeypatch.setattr(json_text, "CHUNK", 64)
    texts = ["x" * n for n in (1, 63, 64, 65, 1000, 7)]
    path = written_as(tmp_path, "a.json", json.dumps([{"text": text, "more": [{"a": "]"}]} for text in texts]).encode())
    assert stage("text", "--source", path, "--output", tmp_path / "out")[0] == 0
    assert [document["text"] for document in read(tmp_path / "out")] == texts
    (tmp_path / "cut.json").write_bytes(path.read_bytes()[:-9])
    code, said = stage("text", "--source", tmp_path / "cut.json", "--output", tmp_path / "cut")
    assert code == 3 and "cut.json: element 6 is not JSON" in said[-1]


def test_what_follows_an_array_of_json_is_an_error(tmp_path, stage):
    """Two arrays in a file are not JSON, and the second one must not be lost."""
    for number, rest in enumerate(('[{"text": "b"}]', "]", "x")):
        path = written_as(tmp_path, f"{number}.json", f'[{{"text": "a"}}]\n {rest}\n'.encode())
        code, said = stage("text", "--source", path, "--output", tmp_path / "out")
        assert code == 3 and f"{path}: text behind the array" in said[-1] and not (tmp_path / "out").exists()
    path = written_as(tmp_path, "ends.json", b'[{"text": "a"}]' + b" \n" * 200)
    assert stage("text", "--source", path, "--output", tmp_path / "out")[0] == 0


def test_folders_behind_links_are_read_and_a_circle_of_them_ends(tmp_path, stage, read):
    source, elsewhere = tmp_path / "in", tmp_path / "disk" / "more"
    for folder in (source / "sub", elsewhere / "deep"):
        folder.mkdir(parents=True)
    for folder in (source, source / "sub", elsewhere, elsewhere / "deep"):
        (folder / "a.txt").write_text(f"The river {folder.name} floods.")
    (source / "linked").symlink_to(elsewhere)
    (source / "file.txt").symlink_to(elsewhere / "a.txt")
    (source / "sub" / "up").symlink_to(source)
    (elsewhere / "deep" / "back").symlink_to(source)
    (source / "nowhere.txt").symlink_to(tmp_path / "gone")
    (source / "itself").symlink_to(source / "itself")
    command = ("text", "--source", source, "--output", tmp_path / "out")
    assert stage(*command)[0] == 0
    names = ["a.txt", "file.txt", "linked/a.txt", "linked/deep/a.txt", "sub/a.txt"]
    assert [document["id"] for document in read(tmp_path / "out")] == [f"text:in/{name}" for name in names]
    assert any("up to date" in line for line in stage(*command)[1])
    (elsewhere / "deep" / "a.txt").write_text("Another river floods.")  # it is an input as well
    assert stage(*command)[0] == 0 and "Another river floods." in [text["text"] for text in read(tmp_path / "out")]


def test_a_document_is_a_file_a_line_or_what_blank_lines_separate(tmp_path, stage, read):
    blocks = ["One river.\nTwo rivers.", "Three of them.\nAnd four.", "Five!\nSix?", "Seven.\nEight.", "Nine.\nTen."]
    path = written_as(tmp_path, "corpus.txt", ("\n\n".join(blocks) + "\n \n").encode())
    code, said = stage("text", "--source", path, "--output", tmp_path / "file")
    assert code == 0 and "1 files have a sentence on each line" in said[-2] and "--document blank_line" in said[-2]
    assert len(read(tmp_path / "file")) == 1
    for kind, expected in (("blank_line", blocks), ("line", "\n".join(blocks).split("\n"))):
        code, said = stage("text", "--source", path, "--output", tmp_path / kind, "--document", kind)
        assert code == 0 and not any("warning" in line for line in said)
        assert [document["text"].strip() for document in read(tmp_path / kind)] == expected
        assert len({document["id"] for document in read(tmp_path / kind)}) == len(expected)


def test_a_novel_is_not_taken_for_sentences_on_lines(tmp_path, stage):
    wrapped = "\n\n".join(
        "The river rises in the hills and\nflows through seven towns until\nit ends." for _ in range(9)
    )
    unwrapped = "\n\n".join("The river rises in the hills. It ends in the sea." for _ in range(9))
    for number, text in enumerate((wrapped, unwrapped)):
        path = written_as(tmp_path, f"{number}.txt", text.encode())
        assert not any(
            "warning" in line for line in stage("text", "--source", path, "--output", tmp_path / f"o{number}")[1]
        )


def test_ids_that_restart_in_each_file_are_not_repeated_ones(tmp_path, stage, read):
    (tmp_path / "in").mkdir()
    for number in range(4):
        rows = [{"id": n, "text": f"The river {n} of file {number} rises in the hills."} for n in range(50)]
        (tmp_path / "in" / f"shard{number}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert stage("text", "--source", tmp_path / "in", "--output", tmp_path / "out")[0] == 0
    assert len({document["id"] for document in read(tmp_path / "out")}) == 200
