"""Words of texts as the fast tokenizer of Hugging Face makes them: the library is the oracle."""

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from bert.text.fast_normalization import FastNormalizer
from bert.text.normalization import TokenizerConfig

RULES = {
    "lower": TokenizerConfig(fast=True),
    "cased": TokenizerConfig(lower_case=False, strip_accents=False, fast=True),
    "accents": TokenizerConfig(strip_accents=False, fast=True),
    "marks": TokenizerConfig(lower_case=False, split_ideographs=False, fast=True),
}
# Greek, new marks and punctuation, private characters, ideographs that are not divided, marks in several orders
ODD = "aB\xc9\xdf\u0130\u03a3\u03c3\u03c2'.\u02bc\u0301\u0323\u0898\u09fe\u1734\u1715\u061d\u2e52\u166d\ue000\U0010fffd"
ODD += "\u4e2d\U0002b820\U00011938\U0001d165\U0001d16d\U00010d50\ua7cb\u200d\x85\xa0\n\u2028\0\ufffd\ufdd0"


def theirs(text: str, rules: TokenizerConfig) -> list[str]:
    normalized = normalizers.BertNormalizer(
        lowercase=rules.lower_case, strip_accents=rules.strip_accents, handle_chinese_chars=rules.split_ideographs
    ).normalize_str(text)
    return [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalized)]


def differs(text: str, rules: TokenizerConfig, normalizer: FastNormalizer) -> bool:
    tokens = normalizer.tokens(text)
    words = [word for token in tokens for word in normalizer.words(token)]
    traced = [origin.word for token in tokens for origin in normalizer.origins(token)]
    return not words == traced == theirs(text, rules)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lower", pytest.param("cased", marks=pytest.mark.thorough)])
def test_every_character_becomes_what_the_library_has(name: str) -> None:
    normalizer, codes = FastNormalizer(RULES[name]), [*range(0xD800), *range(0xE000, 0x34000), *range(0xE0000, 0xE1000)]
    texts = [f"A{chr(code)}\u0301b" for code in [*codes, 0xF0000, 0x10FFFD, 0x10FFFF]]
    assert not [ascii(text) for text in texts if differs(text, RULES[name], normalizer)]


@settings(max_examples=300)
@given(text=st.text(st.one_of(st.sampled_from(ODD), st.characters(codec="utf-8"))), name=st.sampled_from([*RULES]))
@example(text="\u039f\u0394\u039f\u03a3 \u03a3\u03b1\u03a3", name="lower")
@example(text="a\u0323\U0001d165\u1715\U0001d16d\u0898\u08d3", name="lower")
def test_any_text_becomes_what_the_library_has(text: str, name: str) -> None:
    assert not differs(text, RULES[name], FastNormalizer(RULES[name])), unicodedata.unidata_version


def test_a_lone_surrogate_is_part_of_its_word() -> None:
    """The library cannot have it; as Google's code keeps it, the word is [UNK]."""
    normalizer = FastNormalizer(RULES["lower"])
    assert normalizer.words("\xc9\ud800\u03a3") == ["e\ud800\u03c3"] == [normalizer.origins("\xc9\ud800\u03a3")[0].word]
