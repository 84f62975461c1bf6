"""Words of texts: every character as Hugging Face's tokenizers have it, and the cases in which Google's differ."""

import time
import unicodedata
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from bert.text import normalization
from bert.text.normalization import Normalizer, TokenizerConfig

RULES = {
    "lower": TokenizerConfig(),
    "cased": TokenizerConfig(lower_case=False, strip_accents=False),
    "accents": TokenizerConfig(strip_accents=False),
    "chinese": TokenizerConfig(split_ideographs=False),
}
# What tokenizers 0.22 have otherwise than Google's code: private characters are removed there, a block of ideographs is
# not divided, and their Unicode is older (U+166D was punctuation, U+1734 a nonspacing mark, two others were none).
DIFFERENT = {0x166D, 0x1734, 0x1885, 0x1886, *range(0xE000, 0xF900), *range(0xF0000, 0x110000)}


def words(text: str, rules: TokenizerConfig) -> list[str]:
    normalizer = Normalizer(rules)
    found = [word for token in normalizer.tokens(text) for word in normalizer.words(token)]
    assert [origin.word for token in normalizer.tokens(text) for origin in normalizer.origins(token)] == found
    return found


def hugging_face(rules: TokenizerConfig) -> Callable[[str], list[str]]:
    normalize = normalizers.BertNormalizer(
        lowercase=rules.lower_case, strip_accents=rules.strip_accents, handle_chinese_chars=rules.split_ideographs
    ).normalize_str
    divide = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    return lambda text: [word for word, _ in divide(normalize(text))]


def is_old(code: int) -> bool:
    """Whether Unicode 3.2 has a character, so that all programs know it."""
    return unicodedata.ucd_3_2_0.category(chr(code)) not in ("Cn", "Cs") and code not in DIFFERENT


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["lower", "cased", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("accents", "chinese"))]
)
def test_every_character_becomes_what_hugging_face_has(name: str) -> None:
    rules, texts = RULES[name], [f"a{chr(code)}b" for code in range(0x110000) if is_old(code)]
    assert len(texts) > 95_000
    normalizer, theirs, differing = Normalizer(rules), hugging_face(rules), []
    for text in texts:
        ours = [word for token in normalizer.tokens(text) for word in normalizer.words(token)]
        traced = [origin.word for token in normalizer.tokens(text) for origin in normalizer.origins(token)]
        if not ours == traced == theirs(text):
            differing.append(text)
    assert not differing, [ascii(text) for text in differing[:9]]


LETTERS = (
    "aB\xc9\xdf\u0130\u03a3\u03c3\u03c2e\u0301\u0323\u4e2d\uac00\u1100\u0939\u093f\u200d\xad.,$~ \xa0\n\x0b\0\ufffd"
)


@settings(max_examples=300)
@given(text=st.text(st.one_of(st.sampled_from(LETTERS), st.characters(codec="utf-8"))), name=st.sampled_from([*RULES]))
@example(text="\u0301a e\u0323\u0301 a\u0301\u0323b", name="lower")
@example(text="\u1d165\U0001d16d\U0001d165", name="lower")
def test_words_and_their_origins_agree_for_any_text(text: str, name: str) -> None:
    assert all(word and not word.isspace() for word in words(text, RULES[name]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Der Fu\xdf", ["der", "fu\xdf"]),
        (
            "\u039f\u0394\u039f\u03a3 \u03a3\u03b1\u03a3. \u03a3",
            ["\u03bf\u03b4\u03bf\u03c2", "\u03c3\u03b1\u03c2", ".", "\u03c3"],
        ),
        ("120/km\xb2 \xbd", ["120", "/", "km\xb2", "\xbd"]),
        ("\ufb01ne", ["\ufb01ne"]),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", ["\u0645\u06cc\u062e\u0648\u0627\u0647\u0645"]),
        ("soft\xadhyphen a\x0bb c\x85d", ["softhyphen", "ab", "cd"]),
        ("a\u2028b\u3000c", ["a", "b", "c"]),
        ("\ufffd\0x", ["x"]),
        ("\ue000 \ud800", ["\ue000", "\ud800"]),
        ("\u6771\u4eac\u30bf\u30ef\u30fc", ["\u6771", "\u4eac", "\u30bf\u30ef\u30fc"]),
    ],
)
def test_known_texts(text: str, expected: Sequence[str]) -> None:
    assert words(text, TokenizerConfig()) == expected


def test_special_tokens_are_found_as_they_are_written() -> None:
    rules = TokenizerConfig(special=("[E1]", "[/E1]", "[E11]"))
    assert words("x[E1]Caf\xe9[/E1], [e1] [E11]", rules) == ["x", "[E1]", "cafe", "[/E1]", ",", "[", "e1", "]", "[E11]"]
    (before, special, after) = Normalizer(rules).origins("\xe9[E1]b")
    assert (before.begins[0], list(special.begins), after.ends[-1]) == (0, [1, 2, 3, 4], 6)


def test_long_texts_without_spaces_have_their_marks_in_order() -> None:
    """As the interpreter's own NFD has them, which is slow for texts that are much longer."""
    random = np.random.default_rng(5)
    letters = list("a\xe9\uac01\u0301\u0323\u0344\u0f73\u0f71\u0f80\u302e\u302f\U0001d165\u1e69\xe5\u0902")
    for length in (999, 1001, 3001):
        text = "".join(random.choice(letters, length))
        assert normalization.decomposed(text) == unicodedata.normalize("NFD", text)
        marks = [one for one in unicodedata.normalize("NFD", text) if unicodedata.category(one) != "Mn"]
        assert "".join(words(text, RULES["lower"])) == "".join(marks)


def test_a_letter_with_very_many_marks_is_read_at_once() -> None:
    """Anybody can send one to a service. The interpreter's NFD orders them by insertion: these would take 10 s."""
    text, begun = "e" + "\u0301\u0323" * 50_000, time.process_time()
    assert words(text, RULES["lower"]) == ["e"]
    assert time.process_time() - begun < 3
