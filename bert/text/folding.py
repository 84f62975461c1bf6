"""From text to words by the rules of this program's version 1.0, for the models and data that were made with them.

They are those of tensorflow-text's FastBertTokenizer, which differ from Google's in what becomes of a character. Of
lower-cased text: NFKC with case folding, without ignorable characters, then NFD without nonspacing marks (Mn). Of all
text: a control character (Cc, Cf) becomes a space. A word of more than 100 bytes is [UNK].

tensorflow-text 2.21 has Unicode 16. Results differ for characters that are newer than Unicode 14.0.
"""

import functools
import itertools
import unicodedata

from bert.text import characters
from bert.text.normalization import SYMBOLS, Origin, Rules, Table, is_ideograph

SEPARATOR = "\x1f"  # around a character that is a word by itself; normalised text has no control characters
BETWEEN = (" ", SEPARATOR)
IGNORABLE = (  # Unicode's property Default_Ignorable_Code_Point
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)


class FoldingNormalizer:
    """Words of texts by the earlier rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._replaced = Table(functools.partial(_replaced, lower_case=rules.lower_case))

    def tokens(self, text: str) -> list[str]:
        """Return the parts of a text between white space."""
        return text.split()

    def words(self, token: str) -> list[str]:
        """Return the words of a part of a text that has no white space."""
        return token.translate(self._replaced).split()

    def origins(self, token: str) -> list[Origin]:
        """Return the same words, with the places in `token` that their characters come from.

        A character ends where the next one begins that was not removed.
        """
        traced = [(c, place) for place, character in enumerate(token) for c in self._replaced[ord(character)]]
        begins = [place for character, place in traced if character != SEPARATOR]
        ends, origins, number = [*begins[1:], len(token)], list[Origin](), 0
        for character, run in itertools.groupby(traced, key=lambda pair: pair[0] if pair[0] in BETWEEN else ""):
            text = "".join(one for one, _ in run)
            if character != SEPARATOR:
                here = slice(number, number := number + len(text))
                origins += [] if character else [Origin(text, begins[here], ends[here])]
        return origins


def _replaced(character: str, lower_case: bool) -> str:
    return "".join(map(_separated, normalized(character, lower_case)))


def normalized(character: str, lower_case: bool) -> str:
    """Return the text of a character by the rules: "" for an ignorable one, "?" for a lone surrogate."""
    code = ord(character)
    if 0xD800 <= code < 0xE000:
        return "?"
    if characters.is_newer(character):
        return character
    text = character
    if lower_case and not (code & 0xFFFE == 0xFFFE or 0xFDD0 <= code < 0xFDF0):  # noncharacters are kept
        previous = ""
        while text != previous:
            previous, folded = text, unicodedata.normalize("NFKC", text.casefold())
            text = "".join(one for one in folded if not any(first <= ord(one) <= last for first, last in IGNORABLE))
        text = "".join(one for one in unicodedata.normalize("NFD", text) if characters.category(one) != "Mn")
    return "".join(" " if characters.category(one) in ("Cc", "Cf") else one for one in text)


def _separated(character: str) -> str:
    """Return a space for white space; put separators around a character that is a word by itself."""
    if character in SYMBOLS or characters.category(character)[0] == "P" or is_ideograph(character):
        return f"{SEPARATOR}{character}{SEPARATOR}"
    return " " if character.isspace() else character
