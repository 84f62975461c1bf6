"""What characters are, by Unicode 14.0 in any interpreter, so that texts have the same tokens in all of them.

Python 3.11 has Unicode 14.0, 3.12 has 15.0 and 3.13 has 15.1. To Unicode 14.0 a newer character is unassigned: it is
kept as it is, has no case and no decomposition, and ends the run of letters in which a capital sigma is the last.

`NEWER` lists the characters that each later version assigned, from their categories in unicodedata2 (PyPI) 15.0.0,
15.1.0, 16.0.0 and 17.0.0. Up to 15.1 nothing that is used here has changed for the others.
"""

import functools
import re
import unicodedata
from collections.abc import Callable

VERSION = "14.0"
UNASSIGNED = "Cn"
NEWER = {  # version of Unicode -> first and last of each range, or the only one
    "15.0": (
        "CF3 ECE 10EFD-10EFF 1123F-11241 11B00-11B09 11F00-11F10 11F12-11F3A 11F3E-11F59 1342F 13439-13455 1B132 "
        "1B155 1D2C0-1D2D3 1DF25-1DF2A 1E030-1E06D 1E08F 1E4D0-1E4F9 1F6DC 1F774-1F776 1F77B-1F77F 1F7D9 "
        "1FA75-1FA77 1FA87-1FA88 1FAAD-1FAAF 1FABB-1FABD 1FABF 1FACE-1FACF 1FADA-1FADB 1FAE8 1FAF7-1FAF8 2B739 "
        "31350-323AF"
    ),
    "15.1": "2FFC-2FFF 31EF 2EBF0-2EE5D",
    "16.0": (
        "897 1B4E-1B4F 1B7F 1C89-1C8A 2427-2429 31E4-31E5 A7CB-A7CD A7DA-A7DC 105C0-105F3 10D40-10D65 10D69-10D85 "
        "10D8E-10D8F 10EC2-10EC4 10EFC 11380-11389 1138B 1138E 11390-113B5 113B7-113C0 113C2 113C5 113C7-113CA "
        "113CC-113D5 113D7-113D8 113E1-113E2 116D0-116E3 11BC0-11BE1 11BF0-11BF9 11F5A 13460-143FA 16100-16139 "
        "16D40-16D79 18CFF 1CC00-1CCF9 1CD00-1CEB3 1E5D0-1E5FA 1E5FF 1F8B2-1F8BB 1F8C0-1F8C1 1FA89 1FA8F 1FABE "
        "1FAC6 1FADC 1FADF 1FAE9 1FBCB-1FBEF"
    ),
    "17.0": (
        "88F C5C CDC 1ACF-1ADD 1AE0-1AEB 20C1 2B96 A7CE-A7CF A7D2 A7D4 A7F1 FBC3-FBD2 FD90-FD91 FDC8-FDCE "
        "10940-10959 10EC5-10EC7 10ED0-10ED8 10EFA-10EFB 11B60-11B67 11DB0-11DDB 11DE0-11DE9 16EA0-16EB8 "
        "16EBB-16ED3 16FF2-16FF6 187F8-187FF 18D09-18D1E 18D80-18DF2 1CCFA-1CCFC 1CEBA-1CED0 1CEE0-1CEF0 "
        "1E6C0-1E6DE 1E6E0-1E6F5 1E6FE-1E6FF 1F6D8 1F777-1F77A 1F8D0-1F8D8 1FA54-1FA57 1FA8A 1FA8E 1FAC8 1FACD "
        "1FAEA 1FAEF 1FBFA 2B73A-2B73F 2CEA2-2CEAD 323B0-33479"
    ),
}


def ranges(listed: str) -> list[tuple[int, int]]:
    """Return the first and the last code point of each range of a list in the form of `NEWER`."""
    ends = [[int(end, 16) for end in one.split("-")] for one in listed.split()]
    return [(one[0], one[-1]) for one in ends]


NEWER_CLASS = f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in ranges(' '.join(NEWER.values())))}]"
_NEWER = frozenset(chr(code) for first, last in ranges(" ".join(NEWER.values())) for code in range(first, last + 1))
_NFD = functools.partial(unicodedata.normalize, "NFD")
_PARTS = re.compile(f"({NEWER_CLASS})")


def is_newer(character: str) -> bool:
    """Return whether a later version than Unicode 14.0 assigned the character."""
    return character in _NEWER


def category(character: str) -> str:
    """Return the general category of a character."""
    return UNASSIGNED if is_newer(character) else unicodedata.category(character)


def combining(character: str) -> int:
    """Return the canonical combining class of a character."""
    return 0 if is_newer(character) else unicodedata.combining(character)


def lower(text: str) -> str:
    """Return a text in lower case."""
    return of_known(str.lower, text)


def nfd(text: str) -> str:
    """Return the canonical decomposition of a text."""
    return of_known(_NFD, text)


def of_known(change: Callable[[str], str], text: str) -> str:
    """Return a text whose parts between newer characters are changed."""
    if text.isascii() or _NEWER.isdisjoint(text):
        return change(text)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(_PARTS.split(text)))
