"""Write formulas in MathML as one line of text from which they can be read again: 3/4, 10^6, \u221a(x+1).

Elements as in MathML 3 (W3C Recommendation, 2014), chapter 3. Of a formula with annotations only what is shown is
written. Subscripts are as those of <sub>: CO2, but x_i, and 5_1 behind a digit.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
# Operators that are not shown: between a function and its argument, indices, and a number and a fraction.
INVISIBLE = {"\u2061": " ", "\u2063": ",", "\u2064": " "}
ACCENTS = {  # what is over a letter -> combining character
    **dict.fromkeys("\xaf\u02c9\u203e\u2015\u2013\u2014\u2212_-\u0304\u0305", "\u0304"),
    **dict.fromkeys("^\u02c6\u0302", "\u0302"),
    **dict.fromkeys("~\u02dc\u223c\u0303", "\u0303"),
    **dict.fromkeys(".\u02d9\xb7\u22c5\u0307", "\u0307"),
    **dict.fromkeys("\xa8\u0308", "\u0308"),
    **dict.fromkeys("\u2192\u20d7\u21c0", "\u20d7"),
    **dict.fromkeys("\u02c7\u030c", "\u030c"),
}
LINES = frozenset("\u23de\u23df\u23b4\u23b5\u0332\u203f\ufe37\ufe38_\xaf\u203e\u2015")  # beside what they belong to
MARKS = re.compile("[\u2032-\u2037'*\u2217\u2218\xb0\u2020\u2021\u22c6]+")  # primes and the like need no "^"
SIMPLE = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+\d*|\([^()]*\)")  # operands that need no parentheses
SIGNED = re.compile(rf"[-+\u2212\xb1]?\d+(?:[.,]\d+)*[-+\u2212]?|[-+\u2212\xb1]|{SIMPLE.pattern}")
PRODUCT = re.compile("(?<=[0-9])\u2062(?=[0-9])")  # a product whose sign is not shown
CLOSING = tuple(")]}|")
TEX_BODY = re.compile(r"\\begin\{document\}(.*?)\\end\{document\}", re.S)


class Piece(NamedTuple):
    """A part of a formula."""

    text: str
    is_built: bool = False
    """it is a fraction, a power or a root, so that a letter or digit beside it could be taken for a part of it"""


def is_formula(tag: str) -> bool:
    """Return whether an element is MathML."""
    return tag.startswith(NAMESPACE) or tag == "math"


def shown(element: Element) -> str:
    """Return a formula as text."""
    text = PRODUCT.sub(" ", _piece(element).text).replace("\u2062", "")
    return " ".join(text.split())


def stands_apart(before: str, text: str) -> bool:
    """Return whether a number at the begin of a text must not be joined to what is before it."""
    return before[-1:].isdigit() and text[:1].isdigit()


def tex(element: Element) -> str:
    """Return the TeX of an element, without the lines that make it a document."""
    text = "".join(element.itertext())
    body = TEX_BODY.search(text)
    return body[1].strip() if body else text.strip()


def _piece(element: Element) -> Piece:
    name = _name(element)
    if name in TOKENS:
        text = "".join(element.itertext()) if name != "mspace" else " "
        text = " ".join(text.split()) if name != "mtext" else re.sub(r"\s+", " ", text)
        return Piece("".join(INVISIBLE.get(one, one) for one in text) or (" " if name == "mspace" else ""))
    build = BUILDERS.get(name)
    return build(element, [_piece(child) for child in element]) if build else _row(element, list(map(_piece, element)))


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _row(_: Element, parts: Sequence[Piece]) -> Piece:
    """Return pieces one behind the other; numbers that are not one number stay apart."""
    if len(parts) == 1:
        return parts[0]
    text, before = "", Piece("")
    for part in filter(lambda part: part.text, parts):
        text += (" " if text and _needs_space(text, before, part) else "") + without_mark(text or "0", part.text)
        before = part
    return Piece(text)


def without_mark(before: str, text: str) -> str:
    """Return what is behind a text, which begins with "^" only if it is a power: 18F, but 10^6."""
    return text if text[:1] != "^" or before[-1:].isalnum() or before[-1:] in CLOSING else text[1:]


def _needs_space(text: str, before: Piece, part: Piece) -> bool:
    if stands_apart(text, part.text):
        return not (before.text.isdecimal() and part.text.isdecimal())  # digits, each in a separate element
    return before.is_built and text[-1].isalnum() and part.text[0].isalnum()


def _operand(piece: Piece, form: re.Pattern[str] = SIMPLE) -> str:
    text = piece.text.strip()
    return text if form.fullmatch(text) else f"({text})"


def _fraction(element: Element, parts: Sequence[Piece]) -> Piece:
    if len(parts) != 2:
        return _row(element, parts)
    above, below = map(_operand, parts)
    if re.fullmatch(r"0[a-z%]*", element.get("linethickness", "").strip()):
        return Piece(f"{above} choose {below}", is_built=True)  # a binomial coefficient
    return Piece(f"{above}/{below}", is_built=True)


def _scripts(base: Piece, below: Piece, above: Piece) -> Piece:
    """Return a base with its subscript and its superscript. Each of these may be empty."""
    text, is_built = base.text.strip(), base.is_built
    lower, upper = below.text.strip(), above.text.strip()
    if lower:
        plain = lower.isdecimal() and text[-1:].isalpha() and not is_built
        text += lower if plain else f"_{_operand(below)}"
    if upper and MARKS.fullmatch(upper):
        text += upper
    elif upper:
        is_simple = bool(lower) or SIMPLE.fullmatch(text) or not text[1:]
        text = f"{text if is_simple else f'({text})'}^{_operand(above, SIGNED)}"
        is_built = bool(base.text.strip())
    return Piece(text, is_built)


def _over_or_under(base: Piece, below: Piece, above: Piece) -> Piece:
    """Return a base with an accent, or with what is under and over it written like the limits of a sum."""
    text, upper = base.text.strip(), above.text.strip()
    if below.text.strip() in LINES:
        below = Piece("")
    if upper in ACCENTS and len(text) == 1 and text.isalpha():
        base, above = Piece(unicodedata.normalize("NFC", text + ACCENTS[upper])), Piece("")
    elif upper in LINES or upper in ACCENTS:
        above = Piece("")
    return _scripts(base, below, above)


def _with(build: Callable[[Piece, Piece, Piece], Piece], *order: int) -> Callable[[Element, Sequence[Piece]], Piece]:
    """Return a function that builds a piece from its parts: a base and its scripts.

    order: the places of the scripts below and above among the parts; 0: there is no such script.
    """

    def built(element: Element, parts: Sequence[Piece]) -> Piece:
        if len(parts) != max(order) + 1:
            return _row(element, parts)
        below, above = (parts[place] if place else Piece("") for place in order)
        return build(parts[0], below, above)

    return built


def _square_root(element: Element, parts: Sequence[Piece]) -> Piece:
    return Piece(f"\u221a{_operand(_row(element, parts))}", is_built=True)


def _root(element: Element, parts: Sequence[Piece]) -> Piece:
    if len(parts) != 2:
        return _row(element, parts)
    return Piece(f"{_operand(parts[0])}^(1/{_operand(parts[1])})", is_built=True)


def _fenced(element: Element, parts: Sequence[Piece]) -> Piece:
    """Return what is in parentheses that are attributes."""
    marks = "".join(element.get("separators", ",").split())
    separators = [f"{mark} " for mark in (marks + marks[-1:] * len(parts))[: max(0, len(parts) - 1)]]
    separators += [" "] * (len(parts) - len(separators))
    inner = "".join(part.text + separator for part, separator in zip(parts, separators, strict=True)).strip()
    return Piece(f"{element.get('open', '(')}{inner}{element.get('close', ')')}")


def _joined(separator: str, first: int = 0) -> Callable[[Element, Sequence[Piece]], Piece]:
    return lambda _, parts: Piece(separator.join(part.text.strip() for part in parts[first:]))


def _semantics(element: Element, parts: Sequence[Piece]) -> Piece:
    """Return the first part that is no annotation."""
    names = list(map(_name, element))
    shown_ones = [part for name, part in zip(names, parts, strict=True) if not name.startswith("annotation")]
    return next(iter(shown_ones or parts), Piece(""))


def _multiscripts(element: Element, parts: Sequence[Piece]) -> Piece:
    """Return a base with scripts at its end and at its begin, such as the mass number of a nuclide."""
    names = list(map(_name, element))
    at = names.index("mprescripts") if "mprescripts" in names else len(names)
    base = parts[0] if parts and at else Piece("")
    behind, before = parts[1:at], parts[at + 1 :]
    for below, above in zip(behind[::2], behind[1::2], strict=False):
        base = _scripts(base, below, above)
    for below, above in zip(before[::2], before[1::2], strict=False):
        lower, upper = below.text.strip(), above.text.strip()
        base = Piece(f"^{upper}_{lower} {base.text}" if lower and upper else f"{upper or lower}{base.text}")
    return base


def _first(_: Element, parts: Sequence[Piece]) -> Piece:
    return parts[0] if parts else Piece("")


TOKENS = ("mi", "mn", "mo", "mtext", "ms", "mspace", "annotation")
BUILDERS: dict[str, Callable[[Element, Sequence[Piece]], Piece]] = {
    "mfrac": _fraction,
    "msup": _with(_scripts, 0, 1),
    "msub": _with(_scripts, 1, 0),
    "msubsup": _with(_scripts, 1, 2),
    "mover": _with(_over_or_under, 0, 1),
    "munder": _with(_over_or_under, 1, 0),
    "munderover": _with(_over_or_under, 1, 2),
    "mmultiscripts": _multiscripts,
    "msqrt": _square_root,
    "menclose": lambda element, parts: (_square_root if "radical" in element.get("notation", "") else _row)(
        element, parts
    ),
    "mroot": _root,
    "mfenced": _fenced,
    "mtable": _joined("; "),
    "mtr": _joined(", "),
    "mlabeledtr": _joined(", ", 1),
    "semantics": _semantics,
    "maction": _first,
    "mphantom": lambda element, parts: Piece(""),
}
