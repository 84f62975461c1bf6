"""A tokenizer.json makes the words of Google's rules, as the `tokenizers` library reads it."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert.convert import fast_tokenizer
from bert.text import characters
from bert.text.normalization import Normalizer, TokenizerConfig
from tests.bert.text.test_fast_normalization import ODD

RULES = {
    "lower": TokenizerConfig(),
    "cased": TokenizerConfig(lower_case=False, strip_accents=False),
    "accents": TokenizerConfig(strip_accents=False),
    "marks": TokenizerConfig(lower_case=False, split_ideographs=False),
}
THEIRS = {
    name: (fast_tokenizer.normalizer(rules, ["a"]).normalize_str, fast_tokenizer.pre_tokenizer(rules).pre_tokenize_str)
    for name, rules in RULES.items()
}
UNORDERED = "\u1715\U0001193d\U00016ff0\U00016ff1"  # as the module says


def differing(texts: list[str], name: str) -> list[str]:
    """Return those that become other words; a newer character may be any that no vocabulary has."""
    (normalize, divide), ours, found = THEIRS[name], Normalizer(RULES[name]), []
    for text in texts:
        words = [word for token in ours.tokens(text) for word in ours.words(token)]
        known = ["".join("\ufdd0" if characters.is_newer(one) else one for one in word) for word in words]
        if known != [word for word, _ in divide(normalize(text))]:
            found.append(ascii(text))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lower", *(pytest.param(name, marks=pytest.mark.thorough) for name in [*RULES][1:])])
def test_every_character_becomes_what_google_has(name: str) -> None:
    codes = [*range(0xD800), *range(0xE000, 0x34000), *range(0xE0000, 0xE1000), 0xF0000, 0x10FFFD, 0x10FFFF]
    assert not differing([f"A\u03a3{chr(code)}\u03a3 b" for code in codes], name)


@settings(max_examples=300)
@given(text=st.text(st.one_of(st.sampled_from(ODD), st.characters(codec="utf-8"))), name=st.sampled_from([*RULES]))
@example(text="\u039f\u0394\u039f\u03a3 \u03a3\u03b1\u03a3. \u03a3 \u0391\u03a3\u02bc'\u03a3\u03a3", name="lower")
def test_any_text_becomes_what_google_has(text: str, name: str) -> None:
    assert not differing([text.translate(dict.fromkeys(map(ord, UNORDERED)))], name)


def test_texts_of_many_sigmas_and_marks_take_no_longer_than_others() -> None:
    normalize, _ = THEIRS["lower"]
    begun = time.process_time()
    for text in ("\u03a3 ", "\u02bc\u03a3", "\u0301", "\u0391\u02bc\u03a3"):
        normalize(text * 50_000)
    assert time.process_time() - begun < 5


def test_entries_that_become_other_words_are_found() -> None:
    """For the library U+10D50 (Unicode 16.0) is a capital letter."""
    vocab = ["\U00010d50", "##a\U0001e4ec", "\ue000", "\u03bf\u03c2", "\u2e52", "\xb2", "##\ufb01"]
    assert fast_tokenizer.differing(TokenizerConfig(), vocab) == ["\U00010d50"]
    assert fast_tokenizer.differing(TokenizerConfig(fast=True), vocab) == []
