"""Tell references, literature and links behind an article from its text.

`back_matter.csv` has the names of such sections in the languages of the largest Wikipedias. They are those of pywikibot
(scripts/noreferences.py: the sections of references, and those behind them) and, where it has none, of the wikis. "See
also" is not among them: what it says of an article may be a sentence.
"""

import csv
import functools
import re
from collections.abc import Collection
from pathlib import Path

TABLE = Path(__file__).with_name("back_matter.csv")
BETWEEN = re.compile(
    r"\s*[,/&;\xb7\u30fb\u3001\u548c\u4e0e\u8207\u53ca]\s*|\s+(?:u(?:nd|d)|and|et|og|och|en|y|e|i|a|\u0438|\u0456|\u0442\u0430)\s+"
)
ASIDE = re.compile(r"\s*\([^()]*\)|''+|<[^<>]*>")  # such as "(selection)"

_CAPITAL = "A-Z\u00c0-\u00d6\u00d8-\u00de\u0391-\u03ab\u0400-\u042f"
_NAME = rf"[{_CAPITAL}][\w.'\u2019&/-]*"
_YEAR = r"(?:1[4-9]|20)\d\d[a-z]?(?!\d)"
_TITLE = "(?:''(?!')|[\"\u201c\u201e\xab])"
_END = rf"{_YEAR}(?:(?!\w{{6}}).){{0,60}}\Z"  # behind the year only numbers and short words: "1998, S. 12-34."
_PLACES = rf"(?:[,.:;(\"\u201c\u201d\u00bb]|'')\s*(?:{_NAME}[ ,:]+){{1,8}}\(?"  # "Verlag, Berlin 1998"
IMPRINT = re.compile(rf"{_PLACES}{_END}|[,.] ?{_YEAR}(?:(?!\w{{6}}|\)).){{0,60}}\Z")
# How an entry begins: a title, or "Ada Ash: The Mill", or "Ada Ash, ''The Mill''", or "Ash (1998). ''The Mill''".
_PEOPLE = rf"{_NAME}(?:,? (?:[a-z\u0430-\u044f]{{1,3}} )?{_NAME}){{0,9}}(?: \([^()]{{1,12}}\))?"
ENTRY = re.compile(rf"{_TITLE}|{_PEOPLE}(?:: |, ?{_TITLE})")
YEAR_FIRST = re.compile(rf"{_NAME}[^()]{{0,200}}\({_YEAR}\)[.,:]?\s*{_TITLE}")
# What only a reference has: pages, an editor.
PAGES = re.compile(
    r"\bIn: |\((?:Hrsg|Hgg?|[Ee]ds?|[Dd]ir|[Rr]ed|\u0420\u0435\u0434|\u0440\u0435\u0434)\.?\)|\bet al\."
    r"|[,.:] ?(?:S|Sp|Bl|s|pp?|p\xe1gs?|pag|str|\u0441|\u0421|\u0441\u0442\u0440|\u03c3\u03c3?|lk)\. ?\d"
    r"|\d (?:S|s|pp?|\u0441|str)\.?\W*\Z"
)
YEAR, LINK = re.compile(_YEAR), re.compile(r"\[\[(?:[^\[\]|]*\|)?|\]\]")


@functools.cache
def _names() -> Collection[str]:
    with open(TABLE, encoding="utf-8", newline="") as stream:
        return frozenset(name.casefold() for row in csv.DictReader(stream) for name in row["sections"].split(";"))


@functools.lru_cache(10_000)  # nearly all articles have the same ones
def is_back_matter(title: str) -> bool:
    """Return whether a section with this title has references, literature, links or notes."""
    name = ASIDE.sub("", title).strip(" \t:.").casefold()
    return name in _names() or all(part in _names() for part in BETWEEN.split(name))


class Sections:
    """The present place in the sections of an article."""

    def __init__(self) -> None:
        self._level = 0  # of the heading of back matter that one is behind

    def begin(self, heading: str) -> None:
        """Take the line of a heading, such as "== Literatur ==". Deeper ones divide a section."""
        title = heading.strip()
        level = len(title) - len(title.lstrip("="))
        if not self._level or level <= self._level:
            self._level = level if is_back_matter(title.strip("=")) else 0

    @property
    def are_back_matter(self) -> bool:
        """Whether the section that has begun is of references and the like, or within one."""
        return self._level > 0


def is_citation(text: str) -> bool:
    """Return whether a line names a work, with its year: "Ada Ash: ''The Mill''. Elm, London 1998." """
    if not YEAR.search(text):
        return False
    shown = LINK.sub("", text).strip()
    if YEAR_FIRST.match(shown):
        return True
    return IMPRINT.search(shown) is not None and (ENTRY.match(shown) or PAGES.search(shown)) is not None
