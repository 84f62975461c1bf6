r"""Find sentence ends exactly as NLTK's PunktSentenceTokenizer does, but several times faster.

Punkt (Kiss and Strunk 2006) decides on each piece of text between two spaces that has a full stop in it, and on the
piece after it. Few of its rules need both pieces: a full stop after a word that is not an abbreviation, an initial or a
number ends the sentence whatever follows. So the decision for such a piece is cached, and most full stops cost one
look-up in a set. The tests compare the sentences with NLTK's, on generated and on real text.
"""

import re
from collections.abc import Set
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # it takes a while to load
    from nltk.tokenize.punkt import PunktParameters

MAX_KNOWN = 50_000  # pieces of text in the cache, about 30 MB; then the cache is emptied
MAX_KNOWN_LENGTH = 40  # characters; longer pieces seldom repeat

NO_WORD = r""")";}\]*:@'({\[\u2018\u2019\u201c\u201d\xab\xbb?!"""  # these may begin a word but are not inside one
# The last full stop of a piece that is followed by a space or a NO_WORD character; also one that begins a piece.
CANDIDATE = re.compile(rf"[.?!](?=[ {NO_WORD}])(?:(?<=[^ ].)[^ ]*[.?!](?=[ {NO_WORD}]))?")
TOKEN = re.compile(
    r"--+|\.\.+"
    r'|[^-,("`{\[:;&#*@)}\]]'
    rf"(?:[^-,.{NO_WORD}]|-(?!-)|\.(?!\.)|,(?!\Z|--|\.\.|[{NO_WORD}]))*"
    r"|.",
    re.DOTALL,
)
CLOSERS = "\"')]}\u2018\u2019\u201c\u201d\xab\xbb"
CLOSING = re.compile(rf"([{re.escape(CLOSERS)}]+)(?: |(?=--)|\Z)")  # belongs to the sentence that it closes
NUMBER = re.compile(r"-?[.,]?[0-9][0-9,.-]*")
PUNCTUATION = frozenset(";:,.!?")

# Punkt's orthographic contexts: bits for the positions and spellings in which a word has been seen.
INSIDE_UPPER, ANY_UPPER = 1 << 2, 1 << 1 | 1 << 2 | 1 << 3
START_LOWER, ANY_LOWER = 1 << 4, 1 << 4 | 1 << 5 | 1 << 6


class Token(NamedTuple):
    """The properties of a single token that Punkt uses."""

    type: str
    """lower-cased, all numbers equal; without the full stop if it ends a sentence"""
    first: str
    """the type as the first word of a collocation: without its full stop; "" if it has none"""
    ends: bool
    """ends a sentence unless the next token prevents it"""
    shortened: bool
    """is an abbreviation or an ellipsis"""
    initial: bool
    number: bool
    upper: bool
    """begins with a capital letter"""
    starts: bool | None
    """whether its spelling shows that it starts a sentence; None if the spelling does not decide"""


class Piece(NamedTuple):
    """Text without spaces."""

    within: bool
    """a sentence ends between two of its tokens"""
    always: bool
    """a sentence ends within it or at its end, whatever follows"""
    head: Token
    tail: Token


