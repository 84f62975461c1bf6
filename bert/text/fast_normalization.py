"""From text to words as BERT's fast tokenizer of Hugging Face does, for the models that come from there.

Its characters come from the library itself. They differ from Google's (`bert.text.normalization`) in these:

- a capital sigma at the end of a word becomes the letter that stands inside words;
- private characters are removed;
- the ideographs U+2B820 to U+2B91F are no words by themselves;
- punctuation, marks and control characters newer than about Unicode 9 stay parts of words, and capital letters up to
  Unicode 17 become small.
"""

import functools
import unicodedata
from collections.abc import Callable

from tokenizers import normalizers, pre_tokenizers

from bert.text.normalization import IDEOGRAPHS, Normalizer, Table, TokenizerConfig, decomposed_pairs

DIVIDED = tuple((0x2B920 if first == 0x2B820 else first, last) for first, last in IDEOGRAPHS)


class FastNormalizer(Normalizer):
    """Words of texts by the rules of the fast tokenizer."""

    def __init__(self, rules: TokenizerConfig) -> None:
        super().__init__(rules)
        lower, strip = rules.lower_case, rules.strip_accents
        self._clean = Table(_each(bert(True, rules.split_ideographs, False, False)))
        self._marks = Table(_separated)
        self._steps = bert(False, False, strip, lower)
        self._lower = Table(_each(bert(False, False, False, lower)))
        self._plain = Table(_each(bert(False, False, strip, False)))

    def _folded(self, part: str) -> str:
        try:
            return str(self._steps.normalize_str(part))
        except UnicodeEncodeError:  # a lone surrogate, which the library cannot have
            return "".join(map(self._folded, part)) if len(part) > 1 else part

    def _folded_pairs(self, pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
        if self.rules.strip_accents:
            pairs = decomposed_pairs(pairs, _nfd, _combining)
        plain = [(c, place) for character, place in pairs for c in self._plain[ord(character)]]
        return [(c, place) for character, place in plain for c in self._lower[ord(character)]]


def bert(clean: bool, ideographs: bool, strip: bool, lower: bool) -> normalizers.BertNormalizer:
    """Return BERT's normalizer of the library with the selected steps."""
    return normalizers.BertNormalizer(
        clean_text=clean, handle_chinese_chars=ideographs, strip_accents=strip, lowercase=lower
    )


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


def _each(normalizer: normalizers.BertNormalizer) -> Callable[[str], str]:
    """Return a function that normalises one character; it returns a lone surrogate unchanged."""
    return lambda character: character if _is_surrogate(character) else str(normalizer.normalize_str(character))


_DIVIDE = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
_NFD = normalizers.NFD().normalize_str


def _separated(character: str) -> str:
    """Return a character, with spaces around punctuation."""
    is_alone = not _is_surrogate(character) and len(_DIVIDE(f"a{character}a")) == 3
    return f" {character} " if is_alone else character


@functools.cache
def _nfd(character: str) -> str:
    return character if _is_surrogate(character) else str(_NFD(character))


@functools.cache
def _combining(character: str) -> int:
    """Return the canonical combining class of a character; 0 if the library does not reorder the character."""
    number = unicodedata.combining(character)
    moves = number and (_NFD(f"{character}\u0334")[0] == "\u0334" or _NFD(f"\u0345{character}")[0] == character)
    return number if moves else 0
