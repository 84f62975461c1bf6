"""Tokens of a byte-level BPE are of one word exactly where the library's own pre-tokenizer cuts no text."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from bert.text.tokenization import read
from extensions.tokenizers import byte_bpe, byte_words
from extensions.tokenizers.json_tokenizers import BytePairTokenizer
from tests.extensions.tokenizers import bracketed

ENDINGS = [("'", "s"), ("'", "t"), ("'", "r"), ("'r", "e"), ("'", "v"), ("'v", "e"), ("'", "m"), ("'", "l")]
ENDINGS += [("'l", "l"), ("'", "d")]
MERGES = [*ENDINGS, ("t", "h"), ("th", "e"), ("\u0120", "the"), ("\u00c3", "\u00a9"), ("1", "2"), ("!", "!")]
TOKENS = ["<s>", "<pad>", "</s>", "<unk>", *byte_bpe.BYTES, *map("".join, MERGES), "madeupword0000", "<mask>"]
CUT = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def write(path: Path) -> Path:
    """Write a tokenizer.json of RoBERTa's kind."""
    tables = byte_bpe.Tables({token: n for n, token in enumerate(TOKENS)}, MERGES, byte_bpe.ROBERTA)
    path.write_text(byte_bpe.text_of_tables(tables, path))
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BytePairTokenizer:
    return BytePairTokenizer(write(tmp_path_factory.mktemp("bpe") / "tokenizer.json"))


words = st.text(st.sampled_from("thesrvmld12'!,.(-\u00e9"), min_size=1)


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(text=st.lists(words, min_size=1).map(" ".join))
def test_words_are_those_of_the_pre_tokenizer(text: str, tokenizer: BytePairTokenizer) -> None:
    pieces = [piece for piece, _ in CUT.pre_tokenize_str(text)]
    first, last = tokenizer.joins()
    ids = tokenizer.encode([text])[0]
    begins = np.append(True, (first[ids[1:]] & last[ids[:-1]]) == 0)
    ends = np.cumsum([len(tokenizer.vocab[number]) for number in ids])  # a character of a token is a byte
    assert (ends - [len(tokenizer.vocab[number]) for number in ids])[begins].tolist() == [
        sum(map(len, pieces[:place])) for place in range(len(pieces))
    ]


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_bytes_of_a_token_are_those_of_its_text(text: str) -> None:
    assert b"".join(byte_words.bytes_of(piece) for piece, _ in CUT.pre_tokenize_str(text)) == text.encode()


def test_a_divided_character_goes_on_with_the_word_before_it(tokenizer: BytePairTokenizer) -> None:
    first, last = tokenizer.joins()
    for text, begins in (("the\u4e2d\u6587 the", 2), ("the \U0001f469\U0001f680", 2), ("\u4e2d", 1)):
        ids = tokenizer.encode([text])[0]
        assert 1 + np.count_nonzero((first[ids[1:]] & last[ids[:-1]]) == 0) == begins, text


def test_random_words_are_bytes_and_what_merges_make_of_them(tokenizer: BytePairTokenizer, tmp_path: Path) -> None:
    bracketed.write(tmp_path / "tokenizer.json")
    theirs = read(tmp_path / "tokenizer.json")
    absent = ({*byte_bpe.ROBERTA, "madeupword0000"}, {*bracketed.SPECIAL, *bracketed.PLAIN, "<|padding|>"})
    for ours, left_out in zip((tokenizer, theirs), absent, strict=True):
        assert {ours.vocab[number] for number in ours.ordinary} == {*ours.vocab} - left_out
    first, last = theirs.joins()
    alone = [theirs.vocab.index(token) for token in bracketed.PLAIN]
    assert not first[alone].any() and not last[alone].any()
