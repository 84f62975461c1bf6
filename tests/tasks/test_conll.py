"""Columns of words and tags become sentences, as CoNLL-2003's and BioBERT's files have them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bert.core.errors import InputError
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
    if "column" in settings:
        settings["tag"] = str(settings.pop("column"))
    return list(conll.read(path, skipped or Skipped(strict=True), conll.ReadOptions(**settings)))


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


GERMEVAL = """#\thttp://de.wikipedia.org/wiki/Basel\t[2009-10-17]
1\tBerliner\tB-LOCderiv\tO
2\tSPD\tB-ORG\tB-LOC

#\thttp://de.wikipedia.org/wiki/Ort\t[2009-10-18]
1\t#\tO\tO
2\tOrt\tO\tO
"""
CONLL_U = """# sent_id = 1
# text = He can't
1\tHe\the\tPRON\t_\t_\t2\tnsubj\t_\t_
2-3\tcan't\t_\t_\t_\t_\t_\t_\t_\t_
2\tcan\tcan\tAUX\t_\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\t_\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\t_\t_\t_\t_\t_\t_

# sent_id = 2
1\tYes\tyes\tINTJ\t_\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize(("word", "tag"), [("1", "2"), ("-3", "-2"), ("1", "3")])
def test_columns_are_given_by_number_and_comments_are_no_sentences(tmp_path: Path, word: str, tag: str) -> None:
    first, second = read(write(tmp_path, GERMEVAL), word=word, tag=tag)
    assert (first.words, second.words) == (("Berliner", "SPD"), ("#", "Ort"))
    assert first.tags == (("O", "B-LOC") if tag == "3" else ("B-LOCderiv", "B-ORG"))


def test_columns_of_conll_u_are_given_by_name_and_lines_without_a_number_of_their_own_are_no_words(
    tmp_path: Path,
) -> None:
    """The format of universaldependencies.org/format.html: ranges are words that the next lines divide."""
    first, second = read(write(tmp_path, CONLL_U), word="FORM", tag="UPOS")
    assert (first.words, first.tags) == (("He", "can", "n't"), ("PRON", "AUX", "PART"))
    assert (second.id, second.words) == ("1", ("Yes",))
    plus = write(tmp_path, "# global.columns = ID FORM X\n" + "1\tHe\tA\n2\tran\tB\n")
    assert read(plus, word="FORM", tag="X")[0].tags == ("A", "B")
    header = write(tmp_path, "pos word\nA He\nB ran\n")
    assert read(header, word="word", tag="pos")[0] == TaggedSentence(id="0", words=("He", "ran"), tags=("A", "B"))
    with pytest.raises(InputError, match="line 1: 2 columns, and no word in column FORM"):
        read(header, word="FORM", tag="pos")


@pytest.mark.parametrize("text", [GERMEVAL, CONLL_U, "x O\n\n0 a O\n1 b O\n"])
def test_a_first_column_that_counts_is_refused_unless_it_is_asked_for(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="the first column counts the words; give the columns"):
        read(write(tmp_path, text), Skipped())
    assert read(write(tmp_path, GERMEVAL), word="0")[0].words == ("1", "2")
    assert read(write(tmp_path, "1 O\n\nx O\n"))[0].words == ("1",)  # too short to tell


def test_a_hash_is_a_word_where_it_has_the_columns_of_one(tmp_path: Path) -> None:
    text = "#\tO\n\n#1\tB\nhit\tI\n\n# a comment\nthe\tO\n#\tO\n"
    assert [sentence.words for sentence in read(write(tmp_path, text))] == [("#",), ("#1", "hit"), ("the", "#")]


def test_rows_of_tokens_and_tags_are_sentences(tmp_path: Path) -> None:
    rows = [{"id": "7", "tokens": ["Anna", "came"], "ner_tags": [1, 0]}, {"id": "9", "tokens": ["so"], "ner_tags": [0]}]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    expected = [
        TaggedSentence(id="7", words=("Anna", "came"), tags=("B-PER", "O")),
        TaggedSentence(id="9", words=("so",), tags=("O",)),
    ]
    assert read(path, names=("O", "B-PER")) == expected
    assert [sentence.tags for sentence in read(path, tags=False)] == [None, None]
    with pytest.raises(InputError, match=r"ner_tags are numbers; name them in order by --data\.tag_names"):
        read(path)
    with pytest.raises(InputError, match="line 1: ner_tags has '1', which is no name and no number of one"):
        read(path, names=("O",))
    path.write_text('{"words": ["a", "b"], "pos": ["X", "Y"]}\n{"words": ["a"], "pos": ["X", "Y"]}\n')
    skipped = Skipped()
    assert [sentence.tags for sentence in read(path, skipped, word="words", tag="pos")] == [("X", "Y")]
    assert skipped.reasons == [f"{path}: line 2: 1 words, but 2 tags"]
    path.write_text('{"tokens": ["a", "\\ud83d"], "ner_tags": ["O", "O"]}\n')
    with pytest.raises(InputError, match="line 1: tokens has half a surrogate pair"):
        read(path, tags=False)


def test_a_language_before_each_word_is_told(tmp_path: Path) -> None:
    # WikiANN (Pan et al. 2017) writes "en:Julia<TAB>B-PER"; a time, a link or a proportion is no language
    for words, is_told in (
        ("en:The en:Julia en:x", True),
        ("zh-yue:a zh-yue:b zh-yue:c", True),
        ("simple:a simple:b simple:c", True),
        ("en:a to:b it:c", False),
    ):
        skipped = Skipped()
        found = list(conll.read(write(tmp_path, "".join(f"{word}\tO\n" for word in words.split())), skipped))
        assert list(found[0].words) == words.split()
        assert ("as in WikiANN's own files; this is read as part of the words" in skipped.doubt) == is_told


def test_a_file_of_words_is_read_without_tags(tmp_path: Path) -> None:
    path = write(tmp_path, "Anna\ncame\n\nBasel\n")
    assert [(sentence.words, sentence.tags) for sentence in read(path, tags=False)] == [
        *((("Anna", "came"), None), (("Basel",), None))
    ]
    with pytest.raises(InputError, match=r"line 1: 1 columns, and no tag in column -1; check .* without tags"):
        read(path)


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
    skipped = Skipped()
    (sentence,) = conll.read(path, skipped)
    assert len(sentence.words) == 5003
    assert f"{path}: line 1: a sentence of 5,003 words; if these are several" in skipped.doubt
    monkeypatch.setattr(conll, "MAX_WORDS", 5002)
    with pytest.raises(InputError, match="line 5003: a sentence of more than 5,002 words"):
        read(path)


def test_a_file_without_sentences_yields_none(tmp_path: Path) -> None:
    assert read(write(tmp_path, "")) == read(write(tmp_path, "-DOCSTART- -X- O O\n\n")) == []
