"""Books: whatever the encoding and the line ends, a line of the output is a paragraph."""

import json

import pytest

from data import books

WRAPPED = "It was the best of times,\nit was the worst of times.\n\n\nIt was the age\nof wisdom.\n"
PARAGRAPHS = ["It was the best of times, it was the worst of times.", "It was the age of wisdom."]


def test_hard_wrapped_lines_are_joined():
    assert books.paragraphs(WRAPPED) == PARAGRAPHS
    assert books.paragraphs(WRAPPED.replace("\n", "\r\n")) == PARAGRAPHS


def test_long_lines_are_paragraphs_without_blank_lines_between():
    long = "She said nothing, and he said less. " * 9
    assert books.paragraphs(f"{long}\n{long}\nThe end.") == [long.strip(), long.strip(), "The end."]


def test_legal_text_around_a_gutenberg_book_is_removed():
    start = "Produced by X\n*** START OF THE PROJECT GUTENBERG\nEBOOK A TALE ***\n"
    end = "*** END OF THE PROJECT GUTENBERG EBOOK A TALE ***\nlicence"
    assert books.trim(start + WRAPPED + end).strip() == WRAPPED.strip()
    assert books.trim(WRAPPED) == WRAPPED


def test_encodings_are_told_apart(tmp_path, stage, read):
    source = tmp_path / "books"
    (source / "deep").mkdir(parents=True)
    (source / "a.txt").write_bytes("\ufeffA caf\u00e9.\r\n".encode())
    (source / "b.TXT").write_bytes("A caf\u00e9.".encode("cp1252"))
    (source / "deep" / "c.txt").write_bytes("A caf\u00e9.".encode())
    (source / "d.txt").write_bytes("A caf\u00e9.".encode("utf-16"))
    (source / "e.txt").write_bytes(b" \n\n")
    (source / "notes.md").write_text("not a book")
    code, lines = stage("books", "--source", source, "--output", tmp_path / "out")
    assert code == 0 and "d.txt" in lines[-1] and "e.txt" in lines[-1]
    assert read(tmp_path / "out") == [
        {"id": f"books:{name}", "text": "A caf\u00e9."} for name in ("a.txt", "b.TXT", "deep/c.txt")
    ]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["counts"] == {"books": 3, "in utf-8-sig": 2, "in cp1252": 1, "refused": 2}
    assert manifest["extra"]["refused"] == {"d.txt": "binary (NUL bytes)", "e.txt": "empty"}


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
