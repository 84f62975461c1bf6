"""Texts and pairs of texts become rows of tokens, and what does not fit is cut from the longer text."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from bert.export.texts import shares as graph_shares
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from tasks import inputs

WORDS = ["ant", "bee", "cat", "dog", "##s", "eel", "."]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> WordPieceTokenizer:
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    return WordPieceTokenizer(path)


def text_of(tokenizer: WordPieceTokenizer, row: Sequence[int], mask: Sequence[int]) -> str:
    return " ".join(tokenizer.vocab[token] for token in np.asarray(row)[np.asarray(mask) == 1])


def test_a_pair_has_two_segments_and_a_single_text_one(tokenizer: WordPieceTokenizer) -> None:
    rows = inputs.pairs(tokenizer, ["ant bees", "cat", ""], ["dog .", None, ""], length=9)
    shown = [text_of(tokenizer, *row) for row in zip(rows["input_ids"], rows["input_mask"], strict=True)]
    assert shown == ["[CLS] ant bee ##s [SEP] dog . [SEP]", "[CLS] cat [SEP]", "[CLS] [SEP] [SEP]"]
    assert rows["segment_ids"].tolist() == [[0] * 5 + [1] * 3 + [0], [0] * 9, [0, 0, 1] + [0] * 6]
    assert all(array.dtype == np.int32 and array.shape == (3, 9) for array in rows.values())


def test_the_first_text_of_a_pair_can_have_a_length_of_its_own(tokenizer: WordPieceTokenizer) -> None:
    text, other = "ant bee cat dog eel", "dog dog dog dog dog dog"
    rows = inputs.pairs(tokenizer, [text, text], [other, None], length=10, first_length=2)
    shown = [text_of(tokenizer, *row) for row in zip(rows["input_ids"], rows["input_mask"], strict=True)]
    assert shown == ["[CLS] ant bee [SEP] dog dog dog dog dog [SEP]", "[CLS] ant bee cat dog eel [SEP]"]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 50)), min_size=1, max_size=7))
def test_texts_are_cut_token_by_token_from_the_longer_one(lengths: list[tuple[int, int, int]]) -> None:
    """The loop is that of run_classifier.py, google-research/bert."""

    def cut(first: int, second: int, room: int) -> tuple[int, int]:
        while first + second > room:
            if first > second:
                first -= 1
            else:
                second -= 1
        return first, second

    first, second, room = np.array(lengths).T
    kept = inputs.shares(first, second, room)
    assert list(zip(*(part.tolist() for part in kept), strict=True)) == [cut(*row) for row in lengths]


def test_the_odd_token_can_be_that_of_the_longer_text_as_in_tokenizers(tokenizer: WordPieceTokenizer) -> None:
    theirs = BertWordPieceTokenizer(vocab={token: number for number, token in enumerate(tokenizer.vocab)})
    counts = np.array([(first, second) for first in range(1, 18) for second in range(1, 18)])
    given = tf.constant(counts, tf.int32)
    for length in (12, 13):
        theirs.enable_truncation(length, strategy="longest_first")
        kept = inputs.shares(counts[:, 0], counts[:, 1], np.full(len(counts), length - 3), odd_to_longer=True)
        of_graph = graph_shares(given[:, 0], given[:, 1], length - 3, True)
        for number, (first, second) in enumerate(counts):
            segments = theirs.encode("ant " * first, "bee " * second).type_ids
            expected = segments.count(0) - 2, segments.count(1) - 1
            assert (kept[0][number], kept[1][number]) == expected
            assert (int(of_graph[0][number]), int(of_graph[1][number])) == expected


LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=7)


@given(LENGTHS, st.integers(3, 40), st.integers(1, 50))
def test_every_token_is_in_a_window_and_a_text_that_fits_is_one(
    tokenizer: WordPieceTokenizer, words: list[int], length: int, stride: int
) -> None:
    """As run_squad.py of google-research/bert cuts a passage."""
    texts = [" ".join(WORDS[(word * word) % 4] for word in range(count)) for count in words]
    seen, cut = inputs.EncodingCounts(), inputs.EncodingCounts()
    made = inputs.windows(tokenizer, texts, length, stride, seen)
    one = inputs.pairs(tokenizer, texts, [None] * len(texts), length, seen=cut)
    begins, room = np.flatnonzero(made["window"] == 0), length - 2
    for text, (begin, end) in enumerate(pairwise([*begins, len(made["window"])])):
        tokens = tokenizer.encode([texts[text]])[0].tolist()
        expected, start = [], 0
        while True:
            expected.append(tokens[start : start + room])
            if start + room >= len(tokens):
                break
            start += min(stride, room)
        of_text = zip(made["input_ids"][begin:end], made["input_mask"][begin:end], strict=True)
        rows = [row[mask == 1].tolist()[1:-1] for row, mask in of_text]
        assert rows == expected and (made["windows"][begin:end] == end - begin).all()
        for name in inputs.NAMES:
            np.testing.assert_array_equal(made[name][begin], one[name][text])  # what fits, and the first window
    assert seen.inputs == cut.inputs == len(words) and seen.long == cut.long == sum(count > room for count in words)
    assert seen.lost == 0 and cut.lost == sum(max(0, count - room) for count in words) and cut.tokens == sum(words)


def test_words_that_the_vocabulary_lacks_and_texts_without_a_token_are_told(
    tokenizer: WordPieceTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, seconds = ["ant bee", "zebra ant", "\u200b", "\u0e44\u0e17\u0e22"], [None, None, None, "\u200b"]
    cut, read = inputs.EncodingCounts(), inputs.EncodingCounts()
    inputs.pairs(tokenizer, texts, seconds, 9, seen=cut)
    inputs.windows(tokenizer, texts, 9, 3, read)
    assert (cut.tokens, cut.unknown, cut.empty) == (5, 2, 2) and (read.unknown, read.empty) == (2, 1)
    cut.report("a.csv", 9)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and said[0].startswith("warning: a.csv: 40.0% of all tokens are [UNK]")
    assert said[1].startswith("note: a.csv: 2 of 4 inputs have a text without a token")
    inputs.EncodingCounts(inputs=1, tokens=100, unknown=1).report("b.csv", 9)
    assert not capsys.readouterr().err
