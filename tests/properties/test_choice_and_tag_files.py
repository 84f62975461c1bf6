"""Damaged files of multiple choice and of tagging are refused, or are read as examples that a model can take."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given

from tasks import choices, conll, race, swag
from tasks.examples import ChoiceExample, Skipped, TaggedSentence
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, damaged_json, survives

PASSAGE = {
    "article": "The \U0001f600 Rhine is long.",
    "questions": ["Which river?", "The _ is _."],
    "options": [["Rhine", "Aare", "Thur", "Elbe"], ["a", "b", "c", "d"]],
    "answers": ["A", "D"],
}
ROW = '0,clip,3,He waits. He,He waits.,He,{},sits.,"says ""no"", twice.",leaves.,runs.,{}\n'
SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
SWAG += ROW.format("gold", 2) + ROW.format("gen-orig", 0)
LINE = {"id": "a", "context": "It rains.", "choices": ["Stay.", "Go.", "Sing."], "label": 1, "group": "b"}
CONLL = "-DOCSTART- -X- O O\n\nAnna NNP I-NP I-PER\r\n\u00ad VBD I-VP O\n \nBasel\tNNP\tI-NP\tI-LOC\n"
MARKS = [b"\t", b" ", b"\r", b"\n\n", b",", b'"', b"-DOCSTART- O\n", b"\xef\xbb\xbf", b"\xed\xa0\x80"]


def check_choices(examples: list[ChoiceExample], choices: int) -> None:
    for example in examples:
        example.id.encode()
        assert len(example.pairs) == choices
        assert all(first.strip() and second.strip() for first, second in example.pairs)
        assert example.label is None or 0 <= example.label < choices


@given(content=damaged_json(PASSAGE))
@fuzz
def test_a_passage_is_refused_or_its_questions_have_four_answers(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "dev" / "high" / "1.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    check_choices(survives(lambda: list(race.read(tmp_path, "dev", ("high",), Skipped()))) or [], 4)


@pytest.mark.parametrize("generated", [True, False])
@given(content=damaged(SWAG.encode(), MARKS))
@fuzz
def test_rows_of_swag_are_refused_or_have_four_endings(generated: bool, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_bytes(content)
    check_choices(survives(lambda: list(swag.read(path, Skipped(), generated))) or [], 4)


@given(content=damaged_json(LINE))
@fuzz
def test_choices_by_line_are_refused_or_whole(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl"
    path.write_bytes(json.dumps(LINE).encode() + b"\n" + content)
    check_choices(survives(lambda: list(choices.read(path, Skipped()))) or [], 3)


@pytest.mark.parametrize(
    "read",
    [
        lambda path: conll.read(path, Skipped()),
        lambda path: conll.read(path, Skipped(), conll.ReadOptions(separator="tab", tags=False)),
        lambda path: conll.read(path, Skipped(), conll.ReadOptions(separator="space", word="1", tag="0")),
    ],
)
@given(content=damaged(CONLL.encode(), MARKS))
@fuzz
def test_tagged_sentences_are_refused_or_have_a_tag_for_each_word(
    read: Callable[[Path], Iterator[TaggedSentence]], content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(content)
    for sentence in survives(lambda: list(read(path))) or []:
        assert sentence.words and all(sentence.words)
        assert sentence.tags is None or (len(sentence.tags) == len(sentence.words) and all(sentence.tags))
