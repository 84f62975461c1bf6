"""Columns of words and tags become sentences, as CoNLL-2003's and BioBERT's files have them."""

from pathlib import Path
from typing import Any

import pytest

from bert.errors import InputError
from tasks import conll
from tasks.examples import Skipped, TaggedSentence

CONLL = """-DOCSTART- -X- O O

Anna NNP I-NP I-PER
came VBD I-VP O
. . O O

Basel NNP I-NP I-LOC

-DOCSTART- -X- O O

" " O O
Go VB I-VP O
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "train.txt"
    path.write_bytes(text.encode())
    return path


def read(path: Path, skipped: Skipped | None = None, **settings: Any) -> list[TaggedSentence]:
    return list(conll.read(path, skipped or Skipped(strict=True), **settings))


def test_empty_lines_end_sentences_and_docstart_begins_documents(tmp_path: Path) -> None:
    assert read(write(tmp_path, CONLL)) == [
        TaggedSentence(id="0", words=("Anna", "came", "."), tags=("I-PER", "O", "O"), document=0),
        TaggedSentence(id="1", words=("Basel",), tags=("I-LOC",), document=0),
        TaggedSentence(id="2", words=('"', "Go"), tags=("O", "O"), document=1),
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("\n", "  \n"),
        lambda text: text.replace("\n\n", "\n \t \n"),
        lambda text: text.replace("\n\n", "\n\n\n\n"),
        lambda text: "\ufeff" + text,
        lambda text: "\n\n" + text + "\n\n",
        lambda text: text.replace(" ", "\t"),
        lambda text: text.replace(" ", "   "),
    ],
    ids=[
        *("carriage returns", "no end of the last line", "trailing spaces", "lines of spaces", "more empty lines"),
        *("byte order mark", "empty lines around", "tabs", "several spaces"),
    ],
)
def test_other_ways_to_write_the_same_file_give_the_same(tmp_path: Path, change: Any) -> None:
    expected = read(write(tmp_path, CONLL))
    assert read(write(tmp_path, change(CONLL))) == expected


def test_a_document_line_ends_a_sentence_and_need_not_be_the_first(tmp_path: Path) -> None:
    sentences = read(write(tmp_path, "Go O\n-DOCSTART- O\nStop O\n\nNow O\n-DOCSTART- O\n-DOCSTART- O\nEnd O\n"))
    assert [(sentence.words[0], sentence.document) for sentence in sentences] == [
        *(("Go", 0), ("Stop", 1), ("Now", 1), ("End", 3))  # the third has no sentence
    ]


def test_other_columns_can_be_the_tag(tmp_path: Path) -> None:
    path = write(tmp_path, CONLL)
    assert read(path, column=1)[0].tags == ("NNP", "VBD", ".")
    assert read(path, column=-2)[0].tags == ("I-NP", "I-VP", "O")


def test_biobert_files_have_a_tab_and_tags_without_types(tmp_path: Path) -> None:
    path = write(tmp_path, "Low\tO\nblood pressure\tB\n's\tI\n\n#\tO\n")
    first, second = read(path)
    assert (first.words, first.tags) == (("Low", "blood pressure", "'s"), ("O", "B", "I"))
    assert second.words == ("#",)
    with pytest.raises(InputError, match="line 2: 3 columns, not 2"):
        read(path, separator="space")


def test_a_file_of_words_is_read_without_tags(tmp_path: Path) -> None:
    path = write(tmp_path, "Anna\ncame\n\nBasel\n")
    assert [(sentence.words, sentence.tags) for sentence in read(path, tags=False)] == [
        *((("Anna", "came"), None), (("Basel",), None))
    ]
    with pytest.raises(InputError, match=r"line 1: 1 columns, and no tag in column -1; check .* without tags"):
        read(path)


def test_tags_that_are_there_can_be_left_unread(tmp_path: Path) -> None:
    assert [sentence.tags for sentence in read(write(tmp_path, CONLL), tags=False)] == [None] * 3


@pytest.mark.parametrize("word", ["\u00a0", "\u0096", "\u200e", "\u00ad", "\u2028", "\u3000", "\x1c", "\x85"])
def test_invisible_characters_are_words(tmp_path: Path, word: str) -> None:
    (sentence,) = read(write(tmp_path, f"a O\n{word} B-X\nb O\n"))
    assert (sentence.words, sentence.tags) == (("a", word, "b"), ("O", "B-X", "O"))
    (sentence,) = read(write(tmp_path, f"a\n{word}\nb\n"), tags=False)
    assert sentence.words == ("a", word, "b")


@pytest.mark.parametrize(
    ("bad", "line", "reason"),
    [
        ("came VBD O", 4, "3 columns, not 4 as in the file's first line"),
        ("New York NNP I-NP O", 4, "5 columns, not 4"),
        ("\tVBD\tI-VP\tO", 4, "no word"),
        ("came\tVBD\tI-VP\t", 4, "3 columns, not 4"),
    ],
)
def test_a_sentence_with_a_malformed_line_is_left_out_whole(tmp_path: Path, bad: str, line: int, reason: str) -> None:
    path = write(tmp_path, CONLL.replace("came VBD I-VP O", bad))
    skipped = Skipped()
    assert [sentence.id for sentence in read(path, skipped)] == ["1", "2"]
    assert skipped.count == 1
    assert skipped.reasons[0].startswith(f"{path}: line {line}: {reason}")
    with pytest.raises(InputError, match=f"line {line}"):
        read(path)


def test_an_empty_tag_between_tabs_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "Anna\tB\tx\ncame\t\tx\n")
    with pytest.raises(InputError, match="line 2: no tag"):
        read(path, column=1)


@pytest.mark.parametrize("column", [0, -4, 4, -5])
def test_the_column_of_the_word_or_none_is_no_column_of_tags(tmp_path: Path, column: int) -> None:
    with pytest.raises(InputError, match=f"line 3: 4 columns, and no tag in column {column};"):
        read(write(tmp_path, CONLL), column=column)


def test_long_sentences_stay_whole_but_one_without_an_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "Go O\n" * 5003)
    (sentence,) = read(path)
    assert len(sentence.words) == 5003
    monkeypatch.setattr(conll, "MAX_WORDS", 5002)
    with pytest.raises(InputError, match="line 5003: a sentence of more than 5,002 words"):
        read(path)


def test_a_file_without_sentences_yields_none(tmp_path: Path) -> None:
    assert read(write(tmp_path, "")) == read(write(tmp_path, "-DOCSTART- -X- O O\n\n")) == []
