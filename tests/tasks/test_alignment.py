"""Each word is read once, at its first piece, in a window that holds it."""

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from tasks import alignment

PIECES = (*SPECIAL, *string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase), ".", "river", "##s")
WORDS = ["river", "rivers", "a", "abcde", "...", "a.b.", "\u00ad", "\u0096", "\u200e", "", "abcdefghijkl", "\u6771"]
SENTENCES = st.lists(st.lists(st.sampled_from(WORDS), max_size=19), max_size=5)
LENGTHS, STRIDES = st.integers(alignment.SHORTEST, 17), st.integers(1, 19)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> WordPieceTokenizer:
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(dict.fromkeys(PIECES)) + "\n")
    return WordPieceTokenizer(path)


def pieces(tokenizer: WordPieceTokenizer, word: str, room: int) -> list[int]:
    """The pieces of a word by itself, as the rules of this module say."""
    return (tokenizer.encode([word])[0].tolist() or [tokenizer.unk_id])[:room]


def shown(tokenizer: WordPieceTokenizer, windows: alignment.Windows) -> list[str]:
    rows = zip(windows.input_ids, windows.input_mask, strict=True)
    return [" ".join(tokenizer.vocab[piece] for piece in ids[mask == 1]) for ids, mask in rows]


def test_a_sentence_is_one_row_between_cls_and_sep(tokenizer: WordPieceTokenizer) -> None:
    made = alignment.windows(tokenizer, [["Rivers", "a.b"], ["\u00ad", "a"]], 9, 3)
    assert shown(tokenizer, made) == ["[CLS] river ##s a . b [SEP]", "[CLS] [UNK] a [SEP]"]
    assert made.input_ids.dtype == made.input_mask.dtype == made.segment_ids.dtype == np.int32
    assert (made.input_ids[made.input_mask == 0] == tokenizer.pad_id).all()
    assert not made.segment_ids.any()
    assert made.sentence.tolist() == [0, 1]
    labels = alignment.labels(made, [np.array([7, 8]), np.array([5, 6])])
    assert labels.dtype == np.int32
    assert labels.tolist() == [[-1, 7, -1, 8, -1, -1, -1, -1, -1], [-1, 5, 6, -1, -1, -1, -1, -1, -1]]


@pytest.mark.parametrize("word", ["\u0096", "\u200e", "\u00ad"])
def test_a_word_without_pieces_is_unknown_and_moves_no_label(tokenizer: WordPieceTokenizer, word: str) -> None:
    made = alignment.windows(tokenizer, [["a", word, "river", word]], 9, 3)
    assert shown(tokenizer, made) == ["[CLS] a [UNK] river [UNK] [SEP]"]
    assert alignment.labels(made, [np.array([1, 2, 3, 4])])[0, 1:5].tolist() == [1, 2, 3, 4]


def test_the_names_of_special_tokens_are_ordinary_text(tokenizer: WordPieceTokenizer) -> None:
    made = alignment.windows(tokenizer, [["[SEP]", "a"]], 9, 3)
    assert (made.input_ids == tokenizer.sep_id).sum() == 1


def test_a_long_sentence_is_read_where_words_have_most_context(tokenizer: WordPieceTokenizer) -> None:
    words = list("abcdefghijk")
    made = alignment.windows(tokenizer, [["a"], words], 9, 4)  # 7 pieces in a window: a-g, e-k
    assert shown(tokenizer, made)[1:] == ["[CLS] a b c d e f g [SEP]", "[CLS] e f g h i j k [SEP]"]
    assert made.sentence.tolist() == [0, 1, 1]
    labels = alignment.labels(made, [np.array([99]), np.arange(11)])
    # f has two words on its right in the second window, one on its left there
    assert labels[1].tolist() == [-1, 0, 1, 2, 3, 4, 5, -1, -1]
    assert labels[2].tolist() == [-1, -1, -1, 6, 7, 8, 9, 10, -1]


def test_a_word_is_read_in_a_window_that_does_not_cut_it(tokenizer: WordPieceTokenizer) -> None:
    made = alignment.windows(
        tokenizer, [["a", "b", "c", "defgh", "i", "j", "k"]], 9, 3
    )  # a-g, d-j, g-k by first pieces
    labels = alignment.labels(made, [np.arange(7)])
    assert shown(tokenizer, made)[1].startswith("[CLS] d ##e ##f ##g ##h i")
    assert labels[1, 1] == 3


