"""Words for a vocabulary: those that save most tokens, counted in bounded memory."""

import collections
import random
from pathlib import Path

import pytest

from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from extensions.data_more import words

VOCABULARY = [*SPECIAL, "hep", "##ato", "##cyte", "the", "r", "##u", "##n", "##s", "1", "##2", "."]


@pytest.fixture
def vocab(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return tmp_path / "vocab.txt"


@pytest.fixture
def source(folder):
    text = ["The HEPATOCYTE runs.", "Hepatocyte, h\u00e9patocyte: runs 12 12 12 12 12 12.", "Runs the qux the the once"]
    files = {f"train-0000{n}-of-00002.jsonl": [{"id": f"a:{n}", "sentences": text}] for n in range(2)}
    held_out = {"heldout-00000-of-00001.jsonl": [{"id": "a:2", "sentences": ["hepato " * 99]}]}
    return folder("shards", "shards", files | held_out)


def test_the_words_that_save_most_tokens_are_chosen(tmp_path, stage, source, vocab, contents):
    arguments = ("--source", source, "--vocab", vocab, "--minimum", 2)
    assert stage("words", *arguments, "--output", tmp_path / "all")[0] == 0
    found = (tmp_path / "all" / "words.tsv").read_text().splitlines()
    assert found == [
        "runs\t6\tr ##u ##n ##s",
        "hepatocyte\t6\thep ##ato ##cyte",
        "once\t2\t[UNK]",
        "qux\t2\t[UNK]",
    ]
    assert (tmp_path / "all" / "words.txt").read_text().split() == ["runs", "hepatocyte", "once", "qux"]
    code, said = stage("words", *arguments, "--output", tmp_path / "two", "--new", 2)
    assert code == 0 and "2 words save 30 tokens" in said[-2]
    assert (tmp_path / "two" / "words.txt").read_text() == "runs\nhepatocyte\n"
    more = tmp_path / "more.txt"
    more.write_text("\n".join([*VOCABULARY, "runs", "hepatocyte"]) + "\n")
    text = ["The HEPATOCYTE runs. Hepatocyte, h\u00e9patocyte: runs 12. Runs"]
    before, after = (len(WordPieceTokenizer(path).encode(text)[0]) for path in (vocab, more))
    assert before - after == 3 * 3 + 3 * 2


def test_without_such_a_word_it_is_one_line(tmp_path, stage, source, vocab):
    code, said = stage("words", "--source", source, "--vocab", vocab, "--output", tmp_path / "out")
    assert (code, len(said)) == (3, 1) and "occurs 20 times" in said[0] and not (tmp_path / "out").exists()


def test_memory_is_bounded_and_a_count_is_too_low_by_what_is_said():
    draw = random.Random(3)
    text = [f"w{int(draw.paretovariate(0.6))}" for _ in range(30_000)]
    exact, counter = collections.Counter(text), words.WordCounter(limit=200)
    for begin in range(0, len(text), 50):
        counter.add(text[begin : begin + 50])
        assert len(counter.counts) <= 200
    assert len(exact) > 1000 and 0 < counter.missed < 300
    for word, count in exact.items():
        assert count - counter.missed <= counter.counts[word] <= count
    assert [word for word, _ in exact.most_common(9)] == [word for word, _ in counter.counts.most_common(9)]
