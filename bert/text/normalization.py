"""From text to words, as `BasicTokenizer` of google-research/bert (tokenization.py) does, for every character.

1. Control characters (Cc, Cf), NUL and U+FFFD are removed, but tab, line feed and carriage return are white space.
2. Each CJK ideograph is a word by itself.
3. At white space the text is divided into tokens. Each of them is lower-cased and loses its accents: canonical
   decomposition (NFD) without nonspacing marks (Mn).
4. Each punctuation mark is a word by itself.

`TokenizerConfig` says which of these a vocabulary was made for.

Characters are those of Unicode 14.0 (`bert.text.characters`); a newer one is left as it is.
"""

import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bert.text import characters

IDEOGRAPHS = (  # first and last of each range, as in Google's code
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
SYMBOLS = frozenset("$+<=>^`|~")  # punctuation for BERT, but not for Unicode
NOT_SPACES = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"  # white space for Python, control characters for BERT
LONGEST_WORD = 200  # characters, as in Google's code; a longer word is [UNK]
QUICK = 1000  # characters that the interpreter decomposes within a millisecond or two, whatever they are


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How the texts of a vocabulary become words."""

    lower_case: bool = True
    strip_accents: bool = True
    split_ideographs: bool = True
    """whether each CJK ideograph is a word"""
    longest_word: int = LONGEST_WORD
    """characters; a longer word is [UNK]"""
    special: tuple[str, ...] = ()
    """further special tokens, which are recognised in texts as they are written"""
    fast: bool = False
    """whether characters are those of Hugging Face's fast tokenizers (bert.text.fast_normalization)"""

    def agrees(self, other: "TokenizerConfig") -> bool:
        """Return whether the rules make the same words of texts, but for very long ones."""
        return dataclasses.replace(self, longest_word=0) == dataclasses.replace(other, longest_word=0)


UNCASED = TokenizerConfig()


class WordSpan(NamedTuple):
    """A word, and the range of the text, half open, that each of its characters comes from."""

    word: str
    begins: Sequence[int]
    ends: Sequence[int]


class Normalizer:
    """Words of texts by the rules of BERT."""

    def __init__(self, rules: TokenizerConfig) -> None:
        self.rules = rules
        self._clean = Table(functools.partial(_cleaned, split=rules.split_ideographs))
        self._marks = Table(functools.partial(_separated, marks=not rules.strip_accents))
        self._special = re.compile("|".join(map(re.escape, sorted(rules.special, key=len, reverse=True))) or r"(?!)")

    def tokens(self, text: str) -> list[str]:
        """Return the parts of a text between white space."""
        if not text.isprintable() and any(character in text for character in NOT_SPACES):
            text = text.translate(_REMOVED)
        return text.split()

    def words(self, token: str) -> list[str]:
        """Return the words of a part of a text that has no white space."""
        if self.rules.special:
            return [
                word for part, special in self._divided(token) for word in ([part] if special else self._words(part))
            ]
        return self._words(token)

    def _words(self, token: str) -> list[str]:
        if token.isascii() and token.isalnum():
            return [token.lower() if self.rules.lower_case else token]
        words: list[str] = []
        for part in token.translate(self._clean).split():
            words += self._folded(part).translate(self._marks).split()
        return words

    def _folded(self, part: str) -> str:
        """Return a text in lower case and decomposed, where the rules say so."""
        return characters.of_known(self._folded_known, part)

    def _folded_known(self, part: str) -> str:
        part = part.lower() if self.rules.lower_case else part
        return decomposed(part) if self.rules.strip_accents and not part.isascii() else part

    def replacement(self, character: str) -> str:
        """Return what replaces a single character, with spaces around a character that is a word by itself.

        Within a text the replacement is the same, except for a capital sigma: at the end of a word it becomes another
        letter.
        """
        if character.isspace() and character not in NOT_SPACES:
            return " "
        text = self._clean[ord(character)]
        return self._folded(text).translate(self._marks)

    def origins(self, token: str) -> list[WordSpan]:
        """Return the same words, with the places in `token` that their characters come from."""
        if token.isascii() and token.isprintable() and not self.rules.special:  # each character stays one
            ends = [0, *itertools.accumulate(map(len, words := self.words(token)))]
            return [_origin(word, range(*ends[n : n + 2])) for n, word in enumerate(words)]
        origins, begin = list[WordSpan](), 0
        for part, special in self._divided(token):
            places = range(begin, begin + len(part))
            origins += [_origin(part, places)] if special else self._traced(list(zip(part, places, strict=True)))
            begin += len(part)
        return origins

    def _traced(self, token: list[tuple[str, int]]) -> Iterator[WordSpan]:
        """Yield the words of characters with their places: the steps of `_words`, one character at a time."""
        cleaned = [(c, place) for character, place in token for c in self._clean[ord(character)]]
        for is_space, part in itertools.groupby(cleaned, key=lambda pair: pair[0] == " "):
            if is_space:
                continue
            folded = self._folded_pairs(list(part))
            marked = [(c, place) for character, place in folded for c in self._marks[ord(character)]]
            for is_space, word in itertools.groupby(marked, key=lambda pair: pair[0] == " "):
                if not is_space:
                    letters, places = zip(*word, strict=True)
                    yield _origin("".join(letters), places)

    def _folded_pairs(self, pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Do what `_folded` does, for characters with their places."""
        if self.rules.lower_case:
            lower = iter(characters.lower("".join(c for c, _ in pairs)))  # a final sigma needs its context
            pairs = [(next(lower), place) for character, place in pairs for _ in characters.lower(character)]
        return decomposed_pairs(pairs, characters.nfd, characters.combining) if self.rules.strip_accents else pairs

    def _divided(self, token: str) -> Iterator[tuple[str, bool]]:
        """Yield the parts of a token, and whether they are special tokens."""
        begin = 0
        for match in self._special.finditer(token):
            yield token[begin : match.start()], False
            yield match[0], True
            begin = match.end()
        yield token[begin:], False


class Table(dict[int, str]):
    """Cache of what replaces each character, for `str.translate`."""

    def __init__(self, replace: Callable[[str], str]) -> None:
        super().__init__()
        self._replace = replace

    def __missing__(self, code: int) -> str:
        self[code] = self._replace(chr(code))
        return self[code]


_REMOVED = dict.fromkeys(map(ord, NOT_SPACES), "")
_DECOMPOSED = Table(characters.nfd)


def _origin(word: str, places: Sequence[int]) -> WordSpan:
    return WordSpan(word, places, [place + 1 for place in places])


def _cleaned(character: str, split: bool) -> str:
    """Return a character, a space for white space, or "" for one that is removed; spaces around an ideograph."""
    if character in "\t\n\r" or characters.category(character) == "Zs":
        return " "
    if character in "\0\ufffd" or characters.category(character) in ("Cc", "Cf"):
        return ""
    return f" {character} " if split and is_ideograph(character) else character


def _separated(character: str, marks: bool) -> str:
    """Return a character with spaces around punctuation; "" for a nonspacing mark unless `marks` are kept."""
    if character in SYMBOLS or characters.category(character)[0] == "P":
        return f" {character} "
    return "" if not marks and characters.category(character) == "Mn" else character


def decomposed(text: str) -> str:
    """Return the canonical decomposition (NFD) of a text without newer characters.

    The interpreter orders a run of marks by insertion, in a time that grows with the square of their number.
    """
    if len(text) <= QUICK:
        return unicodedata.normalize("NFD", text)
    runs = itertools.groupby(text.translate(_DECOMPOSED), key=lambda character: unicodedata.combining(character) > 0)
    return "".join(
        "".join(sorted(run, key=unicodedata.combining)) if combines else "".join(run) for combines, run in runs
    )


def decomposed_pairs(
    pairs: Sequence[tuple[str, int]], nfd: Callable[[str], str], combining: Callable[[str], int]
) -> list[tuple[str, int]]:
    """Return the canonical decomposition of characters with their places, in canonical order."""
    parts = [(part, place) for character, place in pairs for part in nfd(character)]
    ordered = []
    for combines, run in itertools.groupby(parts, key=lambda pair: combining(pair[0]) > 0):
        marks = list(run)
        ordered += sorted(marks, key=lambda pair: combining(pair[0])) if combines else marks
    return ordered


def is_ideograph(character: str) -> bool:
    """Return whether a character is in Unicode's blocks of CJK ideographs."""
    return any(first <= ord(character) <= last for first, last in IDEOGRAPHS)