class Splitter:
    """Split text into the same sentences as `PunktSentenceTokenizer(parameters).tokenize`."""

    def __init__(self, parameters: "PunktParameters") -> None:
        from nltk.tokenize.punkt import PunktToken

        self._nltk_token = PunktToken
        self._abbreviations: Set[str] = frozenset(parameters.abbrev_types)
        self._starters: Set[str] = frozenset(parameters.sent_starters)
        self._collocations: Set[tuple[str, str]] = frozenset(parameters.collocations)
        self._contexts: dict[str, int] = dict(parameters.ortho_context)
        self._firsts = {first for first, _ in self._collocations}
        self._always: set[str] = set()  # pieces after which a sentence ends
        self._cached: dict[str, Piece] = {}  # other pieces, and those after them

    def sentences(self, paragraph: str) -> list[str]:
        """Return the sentences of a text whose only white space is single spaces inside it."""
        result = []
        start = 0
        always = self._always
        for match in CANDIDATE.finditer(paragraph):
            end = match.end()
            if paragraph[end - 1] == ".":
                piece = paragraph[paragraph.rfind(" ", 0, end) + 1 : end]
                if piece not in always and not self._ends(piece, paragraph, end):
                    continue
            following = end + 1 if paragraph[end] == " " else end
            if paragraph[following] in CLOSERS and (closing := CLOSING.match(paragraph, following)):
                end, following = closing.end(1), closing.end()
            result.append(paragraph[start:end])
            start = following
        if start < len(paragraph):
            result.append(paragraph[start:])
        return result

    def _ends(self, piece: str, paragraph: str, end: int) -> bool:
        """Whether a sentence ends after `piece`, which has a full stop at its end, `end`."""
        word = piece[:-1]
        lower = word.lower()
        if word.isalpha() and len(word) > 1 and lower not in self._abbreviations and lower not in self._firsts:
            always = True
        else:
            before = self._piece(piece)
            always = before.always
        if always:
            if len(piece) <= MAX_KNOWN_LENGTH:
                if len(self._always) >= MAX_KNOWN:
                    self._always.clear()
                self._always.add(piece)
            return True
        after = self._piece(_following(paragraph, end))
        # As in NLTK, a sentence end within the following piece counts too: `Mr. Ash?"` has one after "Mr.".
        return after.within or self._ends_between(before.tail, after.head)

    def _piece(self, text: str) -> Piece:
        if cached := self._cached.get(text):
            return cached
        tokens = [self._token(token) for token in TOKEN.findall(text)]
        tail = tokens[-1]
        within = any(self._ends_between(*pair) for pair in pairwise(tokens))
        always = within or (tail.ends and not (tail.initial or tail.number or tail.first in self._firsts))
        piece = Piece(within, always, tokens[0], tail)
        if len(text) <= MAX_KNOWN_LENGTH:
            if len(self._cached) >= MAX_KNOWN:
                self._cached.clear()
            self._cached[text] = piece
        return piece

    def _token(self, text: str) -> Token:
        stop = text[-1] == "."
        word = text[:-1] if stop else text
        if text.isascii() or word.isalpha():
            kind = "##number##" if NUMBER.fullmatch(text) else text.lower()
            initial = stop and len(word) == 1 and (word.isalpha() or word == "_")
        else:  # NLTK uses another version of Unicode than Python, so NLTK decides what is a letter or a digit
            nltk_token = self._nltk_token(text)
            kind, initial = nltk_token.type, bool(nltk_token.is_initial)
        bare = kind[:-1] if kind[-1] == "." and len(kind) > 1 else kind
        dots = text[-2:] == ".."
        shortened = dots and not text.strip(".")
        if word and stop and not dots:
            lower = word.lower()
            shortened = lower in self._abbreviations or lower.rpartition("-")[2] in self._abbreviations
        ends = text in ("?", "!") or (stop and not dots and not shortened)
        kind = bare if ends else kind
        upper = text[0].isupper()
        starts = text not in PUNCTUATION and self._starts(kind, upper, text[0].islower())
        return Token(kind, bare if stop else "", ends, shortened, initial, bare == "##number##", upper, starts)

    def _starts(self, kind: str, upper: bool, lower: bool) -> bool | None:
        seen = self._contexts.get(kind, 0)
        if upper and seen & ANY_LOWER and not seen & INSIDE_UPPER:
            return True
        if lower and (seen & ANY_UPPER or not seen & START_LOWER):
            return False
        return None

    def _ends_between(self, token: Token, after: Token) -> bool:
        """Whether a sentence ends between two tokens."""
        if not token.first:
            return token.ends
        if (token.first, after.type) in self._collocations:
            return False
        if token.shortened and not token.initial and (after.starts or (after.upper and after.type in self._starters)):
            return True
        if token.initial or token.number:
            if after.starts is False:
                return False
            if token.initial and after.starts is None and after.upper:
                return token.ends and bool(self._contexts.get(after.type, 0) & ANY_LOWER)
        return token.ends


def _following(paragraph: str, end: int) -> str:
    """Return the next piece, or the next character if the piece continues after the full stop before `end`."""
    if paragraph[end] != " ":
        return paragraph[end]
    space = paragraph.find(" ", end + 1)
    return paragraph[end + 1 : space] if space > 0 else paragraph[end + 1 :]
