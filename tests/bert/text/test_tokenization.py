"""Token ids against a second implementation (Hugging Face tokenizers), and offsets at the very characters."""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "river", "##s", "##ing", "flow", "un", "##believ", "##able", "cafe", "1", "##9", "##2", "2", "don"]
PLAIN = [*SPECIAL, *LETTERS, *(f"##{c}" for c in LETTERS), *WORDS, *"!?.,;:'\"()[]-_#$%&*+/<=>@\\^`{|}~"]

printable = st.text(st.characters(codec="latin-1"))


@pytest.fixture(scope="module")
def vocab_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(dict.fromkeys(PLAIN)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer(vocab_path: Path) -> WordPieceTokenizer:
    return WordPieceTokenizer(vocab_path)


@pytest.fixture(scope="module")
def second(vocab_path: Path) -> BertWordPieceTokenizer:
    found = BertWordPieceTokenizer(str(vocab_path), lowercase=True)
    found._tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
    return found


@settings(deadline=None, max_examples=300)
@given(text=printable)
def test_ids_agree_on_ascii_and_latin_1(
    text: str, tokenizer: WordPieceTokenizer, second: BertWordPieceTokenizer
) -> None:
    assert tokenizer.encode([text])[0].tolist() == second.encode(text, add_special_tokens=False).ids


def test_ids_and_offsets_agree_on_real_text(shared_data: Path) -> None:
    vocab = shared_data / "vocab" / "bert-base-uncased-vocab.txt"
    with lzma.open(shared_data / "squad" / "dev-v1.1.json.xz", "rt", encoding="utf-8") as stream:
        articles = json.load(stream)["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    texts = [text for p in paragraphs for text in (p["context"], *(qa["question"] for qa in p["qas"]))]
    assert len(texts) > 2000
    flat, splits, begin, end = WordPieceTokenizer(vocab).encode_with_offsets(texts)
    other = BertWordPieceTokenizer(str(vocab), lowercase=True)
    for row, text in enumerate(texts):
        here, expected = slice(splits[row], splits[row + 1]), other.encode(text, add_special_tokens=False)
        assert flat[here].tolist() == expected.ids, text
        assert list(zip(begin[here].tolist(), end[here].tolist(), strict=True)) == expected.offsets, text


def test_special_strings_in_a_text_are_only_text(tokenizer: WordPieceTokenizer) -> None:
    flat, _ = tokenizer.encode(["[CLS] the [SEP][MASK] [PAD]"])
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id}
    assert len(flat) > 4 and not special & set(flat.tolist())


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(max_size=20), max_size=4))
def test_offsets_are_whole_characters_in_order(tokenizer: WordPieceTokenizer, texts: list[str]) -> None:
    flat, splits, starts, ends = tokenizer.encode_with_offsets(texts)
    assert len(splits) == len(texts) + 1 and splits[-1] == len(flat)
    for row, text in enumerate(texts):
        begin, end = starts[splits[row] : splits[row + 1]], ends[splits[row] : splits[row + 1]]
        assert (begin < end).all() and (np.diff(begin) >= 0).all() and (end <= len(text)).all()


def test_offsets_cut_the_word_itself_from_odd_text(tokenizer: WordPieceTokenizer) -> None:
    text = "\U0001f600 Cafe\u0301 \u6771\u4eac, RIVERS \u00e9\u00e0 unbelievable"
    flat, _, starts, ends = tokenizer.encode_with_offsets([text])
    cut = {tokenizer.vocab[i]: text[a:b] for i, a, b in zip(flat, starts, ends, strict=True)}
    assert cut["cafe"] == "Cafe" and cut["river"] == "RIVER" and cut["##s"] == "S" and cut["##believ"] == "believ"


def test_texts_without_tokens_and_no_texts(tokenizer: WordPieceTokenizer) -> None:
    assert tokenizer.encode([])[1].tolist() == [0]
    assert tokenizer.encode(["", " \n", "a"])[1].tolist() == [0, 0, 0, 1]
    assert [part.tolist() for part in tokenizer.encode_with_offsets([""])] == [[], [0, 0], [], []]
