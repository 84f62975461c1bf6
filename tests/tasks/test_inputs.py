"""Texts and pairs of texts become rows of tokens, and what does not fit is cut from the longer text."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.inputs.tokenization import WordPieceTokenizer
from bert.inputs.vocabulary import SPECIAL
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