def test_a_word_longer_than_a_window_is_cut(tokenizer: WordPieceTokenizer) -> None:
    made = alignment.windows(tokenizer, [["abcdefghijkl"]], 7, 3)
    assert shown(tokenizer, made) == ["[CLS] a ##b ##c ##d ##e [SEP]"]
    made = alignment.windows(tokenizer, [["." * 22, "a"]], 7, 3)
    assert shown(tokenizer, made) == ["[CLS] . . . . . [SEP]", "[CLS] . . a [SEP]"]  # five of them, then a


def test_a_word_that_all_windows_would_cut_has_its_own(tokenizer: WordPieceTokenizer) -> None:
    made = alignment.windows(tokenizer, [["a", "b", "c", "defgh", "i", "j", "k"]], 9, 7)  # a-d##g, then from ##h on
    assert shown(tokenizer, made) == [
        "[CLS] a b c d ##e ##f ##g [SEP]",
        "[CLS] c d ##e ##f ##g ##h i [SEP]",
        "[CLS] ##h i j k [SEP]",
    ]
    assert alignment.labels(made, [np.arange(7)])[1].tolist() == [-1, -1, 3, -1, -1, -1, -1, -1, -1]


def test_windows_in_which_no_word_is_read_are_left_out(tokenizer: WordPieceTokenizer) -> None:
    made = alignment.windows(tokenizer, [["abcde", "abcde"]], 7, 1)  # six windows hold some of these pieces
    assert shown(tokenizer, made) == ["[CLS] a ##b ##c ##d ##e [SEP]"] * 2


@given(sentences=SENTENCES, length=LENGTHS, stride=STRIDES)
def test_every_word_is_read_once_in_a_window_that_holds_it(
    tokenizer: WordPieceTokenizer, sentences: list[list[str]], length: int, stride: int
) -> None:
    made = alignment.windows(tokenizer, sentences, length, stride)
    numbers = [100 * number + np.arange(len(words)) for number, words in enumerate(sentences)]
    labels = alignment.labels(made, numbers)
    read = labels[labels != alignment.NO_LABEL]
    assert read.tolist() == [label for row in numbers for label in row.tolist()]  # each once, and in order
    assert sorted(set(np.nonzero(labels != alignment.NO_LABEL)[0].tolist())) == list(range(len(labels)))
    for row, position in zip(*np.nonzero(labels != alignment.NO_LABEL), strict=True):
        sentence, word = divmod(int(labels[row, position]), 100)
        assert made.sentence[row] == sentence
        whole = pieces(tokenizer, sentences[sentence][word], length - 2)
        assert position + len(whole) < int(made.input_mask[row].sum())  # the last one is [SEP]
        assert made.input_ids[row, position : position + len(whole)].tolist() == whole


@given(sentences=SENTENCES, length=LENGTHS, stride=STRIDES)
def test_what_is_collected_from_labels_is_the_labels(
    tokenizer: WordPieceTokenizer, sentences: list[list[str]], length: int, stride: int
) -> None:
    made = alignment.windows(tokenizer, sentences, length, stride)
    tags = [np.arange(len(words)) * 7 + number for number, words in enumerate(sentences)]
    labels = alignment.labels(made, tags)
    both = alignment.collect(made, np.stack([labels, -labels], axis=-1))
    for found, pairs, expected in zip(alignment.collect(made, labels), both, tags, strict=True):
        assert found.tolist() == expected.tolist() and pairs.tolist() == np.stack([expected, -expected], -1).tolist()


def test_a_word_has_as_many_labels_as_words(tokenizer: WordPieceTokenizer) -> None:
    made = alignment.windows(tokenizer, [["a", "b"], ["a"]], 9, 3)
    with pytest.raises(AssertionError, match="one tag for each word"):
        alignment.labels(made, [np.array([1]), np.array([2, 3])])


def test_long_texts_take_time_in_proportion(tokenizer: WordPieceTokenizer) -> None:
    made = alignment.windows(tokenizer, [["rivers", "a"] * 50_000], 128, 64)  # a document as one sentence
    assert len(made.row) == 100_000
    assert len(made.input_ids) == -(-(150_000 - 126) // 64) + 1
