"""Books: whatever the encoding and the line ends, a line of the output is a paragraph, and no legal text is in it."""

import json
import time

import pytest

from data import books
from data.pipeline import sources

WRAPPED = "It was the best of times,\nit was the worst of times.\n\n\nIt was the age\nof wisdom.\n"
PARAGRAPHS = ["It was the best of times, it was the worst of times.", "It was the age of wisdom."]


def test_hard_wrapped_lines_are_joined():
    assert books.paragraphs(WRAPPED) == PARAGRAPHS
    assert books.paragraphs(WRAPPED.replace("\n", "\r\n")) == PARAGRAPHS
    assert books.paragraphs(WRAPPED.replace("\n", "\r")) == PARAGRAPHS


def test_long_lines_are_paragraphs_without_blank_lines_between():
    long = "She said nothing, and he said less. " * 9
    assert books.paragraphs(f"{long}\n{long}\nThe end.") == [long.strip(), long.strip(), "The end."]


def test_lines_that_are_sentences_are_paragraphs():
    lines = ["Who is there?", "Nobody, she said.", "It was \u201clate.\u201d", "He left", "The end."]
    assert books.paragraphs("\n".join(lines)) == lines


HEADER = "Project Gutenberg's A Tale, by Nobody\n\nThis eBook is for the use of anyone.\nTitle: A Tale\n\n"
OLD_LICENCE = "**Welcome To The World of Free Plain Vanilla Electronic Texts**\n\n"
SMALL_PRINT = (
    '***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***\nWhy is this "Small Print!" statement here?\n'
    "You know: lawyers.\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n"
)
STARTS = [
    "*** START OF THE PROJECT GUTENBERG EBOOK A TALE ***\n",
    "*** START OF THIS PROJECT GUTENBERG EBOOK A TALE, WITH A\nTITLE OF TWO LINES ***\n",
    "***START OF THE PROJECT GUTENBERG EBOOK A TALE***\n",
    "*** START OF PROJECT GUTENBERG'S A TALE\n",
    "*** START OF THIS PROJECT GUTENBERG-TM EBOOK A TALE ***\n\nProduced by Jane Doe\nand others\n\n",
    "*** Start of the Project Gutenberg EBook A Tale ***\n\nE-text prepared by Jane Doe\n\n",
    SMALL_PRINT,
    "*END THE SMALL PRINT! FOR PUBLIC DOMAIN EBOOKS*Ver.02/11/02*END*\n",
    OLD_LICENCE + SMALL_PRINT + "*** START OF THE PROJECT GUTENBERG EBOOK A TALE ***\n",
]
ENDS = [
    "*** END OF THE PROJECT GUTENBERG EBOOK A TALE ***\nlicence\n*** START: FULL LICENSE ***\nmore licence",
    "*** END OF THIS PROJECT GUTENBERG EBOOK A TALE ***\nlicence",
    "***END OF THE PROJECT GUTENBERG EBOOK A TALE***\nlicence",
    "End of the Project Gutenberg EBook of A Tale, by Nobody\n\n*** END OF THIS PROJECT GUTENBERG EBOOK A TALE ***\nx",
    "End of Project Gutenberg's A Tale\n",
    "  End of The Project Gutenberg Etext of A Tale\n",
    "Ende dieses Projekt Gutenberg Etextes\n",
    "",
]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("end", ENDS)
def test_legal_text_around_a_gutenberg_book_is_removed(start, end):
    body = WRAPPED * 9
    assert books.trim(HEADER + start + body + end).strip() == body.strip()


def test_small_print_behind_a_book_is_removed_too():
    body = WRAPPED * 9
    assert books.trim(body + SMALL_PRINT).strip() == body.strip()


def test_text_without_legal_text_stays_and_two_books_in_a_file_both_do():
    assert books.trim(WRAPPED) == WRAPPED
    starred = "* * *\n\n*** The end of the project\nwas near.\n"
    assert books.trim(starred) == starred
    two = (HEADER + STARTS[0] + WRAPPED + ENDS[0] + "\n") * 2
    assert books.trim(two).split() == (WRAPPED * 2).split()


@pytest.mark.parametrize("line", ["x" * 5_000_000, "by " * 1_700_000, " " * 5_000_000 + "x"])
def test_a_long_line_below_the_header_costs_no_more_than_other_text(line):
    """Once the time grew with the square of its length: 1.7 s for 40 kB, hours for this."""
    begin = time.process_time()
    trimmed = books.trim(f"{STARTS[0]}\nProduced by Jane Doe\n{line}")
    assert time.process_time() - begin < 60 and trimmed.endswith(line[-9:])


