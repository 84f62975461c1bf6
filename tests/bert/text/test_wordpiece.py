"""WordPiece against tensorflow-text's FastBertTokenizer, for texts in ASCII; what holds for any rules."""

import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert.text.normalization import TokenizerConfig
from bert.text.vocabulary import SPECIAL, load_vocab
from bert.text.wordpiece import WordPiece

text = pytest.importorskip("tensorflow_text", reason="the oracle is tensorflow-text")

CHARACTERS = "abcdehinorstuvx0123456789\xe9\xdf\u03b1\u03c3\u0438\u4e2d\u6771\ufffd\U0001f600!?.,#-$+\u2026"
WORDS = ["the", "river", "##s", "##ing", "cafe", "caf\xe9", "##\u0438\u0438", "##d", "x" * 99, "##xx", "Caf\xe9", "THE"]
VOCAB = list(dict.fromkeys([*SPECIAL, *CHARACTERS, *(f"##{c}" for c in CHARACTERS), *WORDS]))
ODD = [
    "",
    " ",
    "[SEP] [MASK] ##s ## # ###",
    "a$b+c<d=e>f^g`h|i~j",
    "x" * 100,
    "x" * 101,
    "a " * 300,
]


def google(lower_case: bool) -> TokenizerConfig:
    """Rules by which texts in ASCII become the words of tensorflow-text's, if they have at most 100 characters."""
    return TokenizerConfig(lower_case=lower_case, strip_accents=lower_case, longest_word=100)


class Oracle:
    """tensorflow-text's tokenizer, with offsets in characters."""

    def __init__(self, vocab: Sequence[str], lower_case: bool) -> None:
        self._fast = text.FastBertTokenizer(
            list(vocab), token_out_type=tf.int32, lower_case_nfd_strip_accents=lower_case, support_detokenization=False
        )

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        ids = self._fast.tokenize(tf.constant([one.encode("utf-8", "replace") for one in texts], tf.string))
        return ids.flat_values.numpy(), ids.row_splits.numpy()

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, ...]:
        encoded = [one.encode("utf-8", "replace") for one in texts]
        ids, *places = self._fast.tokenize_with_offsets(tf.constant(encoded, tf.string))
        splits = ids.row_splits.numpy()
        rows = np.repeat(np.arange(len(texts)), np.diff(splits))
        begin, end = (
            np.array(
                [len(encoded[row][:place].decode()) for row, place in zip(rows, at.flat_values.numpy(), strict=True)],
                int,
            )
            for at in places
        )
        return ids.flat_values.numpy(), splits, begin, np.maximum(end, begin + 1)


@pytest.fixture(scope="module", params=[True, False], ids=["lower", "cased"])
def both(request: pytest.FixtureRequest) -> tuple[WordPiece, Oracle]:
    return WordPiece(VOCAB, google(request.param)), Oracle(VOCAB, request.param)


def same(ours: WordPiece, theirs: Oracle, texts: Sequence[str]) -> None:
    found = ours.encode_with_offsets(texts)
    for values, expected in zip(found, theirs.encode_with_offsets(texts), strict=True):
        np.testing.assert_array_equal(values, expected)
    for values, expected in zip(ours.encode(texts), found[:2], strict=True):
        np.testing.assert_array_equal(values, expected)
    assert ours.encode(texts)[0].dtype == found[0].dtype == np.int32


ANY = st.characters(min_codepoint=32, max_codepoint=126)
FAMILIAR = [one for one in CHARACTERS if one.isascii()] + [*"IXTHEV "]


@pytest.mark.slow
@settings(max_examples=80)
@given(texts=st.lists(st.text(ANY, max_size=40) | st.text(st.sampled_from(FAMILIAR), max_size=150), max_size=4))
@example(texts=ODD)
@example(texts=[])
def test_any_texts_in_ascii(texts: list[str], both: tuple[WordPiece, Oracle]) -> None:
    same(*both, texts)


@pytest.mark.parametrize("cased", [False, True])
def test_real_questions_and_passages(cased: bool, shared_data: Path) -> None:
    vocab = load_vocab(shared_data / "vocab" / f"bert-base-{'' if cased else 'un'}cased-vocab.txt")
    with lzma.open(shared_data / "squad" / "dev-v1.1.json.xz", "rt", encoding="utf-8") as stream:
        paragraphs = [paragraph for article in json.load(stream)["data"] for paragraph in article["paragraphs"]]
    texts = [one for p in paragraphs for one in (p["context"], *(qa["question"] for qa in p["qas"]))]
    texts = [one for one in texts if one.isascii() and one.isprintable()]
    assert len(texts) > 10_000
    same(WordPiece(vocab, google(not cased)), Oracle(vocab, not cased), texts)


def test_words_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{a}{b} the rivers" for a in "abcde" for b in "hinor"]
    whole = WordPiece(VOCAB, TokenizerConfig())
    monkeypatch.setattr("bert.text.wordpiece.MAX_CACHED", 7)
    ours = WordPiece(VOCAB, TokenizerConfig())
    for kind in ("encode", "encode_with_offsets"):
        for values, expected in zip(getattr(ours, kind)(texts), getattr(whole, kind)(texts), strict=True):
            np.testing.assert_array_equal(values, expected)
    assert max(map(len, (ours._words, ours._tokens, ours._located))) <= 7


@pytest.mark.parametrize("offsets", [False, True])
def test_words_that_no_token_covers_for_their_length_are_not_kept(offsets: bool) -> None:
    ours = WordPiece([*SPECIAL, "a", "##a"], TokenizerConfig(lower_case=True, longest_word=200))
    texts = ["a" * length for length in (3, 200, 201, 5_000)]
    for one in texts:
        (ours.encode_with_offsets if offsets else ours.encode)([one])
    caches = [value for value in vars(ours).values() if isinstance(value, dict) and value.keys() & set(texts)]
    assert caches and max(len(key) for cache in caches for key in cache) == 200


def test_a_word_of_more_characters_than_the_rules_allow_is_unknown() -> None:
    vocab = [*SPECIAL, "x", "##x", "\xe9", "##\xe9"]
    ours = WordPiece(vocab, TokenizerConfig(strip_accents=False, longest_word=9))
    ids, splits, begin, end = ours.encode_with_offsets(["x" * 9, "x" * 10, "\xe9" * 9])
    assert np.diff(splits).tolist() == [9, 1, 9]
    assert (ids[9], begin[9], end[9]) == (vocab.index("[UNK]"), 0, 10)
