"""Books: whatever the encoding and the line ends, a line of the output is a paragraph, and no legal text is in it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import books
from data.pipeline import gutenberg, sources

WRAPPED = "It was the best of times,\nit was the worst of times.\n\n\nIt was the age\nof wisdom.\n"
PARAGRAPHS = ["It was the best of times, it was the worst of times.", "It was the age of wisdom."]


def test_hard_wrapped_lines_are_joined():
    assert books.paragraphs(WRAPPED).lines == PARAGRAPHS
    assert books.paragraphs(WRAPPED.replace("\n", "\r\n")).lines == PARAGRAPHS
    assert books.paragraphs(WRAPPED.replace("\n", "\r")).lines == PARAGRAPHS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u898b\u5f53\u304c\u3064\n\u304b\u306c\u3002\n\u4f55", ["\u898b\u5f53\u304c\u3064\u304b\u306c\u3002\u4f55"]),
        ("\u6cb3\uff0c \r\n  \u6c34\n\n\u5c71\n\n", ["\u6cb3\uff0c\u6c34", "\u5c71"]),
        ("\uff76\uff9e\n\U00020000", ["\uff76\uff9e\U00020000"]),
        ("\u6cb3\nriver\n\u6cb3", ["\u6cb3 river \u6cb3"]),
        ("\ub098\ub294\n\uac04\ub2e4", ["\ub098\ub294 \uac04\ub2e4"]),
        ("\u0e41\u0e21\u0e48\n\u0e19\u0e49\u0e33", ["\u0e41\u0e21\u0e48 \u0e19\u0e49\u0e33"]),
        ("\u6cb3\n\u3000\u6c34", ["\u6cb3 \u6c34"]),
        ("\U0001f41d\n\U0001f30a", ["\U0001f41d \U0001f30a"]),
    ],
)
def test_a_line_end_between_characters_of_chinese_and_japanese_is_no_space(text, expected):
    """As in CSS Text 3, 4.1.3: between two wide characters that are not Hangul; here symbols keep it, too."""
    assert books.paragraphs(text).lines == expected


@pytest.mark.parametrize(
    "lines",
    [
        ["\u1019\u103c\u102d\u102f\u1037\u104b"] * 3 + ["\u1019"],
        ["\u06cc\u06c1\u06d4"] * 3 + ["\u06c1"],
        ["\u300c\u306f\u3044\u3002\u300d"] * 3 + ["\u306f"],
        ["\u0531\u0589"] * 3 + ["\u0531"],
    ],
)
def test_sentences_of_any_script_end_lines(lines):
    assert books.paragraphs("\n".join(lines)).lines == lines


def test_long_lines_are_paragraphs_without_blank_lines_between():
    long = "She said nothing, and he said less. " * 9
    assert books.paragraphs(f"{long}\n{long}\nThe end.").lines == [long.strip(), long.strip(), "The end."]


def test_lines_that_are_sentences_are_paragraphs():
    lines = ["Who is there?", "Nobody, she said.", "It was \u201clate.\u201d", "He left", "The end."]
    assert books.paragraphs("\n".join(lines)).lines == lines


DIVIDED = """The exam-
ple shows a well-
known river, an exa-
mple, and pre-
and post-war mills of Lang-
Ley. An example: the well-known
mill, a re-
  form, the Reform, a re-form, the re-form. No bro\u00ad
ken word is bro-ken--
or is it-
so? Nine-

