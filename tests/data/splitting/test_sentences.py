"""Punkt: what was learned is what is loaded, and no text is too odd to split."""

import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

from bert.core.errors import InputError
from data.splitting import sentences
from data.splitting.punkt import Splitter

CORPUS = " ".join(
    f"Prof. Ash met Mr. Birch of Elm Corp. in no. {n} at {n % 12} p.m. yesterday. They talked. Then Mr. Birch left."
    for n in range(400)
)


@pytest.fixture(scope="module")
def trained() -> PunktParameters:
    return sentences.train([CORPUS[: len(CORPUS) // 2], CORPUS[len(CORPUS) // 2 :]])


def test_training_finds_abbreviations(trained):
    punkt = Splitter(trained)
    assert {"mr", "prof", "p.m"} <= trained.abbrev_types
    assert sentences.split(punkt, "Mr. Birch is in. Prof. Ash is not.") == ["Mr. Birch is in.", "Prof. Ash is not."]


def test_words_that_only_end_sentences_are_no_abbreviations():
    goods = ("barley", "linen", "salt", "wool")
    names = ("Ash", "Birch", "Elm", "Oak", "Yew") * 50
    corpus = " ".join(
        f"Mr. {name} sells {goods[n % 4]}. The town is rich. I see the mill and Mr. {name}, at {n} a.m. or so."
        for n, name in enumerate(names)
    )
    found = sentences.train([corpus]).abbrev_types
    assert "mr" in found and not found & set(goods)


def test_in_scripts_without_capitals_verbs_are_no_abbreviations_and_titles_are():
    here, hot, doctor, kim, town = (
        "\uc788\ub2e4",
        "\ub365\ub2e4",
        "\ubc15",
        "\uae40\uc740",
        "\ub9c8\uc744\uc5d0",
    )  # "is here", "is hot", a title, a name, "in town"
    text = "\n".join(
        f"{town} {n} {here}. {doctor}. {kim} {n} {hot}. {town} {n} {here}.\n{kim} {hot}." for n in range(90)
    )
    trained = sentences.train([text])
    assert trained.abbrev_types == {doctor}
    found = sentences.split(Splitter(trained), text.split("\n")[0])
    assert found == [f"{town} 0 {here}.", f"{doctor}. {kim} 0 {hot}.", f"{town} 0 {here}."]


def test_where_full_stops_only_shorten_words_a_rare_one_shortens_too():
    metres, year, word = "\u0e01\u0e21", "\u0e1e\u0e28", "\u0e41\u0e21\u0e48\u0e19\u0e49\u0e33"
    text = "\n".join(f"{word} {n} {metres}. {word} {year}. {n}{word}" for n in range(9))
    assert {metres, year} <= sentences.train([text]).abbrev_types


def test_saved_and_loaded_parameters_split_alike(tmp_path, trained):
    sentences.save(trained, tmp_path / "a")
    loaded = sentences.load(tmp_path / "a")
    assert loaded.abbrev_types == trained.abbrev_types and loaded.collocations == trained.collocations
    text = CORPUS[:5000]
    assert sentences.split(Splitter(loaded), text) == sentences.split(Splitter(trained), text)
    sentences.save(loaded, tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_damaged_folder_of_parameters_is_refused(tmp_path, trained):
    with pytest.raises(InputError, match="abbrev_types"):
        sentences.load(tmp_path)
    sentences.save(trained, tmp_path)
    (tmp_path / "ortho_context.tab").write_text("word\tmany\n")
    with pytest.raises(InputError, match="not Punkt parameters"):
        sentences.load(tmp_path)


def test_the_parameters_that_nltk_ships_are_read(shared_data):
    parameters = sentences.load(shared_data / "nltk" / "tokenizers" / "punkt_tab" / "english")
    assert {"dr", "u.s", "inc"} <= parameters.abbrev_types
    text = "Dr. Ash works for Elm Inc. in the U.S. She likes it."
    assert sentences.split(Splitter(parameters), text)[0].startswith("Dr. Ash works for Elm Inc. in")


def test_control_characters_and_empty_sentences_are_dropped():
    punkt = Splitter(PunktParameters())
    text = "A\u00a0 cat\x00 sat\x07.\t\ufeffIt slept.\n * * * \n\n\u2014\nDone"
    assert sentences.split(punkt, text) == ["A cat sat.", "It slept.", "Done"]


ODD = st.one_of(st.sampled_from("ab.?! \t\n\r\x00\x1c\x85\xa0\xad\ufeff\u2028\u3000"), st.characters())


@given(st.text(ODD, max_size=60))
def test_split_is_cleaning_then_nltk_then_cutting(text):
    nltk = PunktSentenceTokenizer(PunktParameters())
    clean = "".join(c for c in text if c.isspace() or not (unicodedata.category(c) == "Cc" or c == "\ufeff"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "MAX_PARAGRAPH", 23)
        patch.setattr(sentences, "MAX_SENTENCE", 9)
        found = sentences.split(Splitter(PunktParameters()), text)
    wanted = [
        piece
        for line in clean.splitlines()
        for paragraph in sentences.cut(" ".join(line.split()), 23)
        for sentence in nltk.tokenize(paragraph)
        for piece in sentences.cut(sentence, 9)
        if any(map(str.isalnum, piece))
    ]
    assert found == wanted


@given(st.text("ab c", max_size=60), st.integers(1, 9))
def test_cutting_loses_nothing_but_spaces(text, limit):
    text = " ".join(text.split())
    pieces = list(sentences.cut(text, limit))
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")
    assert all(len(piece) <= limit for piece in pieces)
    words = text.split(" ")
    if all(len(word) <= limit for word in words):
        assert " ".join(pieces).split() == text.split()


ENDLESS = {"words": "word " * 200_000, "word": "x" * 1_000_000, "stops": "a.b! " * 30_000, "marks": "a.)b" * 75_000}


@pytest.mark.parametrize("line", ENDLESS.values(), ids=ENDLESS)
def test_an_endless_line_costs_no_more_than_other_text(line):
    begin = time.process_time()
    found = sentences.split(Splitter(PunktParameters()), line)
    assert max(map(len, found)) <= sentences.MAX_SENTENCE
    assert sum(len(sentence.replace(" ", "")) for sentence in found) == len(line.replace(" ", ""))
    assert time.process_time() - begin < 60


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "\u4eca\u5929\u597d\u3002\u53bb\u5427\uff01\u4f60\u6765\uff1f\u300c\u597d\u3002\u300d\u8d70\u4e86",
            [4, 3, 3, 4, 2],
        ),
        ("\u0939\u0948\u0964 \u0925\u093e\u0965 \u0939\u0948\u0902? \u0939\u093e\u0901.", [3, 3, 4, 4]),
        ("\u0647\u0644 \u0623\u0646\u062a\u061f \u0646\u0639\u0645.", [7, 4]),
        ("\u06c1\u06d2\u06d4 \u06cc\u06c1", [3, 2]),
        ("\u03a0\u03ce\u03c2 \u03b5\u03af\u03c3\u03b1\u03b9; \u039a\u03b1\u03bb\u03ac", [10, 4]),
        ("\uff13\uff0e\uff11\uff14\u3002\u6b21\uff0e", [5, 2]),
        ("\u0531\u0532\u0589 \u0531\u0532\u0589", [3, 3]),
        ("\u1230\u120b\u121d\u1362\u1230\u120b\u121d", [4, 3]),
        ("\u101c\u102c\u104b\u101e\u1031\u104b", [3, 3]),
        ("Fin \u2014 \xab\xa0oui\xa0\xbb; non.", [19]),
    ],
)
def test_sentences_end_in_every_script(text: str, expected: list[int]) -> None:
    found = sentences.split(Splitter(PunktParameters()), text)
    assert [len(sentence) for sentence in found] == expected
    assert "".join("".join(found).split()) == "".join(text.split())


def test_a_long_sentence_without_spaces_is_cut_where_a_clause_ends() -> None:
    clause = "\u957f" * 700 + "\uff0c"
    found = sentences.split(Splitter(PunktParameters()), clause * 9 + "\u3002")
    assert "".join(found) == clause * 9 + "\u3002"
    assert all(sentence.endswith(("\uff0c", "\u3002")) and len(sentence) <= 2000 for sentence in found)


QUOTATIONS = (Path(__file__).with_name("quotations.txt")).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", [line for line in QUOTATIONS if not line.startswith("#")])
def test_a_sentence_does_not_end_behind_a_quotation_that_it_goes_on_with(line: str) -> None:
    assert sentences.split(Splitter(PunktParameters()), line.replace("/", "")) == [
        sentence.strip() for sentence in line.split("/")
    ]


def test_a_long_quotation_is_divided_and_many_brackets_take_no_time() -> None:
    said = "\u300c" + "\u884c\u304f\u3002" * 99 + "\u300d\u3068\u8a00\u3063\u305f\u3002"  # "go." 99 times, he said
    found = sentences.split(Splitter(PunktParameters()), said)
    assert len(found) == 99 and "".join(found) == said
    begin = time.process_time()
    for text in (
        "\u300c" * 99_999,
        "\u300c(\u3002" * 33_333,
        "\u300c\u3002\u300d" * 33_333,
        "\u3002" + "\u300d" * 99_998,
    ):
        sentences.split(Splitter(PunktParameters()), text)
    assert time.process_time() - begin < 5
