"""Characters are those of Unicode 14.0, whatever the interpreter's version."""

import hashlib
import unicodedata
from collections.abc import Callable

import pytest

from bert.text import characters
from bert.text.normalization import Normalizer, TokenizerConfig

# What the versions added, by the pages https://www.unicode.org/versions/Unicode15.0.0/ to Unicode17.0.0/.
ADDED = {"15.0": 4489, "15.1": 627, "16.0": 5185, "17.0": 4803}
CODES = [*range(0xD800), *range(0xE000, 0x34000), *range(0xE0000, 0xE0200)]  # all but private and unassigned planes


def test_each_version_added_as_many_characters_as_it_says() -> None:
    listed = {version: characters.ranges(text) for version, text in characters.NEWER.items()}
    assert {version: sum(last - first + 1 for first, last in them) for version, them in listed.items()} == ADDED
    codes = [code for them in listed.values() for first, last in them for code in range(first, last + 1)]
    assert len(set(codes)) == len(codes)
    for version, them in listed.items():
        known = tuple(map(int, unicodedata.unidata_version.split("."))) >= tuple(map(int, version.split(".")))
        for first, last in them:
            assert all((unicodedata.category(chr(code)) != "Cn") == known for code in range(first, last + 1)), version


@pytest.mark.parametrize(
    ("compute", "sha256"),  # of the values of `unicodedata` and `str` in Python 3.11.7
    [
        (characters.category, "4b45d980e698d783"),
        (characters.nfd, "067f506cf1150688"),
        (characters.lower, "78d5e8d4de859ccd"),
        (lambda one: str(characters.combining(one)), "b811c0dd91fe78d7"),
        (lambda one: characters.lower(f"A{one}\u03a3"), "860aaa671eb0d899"),  # between a letter and a capital sigma
        (lambda one: characters.lower(f"A\u03a3{one}B"), "7da84aa1d6eaabe6"),
    ],
)
def test_characters_are_what_python_3_11_has(compute: Callable[[str], str], sha256: str) -> None:
    values = "\n".join(compute(chr(code)) for code in CODES)
    assert hashlib.sha256(values.encode()).hexdigest()[:16] == sha256


def test_newer_characters_stay_in_words_as_they_are() -> None:
    """U+1E4EC (15.0) is a mark and U+10D50 (16.0) a capital letter; Python 3.11 leaves both as they are."""
    normalizer = Normalizer(TokenizerConfig())
    text = "e\u0301\U0001e4ec\u0323\U00010d50A\u03a3\U0001e4ecB \u0391\u03a3\U00010d50"
    words = [word for token in normalizer.tokens(text) for word in normalizer.words(token)]
    assert words == ["e\U0001e4ec\U00010d50a\u03c2\U0001e4ecb", "\u03b1\u03c2\U00010d50"]
    assert [origin.word for token in normalizer.tokens(text) for origin in normalizer.origins(token)] == words