teen.
"""


def test_words_divided_at_line_ends_are_joined_if_the_text_has_them():
    expected = (
        "The example shows a well-known river, an example, and pre- and post-war mills of Lang- Ley. An example: "
        "the well-known mill, a re-form, the Reform, a re-form, the re-form. No broken word is bro-ken-- or is it- "
        "so? Nine-"
    )
    assert books.paragraphs(DIVIDED) == ([expected, "teen."], 3)  # the hyphens of "example" twice, and of "broken"
    assert books.paragraphs(DIVIDED, join_hyphens=False) == ([" ".join(DIVIDED[:-8].split()), "teen."], 0)


@given(st.text(alphabet="ab-\n \xadA.", max_size=80))
def test_joining_takes_nothing_but_hyphens_and_white_space(text):
    text = f"{text}\n\nab aa ba-ab\nbb"
    lines, gone = books.paragraphs(text)
    kept = "".join("".join(lines).split())
    plain = "".join(text.split())
    assert kept.translate({45: None, 0xAD: None}) == plain.translate({45: None, 0xAD: None})
    assert len(kept) == len(plain) - gone


def test_joined_words_are_counted_and_the_flag_is_recorded_if_it_is_off(tmp_path, stage, read):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("The exam-\nple is an exam-\nple of\nan example.\n")
    for name in ("books", "text"):
        for flag in (None, "false"):
            out = tmp_path / f"{name}{flag}"
            flags = ("--join_hyphens", flag) if flag else ()
            assert stage(name, "--source", tmp_path / "in", "--output", out, *flags)[0] == 0
            made = json.loads((out / "manifest.json").read_text())
            assert made["counts"].get("words joined at line ends", 0) == (0 if flag else 2)
            assert made["extra"]["losses"]["characters"].get("hyphens at line ends", 0) == (0 if flag else 2)
            assert made["parameters"].get("join_hyphens", True) is (flag is None)
            assert ("exam- ple" in read(out)[0]["text"]) is bool(flag)


FOLDER = {
    "a.txt": "The docu-\nment is a two-\nyear plan, pre-\nand post-war. A re-\nform, the re-form.\n",
    "b/b.txt": "Every DOCUMENT is\nthere, with a two\u2010year plan, and a reform,\nreform.\n",
    "c.txt": "No zig-\nzag in the docu-\nment. A Lang-\nLey and a co\xad\nwork\n",
    "d.txt": "\x00\x00not text\x00",
    "e.txt": "The zig-\nzag is there\nagain.\n",
}
JOINED = [
    "The document is a two-year plan, pre- and post-war. A re-form, the re-form.",  # its own words count first
    "Every DOCUMENT is there, with a two\u2010year plan, and a reform, reform.",
    "No zig- zag in the document. A Lang- Ley and a cowork",
    "The zig- zag is there again.",
]


@pytest.mark.parametrize("name", ["books", "text"])
def test_words_divided_at_line_ends_are_settled_by_the_whole_folder(name, tmp_path, stage, read, contents, monkeypatch):
    monkeypatch.setattr(sources, "GROUP_BYTES", 60)  # several tasks
    for path, text in FOLDER.items():
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_text(text)
    made = []
    for workers in (1, 2):
        out = tmp_path / f"out{workers}"
        assert stage(name, "--source", tmp_path / "in", "--output", out, "--workers", workers)[0] == 0
        assert [document["text"] for document in read(out)] == JOINED
        made.append({path: content for path, content in contents(out).items() if path.startswith("part")})
        counted = json.loads((out / "manifest.json").read_text())
        assert (
            counted["counts"]["words joined at line ends"]
            == 3
            == counted["extra"]["losses"]["characters"]["hyphens at line ends"]
        )
    assert made[0] == made[1] and len(made[0]) > 1


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
    "*** START OF THE COPYRIGHTED PROJECT GUTENBERG EBOOK A TALE ***\n",
    "****START** SMALL PRINT! for COPYRIGHT PROTECTED ETEXTS ***\nTITLE AND COPYRIGHT NOTICE:\n"
    "*END* THE SMALL PRINT! for COPYRIGHT PROTECTED ETEXTS*Ver.04.29.93*END*\n",
    "***START** SMALL PRINT!\nYou know.\n*END* SMALL PRINT! for ETEXTS*Ver.04.29.93*END*\n",
    '["Small Print" V.12.08.93]\n',
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
    "Ende dieses Project Gutenberg Etextes von Eine Erz\u00e4hlung\n",
    "Ende dieses Etextes Eine Erz\u00e4hlung, von Niemand\n\nlicence",
    "Fin de Project Gutenberg's Un Conte, par Personne\n",
    "Fin du Projet Gutenberg EBook de Un Conte\nqui est long, par Personne\n",
    "Einde van het Project Gutenberg EBook van Een Verhaal\n",
    "Fin del Proyecto Gutenberg EBook de Un cuento\n",
    "*** END OF THE COPYRIGHTED PROJECT GUTENBERG EBOOK A TALE ***\nlicence",
    "**This is a COPYRIGHTED Project Gutenberg Etext, Details Above**\n",
    "",
]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("end", ENDS)
def test_legal_text_around_a_gutenberg_book_is_removed(start, end):
    body = WRAPPED * 9
    assert gutenberg.trim(HEADER + start + body + end).text.strip() == body.strip()


HEADER_OF_1998 = """The Project Gutenberg Etext of A Tale, by Nobody
#3 in our series by Nobody

Copyright laws are changing all over the world, be sure to check
the copyright laws for your country before posting these files!!

Please take a look at the important information in this header.

**Welcome To The World of Free Plain Vanilla Electronic Texts**

**Etexts Readable By Both Humans and By Computers, Since 1971**

*These Etexts Prepared By Hundreds of Volunteers and Donations*

Information on contacting Project Gutenberg to get Etexts, and
further information is included below.  We need your donations.


A Tale

by Nobody

