"""Texts of files, and passages: nothing of a text is lost, no word is cut, and each passage fits the model."""

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.text.tokenization import Tokenizer, tokenizer_for
from extensions.search.passages import Cutter, Text, read
from tests.bert.export.served import HOSTILE, VOCAB


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return tokenizer_for(path, ModelConfig(vocab_size=len(VOCAB)))


def test_lines_and_paragraphs_have_the_numbers_of_their_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\ufeffone\n\n \ntwo\r\nthree\n\n\nfour", encoding="utf-8")
    assert list(read(path, "line")) == [
        Text("1", "", "one"),
        Text("4", "", "two"),
        Text("5", "", "three"),
        Text("8", "", "four"),
    ]
    assert list(read(path, "blank_line")) == [Text("1", "", "one"), Text("4", "", "two\nthree"), Text("8", "", "four")]


def test_beirs_objects_and_a_table_with_names_are_the_same_texts(tmp_path: Path) -> None:
    expected = [Text("d7", "A title", '"a" text "of'), Text("9", "", "b")]
    lines = [
        {"_id": "d7", "title": "A title", "text": expected[0].text, "metadata": {"url": "x"}},
        {"id": 9, "title": None, "text": "b"},
    ]
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, lines)).encode()))
    assert list(read(path, "line")) == expected
    table = tmp_path / "corpus.tsv"
    table.write_text('id\ttext\ttitle\nd7\t"a" text "of\tA title\n\n9\tb\t\n')
    assert list(read(table, "line")) == expected
    table.write_text("text\nx\ny\n")
    assert [text.id for text in read(table, "line")] == ["2", "3"]  # without ids: the lines
    path = tmp_path / "gaps.jsonl"  # as pandas writes whole numbers of a column with gaps
    path.write_text('{"id": 7.0, "text": "a"}\n{"id": null, "text": "b"}\n{"id": NaN, "text": "c"}\n')
    assert [text.id for text in read(path, "line")] == ["7", "2", "3"]


def test_values_that_look_quoted_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "texts.tsv"
    path.write_text('text\n"a ""b"""\n"c ""d"""\n')
    assert [text.text for text in read(path, "line")] == ['"a ""b"""', '"c ""d"""']
    told = capsys.readouterr().err
    assert told.count("warning") == 1 and "line 2: a value in quotes" in told


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv", "text\n", "must end in .txt, .jsonl, .tsv"),
        ("a.jsonl", '{"text": "a"}\n{"text": 3}\n', "line 2: text is 3, not a text"),
        ("a.jsonl", '{"txt": "a"}\n', "line 1: text is None, not a text"),
        ("a.jsonl", '{"text": "a", "title": 3}\n', "line 1: title is 3, not a text"),
        ("a.jsonl", '{"text": "a", "id": [3]}\n', "line 1: the id is \\[3\\]"),
        ("a.jsonl", '{"text": "\\ud800"}\n', "line 1: text is not Unicode text"),
        ("a.jsonl", "[3]\n", "line 1: not a JSON object"),
        ("a.jsonl", "{\n", "line 1: not JSON"),
        ("a.jsonl", '{"text": "a", "id": 1}\n{"text": "b", "id": "1"}\n', "line 2: the id '1' is that of line 1"),
        ("a.tsv", "1\ta text\n", "no column named text"),
        ("a.tsv", "id\ttext\n1\n", "line 2: 1 values, but 2 columns"),
        ("a.tsv", 'id\ttext\n1\t"a\nb"\n', "line 3: 1 values, but 2 columns"),
        ("a.txt", "caf\xe9", "not UTF-8"),
    ],
)
def test_what_is_no_text_is_refused_by_its_line(name: str, content: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=problem):
        list(read(tmp_path / name, "line"))


@pytest.mark.parametrize(("length", "stride"), [(8, None), (13, 4), (13, 99), (31, 7), (73, None)])
@pytest.mark.parametrize("title", ["", "river cafe", "z" * 90])
def test_passages_hold_all_of_a_text_and_cut_no_word(
    length: int, stride: int | None, title: str, tokenizer: Tokenizer
) -> None:
    draw = random.Random(5)
    words = ["river", "caf\u00e9", "a,", "b-c", "\u6771\u4eac\u6771", "x"]
    texts = [" ".join(draw.choices(words, k=count)) for count in (1, 3, 17, 90)]
    cutter = Cutter(tokenizer, length, stride)
    room = length - 2 - min((length - 2) // 2, len(tokenizer.encode([title])[0]))
    shared = room - (stride or max(1, 3 * room // 4))
    passages = list(cutter.cut(Text(str(n), title, text) for n, text in enumerate(texts)))
    for number, text in enumerate(texts):
        mine = [passage for passage in passages if passage.id == str(number)]
        assert [text[one.start : one.end] for one in mine] == [one.text for one in mine]
        assert mine[0].start == 0 and mine[-1].end == len(text)
        held = {place for one in mine for place in range(one.start, one.end)}
        assert all(text[place] == " " for place in set(range(len(text))) - held)
        assert len(mine) == 1 or max(len(one.text) for one in mine) < len(text)
        if shared >= 3:  # no word has more tokens, so there is white space among those that neighbours share
            assert all(one.start == 0 or text[one.start - 1] == " " for one in mine)
            assert all(one.end == len(text) or text[one.end] == " " for one in mine)
    sizes = tokenizer.encode([cutter.embedded(passage) for passage in passages])[1]
    assert np.diff(sizes).max() <= length - 2


def test_a_text_without_a_word_has_no_passage_and_any_other_text_its_own(tokenizer: Tokenizer) -> None:
    cutter = Cutter(tokenizer, 999)
    for text in HOSTILE:
        found = list(cutter.cut([Text("1", "", text)]))
        assert len(found) == bool(len(tokenizer.encode([text])[0]))
        assert all(one.text == text[one.start : one.end] and one.text in text for one in found)