@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(
    "text",
    [
        "A river, a caf\u00e9.",
        "\u0420\u0435\u043a\u0430 \u0442\u0435\u0447\u0451\u0442.",
        "\u6cb3\u6d41\u5165\u6d77\u3002",
        "\u0928\u0926\u0940 \u092c\u0939\u0924\u0940 \u0939\u0948\u0964",
        "\u0e41\u0e21\u0e48\u0e19\u0e49\u0e33\u0e44\u0e2b\u0e25",
        "\U0001f41d\U0001f30a",
    ],
)
def test_wide_encodings_are_read_right_or_refused(tmp_path, text, encoding, mark):
    path = tmp_path / "a.txt"
    path.write_bytes((("\ufeff" if mark else "") + f"{text}\r\n" * 9).encode(encoding))
    if mark:
        joined, named, removed = books.read_book(path)
        assert joined.split("\n") in ([text] * 9, [" ".join([text] * 9)])
        assert (named, removed) == (encoding[:6], 0)
    else:
        with pytest.raises(ValueError, match=r"binary .* UTF-16 and UTF-32 need a byte order mark"):
            books.read_book(path)


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\0\0\xfe\xff"])
def test_other_bytes_behind_a_byte_order_mark_are_refused(tmp_path, mark):
    path = tmp_path / "a.txt"
    path.write_bytes(mark + bytes(range(256)) * 4)
    with pytest.raises(ValueError, match=r"binary|not the UTF-"):
        books.read_book(path)


def test_encodings_are_told_apart(tmp_path, stage, read):
    source = tmp_path / "books"
    (source / "deep").mkdir(parents=True)
    text = "A caf\u00e9, \u201cold\u201d."
    files = {
        "a.txt": f"\ufeff{text}\r\n".encode(),
        "b.TXT": text.encode("cp1252"),
        "deep/c.txt": text.encode(),
        "d.txt": text.encode("utf-16"),
        "e.txt": b" \n\n",
        "f.txt": b"\xfe\xff" + text.encode("utf-16-be"),
        "g.txt": "A caf\u00e9\x81.".encode("latin-1"),
        "h.txt": (text * 3).encode() + b"\xff",
        "i.txt": text.encode("utf-16-le"),
        "j.txt": b"\xff\xfea",
        "k.txt": (HEADER + STARTS[0] + ENDS[0]).encode(),
        "l.txt": (text * 9).encode() + b"\0",
    }
    for name, content in files.items():
        (source / name).write_bytes(content)
    (source / "notes.md").write_text("not a book")
    code, lines = stage("books", "--source", source, "--output", tmp_path / "out")
    assert code == 0 and "e.txt" in lines[-1] and "i.txt" in lines[-1]
    assert {document["id"][6:]: document["text"] for document in read(tmp_path / "out")} == {
        **dict.fromkeys(("a.txt", "b.TXT", "d.txt", "deep/c.txt", "f.txt"), text),
        "g.txt": "A caf\u00e9.",
        "h.txt": text * 3 + "\ufffd",
        "l.txt": text * 9,
    }
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["counts"] == {
        "files": 12,
        "books": 8,
        "refused": 3,
        "only legal text": 1,
        "pieces": 8,
        "in utf-8": 3,
        "in cp1252": 1,
        "in latin-1": 1,
        "in utf-16": 2,
        "in utf-8 with errors": 1,
        "control characters removed": 2,
    }
    assert set(manifest["extra"]["refused"]) == {"e.txt", "i.txt", "j.txt", "k.txt"}
    assert manifest["extra"]["refused"]["e.txt"] == "empty" and "binary" in manifest["extra"]["refused"]["i.txt"]


def test_pg19_keeps_its_folders_in_the_order_of_their_paths(tmp_path, stage, read, contents, monkeypatch):
    names = ["test/10.txt", "test/9.txt", "train/100.txt", "train/11.txt", "validation/7.txt"]
    for name in reversed(names):
        (tmp_path / "pg19" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pg19" / name).write_text(f"Book {name}.\n\nThe end.")
    (tmp_path / "pg19" / "metadata.csv").write_text("id,title")
    monkeypatch.setattr(sources, "GROUP_BYTES", 70)  # two books or three
    for workers in (1, 3):
        out = tmp_path / f"out{workers}"
        assert stage("books", "--source", tmp_path / "pg19", "--output", out, "--workers", workers)[0] == 0
    assert contents(tmp_path / "out1") == contents(tmp_path / "out3")
    assert [document["id"] for document in read(tmp_path / "out1")] == [f"books:{name}" for name in names]
    assert len(list((tmp_path / "out1").glob("part-*"))) == 3


@pytest.mark.parametrize("content", [None, b"\0\1\2"])
def test_a_folder_without_a_book_is_refused(tmp_path, stage, content):
    (tmp_path / "books").mkdir()
    if content:
        (tmp_path / "books" / "a.txt").write_bytes(content)
    code, lines = stage("books", "--source", tmp_path / "books", "--output", tmp_path / "out")
    assert (code, len(lines)) == (3, 1) and str(tmp_path / "books") in lines[0]
    assert not (tmp_path / "out").exists()


def test_a_missing_folder_is_refused(tmp_path, stage):
    assert stage("books", "--source", tmp_path / "none", "--output", tmp_path / "out")[0] == 3