April, 1998  [Etext #1234]


The Project Gutenberg Etext of A Tale, by Nobody
*****This file should be named ataxx10.txt or ataxx10.zip*****


"""


def test_a_header_without_a_start_line_is_removed_and_the_text_behind_it_stays():
    assert gutenberg.trim(HEADER_OF_1998 + WRAPPED).text == WRAPPED
    assert gutenberg.trim(HEADER_OF_1998 + WRAPPED + "\n\n" + ENDS[5]).text.strip() == WRAPPED.strip()
    foreword = "FOREWORD\n\nI thank the volunteers of Project Gutenberg.\n\n" + WRAPPED
    assert gutenberg.trim(foreword) == (foreword, False, False)


def test_a_file_of_several_works_keeps_them_all_without_the_notices_between():
    volume = "THE TALE, VOLUME TWO\n\nIt was the winter of despair.\n\n"
    first = HEADER + STARTS[4] + WRAPPED
    without_start = first + "End of the Project Gutenberg EBook of A Tale, v1, by Nobody\n\n\n" + volume + ENDS[1]
    assert gutenberg.trim(without_start).text.split() == (WRAPPED + volume).split()
    with_header = first + ENDS[5] + "\n\n" + HEADER_OF_1998 + volume + ENDS[5]
    assert gutenberg.trim(with_header).text.split() == (WRAPPED + volume).split()
    with_small_print = first + ENDS[4] + "\n\n" + HEADER_OF_1998 + SMALL_PRINT + volume + ENDS[4]
    assert gutenberg.trim(with_small_print).text.split() == (WRAPPED + volume).split()
    licence = "\nTo SEND DONATIONS\n\nand how to subscribe to our email newsletter to hear about new eBooks.\n\n"
    with_licence = first + ENDS[1] + licence + volume + ENDS[1]
    assert gutenberg.trim(with_licence).text.split() == (WRAPPED + volume).split()
    notice = (
        "<<THIS ELECTRONIC VERSION OF THE COMPLETE WORKS OF WILLIAM\nSHAKESPEARE IS COPYRIGHT 1990-1993 BY WORLD "
        "LIBRARY, INC.\nSERVICE THAT CHARGES FOR DOWNLOAD TIME OR FOR MEMBERSHIP.>>\n"
    )
    assert gutenberg.trim(WRAPPED + notice + volume).text == WRAPPED + "\n" + volume


def test_what_may_be_wrong_with_a_trimmed_book_is_told(tmp_path, stage):
    left = "You agree to the terms of the Project Gutenberg-tm License in this book.\n\n"
    assert gutenberg.trim(STARTS[0] + WRAPPED + left + WRAPPED).is_left
    assert not gutenberg.trim(STARTS[0] + WRAPPED + ENDS[0]).is_left
    assert gutenberg.trim(STARTS[0] + WRAPPED + "End of Project Gutenberg's A Tale\n\n" + WRAPPED * 300).is_odd
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(STARTS[0] + WRAPPED + left + WRAPPED)
    code, lines = stage("books", "--source", tmp_path / "in", "--output", tmp_path / "out")
    assert code == 0 and any("warning: 1 books in which licence text seems to remain" in line for line in lines)


def test_small_print_behind_a_book_is_removed_too():
    body = WRAPPED * 9
    assert gutenberg.trim(body + SMALL_PRINT).text.strip() == body.strip()


def test_text_without_legal_text_stays_and_two_books_in_a_file_both_do():
    assert gutenberg.trim(WRAPPED).text == WRAPPED
    starred = "* * *\n\n*** The end of the project\nwas near.\n"
    assert gutenberg.trim(starred).text == starred
    two = (HEADER + STARTS[0] + WRAPPED + ENDS[0] + "\n") * 2
    assert gutenberg.trim(two).text.split() == (WRAPPED * 2).split()


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
        book = books.read_book(path)
        assert book.text.split("\n") in ([text] * 9, [" ".join([text] * 9)])
        assert (book.encoding, book.lost[books.CONTROLS]) == (encoding[:6], 0)
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
    assert code == 0 and "e.txt" in lines[-3] and "i.txt" in lines[-3]
    assert {document["id"].removeprefix("books:books/"): document["text"] for document in read(tmp_path / "out")} == {
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
    assert [document["id"] for document in read(tmp_path / "out1")] == [f"books:pg19/{name}" for name in names]
    assert len(list((tmp_path / "out1").glob("part-*"))) == 3


def test_files_that_are_not_read_are_named(tmp_path, stage):
    """A folder may hold books in other formats, or compressed ones."""
    for name in ("a.txt", "b.TXT", "deep/c.txt.gz", "d.epub", ".hidden"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(WRAPPED)
    code, said = stage("books", "--source", tmp_path / "in", "--output", tmp_path / "out")
    assert code == 0 and "books: not read, because of their names: 2 files (d.epub, deep/c.txt.gz)" in said
    made = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert made["extra"]["not_read"] == ["d.epub", "deep/c.txt.gz"] and made["counts"]["books"] == 2


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
