"""Prepare a page for wikiextractor: what that would lose of the text is replaced by text, and what is no text goes.

References, templates, tables, files and headings are taken out here, and their characters counted. wikiextractor
removes the rest of the markup. All searches take time in proportion to the page, for any page.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from html import escape
from typing import Literal, NamedTuple

from data.splitting.sentences import CLOSING, TERMINAL
from data.wiki import back_matter, references

Lists = Literal["keep", "prose", "drop"]
LINK = re.compile(r"\[\[(:?)([^\[\]|{}\n:]{1,80}):([^\[\]|{}\n]{1,255})(?:\|([^\[\]{}\n]*))?\]\]")
PREFIX = re.compile(r"\[\[[ ]*([^\[\]|{}\n:]{1,80}):")
BRACKETS = re.compile(r"\[\[|\]\]")
# Prefix of a link to the same article elsewhere. It has no capitals, as "CSI: Miami" has.
LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]{2,8}){0,2}|simple")
NAMESPACES = {  # of every wiki, beside those that its dump names
    *("file", "image", "media", "category", "template", "user", "talk", "help", "portal", "wikipedia", "project"),
    *("special", "mediawiki", "module"),
}
# A file under another name of its namespace, which a dump does not list, such as Hinh in Vietnamese.
FILE = re.compile(
    r"[^\[\]|\n]{1,255}\.(?:jpe?g|png|svg|gif|webp|tiff?|xcf|ogg|oga|ogv|webm|mp3|mp4|wav|pdf|djvu)\s*[|\]]", re.I
)
MAX_CAPTION = 20_000  # characters of a link to a file
CHARACTER = re.compile(r"&#x?[0-9A-Fa-f]+;")
COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
# Elements without text of the article. Formulas and code within a line become words (data/wikipedia.py).
_ELEMENTS = (
    "ref|references|gallery|timeline|syntaxhighlight|source|pre|imagemap|score|graph|mapframe|inputbox|categorytree"
    "|noinclude|includeonly|templatedata|hiero"
)
ELEMENT = re.compile(rf"<({_ELEMENTS})(?:\s[^<>]*)?>", re.I)
ENDS = {name: re.compile(rf"</{name}\s*>|<{name}\b", re.I) for name in _ELEMENTS.split("|")}
POEM = re.compile(r"<poem\b[^<>]*>([^<]*)</poem\s*>", re.I)
BLOCK = re.compile(r"</?(?:div|small|blockquote|poem|center|ul|ol|dl|li|dd|dt)\b[^<>]*>", re.I)
BRACES, CUTS = re.compile(r"\{\{|\}\}"), re.compile(r"^[ \t:]*\{\||^[ \t]*\|\}", re.M)
ROWS = re.compile(r"[^\n]*(?:\n(?:[ \t]*[|!][^\n]*)?(?=\n|\Z))*")  # of a table without an end
SEPARATOR = re.compile(r"\|(?![^\[\]]*\]\])")  # between arguments, not within a link
NAMED = re.compile(r"\s*[\w -]{1,30}=")
MAX_SHOWN = 10_000  # characters of a template that shows its arguments
POWER = re.compile(r"(?<=\d)<sup>([-+\u2212]*\d+)</sup>")  # 10<sup>6</sup> would become 106
QUOTES, WITH_BOLD = re.compile("''+"), re.compile("^.*'''.*$", re.M)
ITALIC = re.compile(r"(?<!')''(?!')([^\n]*?[^\n'])''(?!')(?=([^\W_]|<su[bp]>)?)")
MARKERS = re.compile(r"[*#;:]+")
# wikiextractor drops a line that begins with a brace or ends with one, and one in parentheses; not with this.
MARKER = "\u2063"

# An item of a list is prose if it ends as a sentence does and has some length.
STATEMENT = re.compile(rf"[.!?\u2026{TERMINAL}](?:[{CLOSING}]|\]\])*\Z")
ITEM_WORDS, ITEM_CHARACTERS = 5, 12  # the latter for scripts without spaces
SHOWN_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]]*)\]\]")
# In an item that names a work or a page elsewhere: an address, a number of a book, or "Surname, Given" at its begin.
_CAPITAL = "A-Z\u00c0-\u00d6\u00d8-\u00de\u0391-\u03ab\u0400-\u042f"
WORKS = re.compile(
    rf"\[(?:https?:)?//|\bhttps?://|\b(?:ISBN|ISSN|OCLC|doi|DOI)\b|\A[{_CAPITAL}][\w'\u2019-]{{1,30}}, [{_CAPITAL}]"
)
MOST_WORKS, LEAST_PROSE = 0.2, 0.5  # shares of such items, and of prose, at which a list is one of works or names
LEAD, COLONS = 50, (":", "\uff1a")  # characters of a line above a list that goes with it


class Page(NamedTuple):
    """A page for wikiextractor."""

    content: bytes
    counts: Counter[str]  # characters of its text, "in", and of what was taken out, by reason


def prepared(content: bytes, namespaces: Collection[str], lists: Lists) -> Page:
    """Return a page's XML, from <page> to </page>. namespaces: lower-case names of those of the wiki."""
    content = content.replace(b"><", b">\n<")  # wikiextractor reads a tag on each line
    if b"<ns>" not in content.partition(b"<revision>")[0]:
        content = content.replace(b"</title>", b"</title>\n<ns>0</ns>", 1)
    element = content.find(b"<text")
    begin = content.find(b">", element) + 1
    end = content.find(b"</text>", begin)
    if element < 0 or end < 0:  # a deleted text is <text />
        return Page(content, Counter())
    text = content[begin:end].decode("utf-8", "replace")
    if "&#" in text:
        text = CHARACTER.sub(lambda reference: references.unescape(reference[0]), text)
    for reference, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        text = text.replace(reference, character)
    counts = Counter({"in": len(text)})
    shown = "\n".join(_paragraphs(_text(text, namespaces, counts), lists, counts))
    return Page(content[:begin] + escape(shown, quote=False).encode("utf-8", "replace") + content[end:], counts)


def names_of(head: bytes) -> set[str]:
    """Return the lower-case names of the namespaces of a wiki, from the beginning of its dump; not of its articles."""
    namespaces = re.findall(rb'<namespace key="(-?\d+)"[^>]*>([^<]+)</namespace>', head)
    return NAMESPACES | {name.decode("utf-8", "replace").lower() for key, name in namespaces if key != b"0"}


def _text(text: str, namespaces: Collection[str], counts: Counter[str]) -> str:
    """Return the text without what is no text of the article. Add the characters taken out to `counts`."""

    def less(name: str, new: str) -> str:
        if len(new) < len(text):
            counts[name] += len(text) - len(new)
        return new

    if "<" in text:
        text = less("comments", COMMENT.sub("", text))
        text = less("references and media", "".join(_outside_elements(text)))
    if "{{" in text:
        text = less("templates", _without_templates(text, counts))
    if "{|" in text:
        text = less("tables", "".join(_outside_tables(text)))
    text = less("files and categories", "".join(_outside_files(text, namespaces)))
    text = LINK.sub(_linked, text)
    if "<" in text:
        text = POWER.sub(r"^\1", text)
        text = POEM.sub(lambda poem: poem[1].replace("\n", "\n\n"), text)
        text = BLOCK.sub(_block, text)
    if "''" in text:
        text = WITH_BOLD.sub(_apostrophe, text)
        text = ITALIC.sub(_italic, text)
    return text


def _italic(italic: re.Match[str]) -> str:
    """Return italics; within a word as they are, because wikiextractor would put quotation marks there."""
    within = italic[2] or italic.string[italic.start() - 1 : italic.start()].isalnum()
    return italic[1] if within else italic[0]


def _apostrophe(line: re.Match[str]) -> str:
    """Return a line in which the apostrophe of l'''Altes'' is one, and not part of a mark of bold text.

    As in MediaWiki: if marks of bold and of italic text are both odd in number, of the first three apostrophes behind a
    word of one letter, else behind another word, the first one is an apostrophe.
    """
    text = line[0]
    marks = list(QUOTES.finditer(text))
    bold, italic = (sum(len(mark[0]) in sizes for mark in marks) for sizes in ((3, 5), (2, 5)))
    behind = [mark.start() for mark in marks if len(mark[0]) == 3 and text[: mark.start()][-1:].strip()]
    if not (bold % 2 and italic % 2 and behind):
        return text
    at = next((at for at in behind if at == 1 or text[at - 2].isspace()), behind[0]) + 1
    return f"{text[:at]}{MARKER}{text[at:]}"


def _block(tag: re.Match[str]) -> str:
    """Return what divides text as an HTML tag does whose content wikiextractor would drop, or join to other text."""
    name = tag[0].strip("</>").split()[0].lower()
    if name == "small":
        return ""
    opens = tag[0][1] != "/"
    return {"li": "\n* ", "dt": "\n; ", "dd": "\n: "}.get(name, "\n\n") if opens else "\n\n"


def _outside_elements(text: str) -> Iterator[str]:
    """Yield the text around elements. One without an end ends nothing."""
    start = 0
    endless: set[str] = set()
    for begin in ELEMENT.finditer(text):
        name = begin[1].lower()
        if begin.start() < start or name in endless:
            continue
        end = begin if begin[0].endswith("/>") else ENDS[name].search(text, begin.end())
        if not end:
            endless.add(name)
        elif end is begin or end[0].startswith("</"):
            yield text[start : begin.start()] + _gap(text, begin.start(), end.end())
            start = end.end()
    yield text[start:]


def _gap(text: str, begin: int, end: int) -> str:
    """Return a space if what is left out between two places stands between two words."""
    return " " if text[begin - 1 : begin].isalnum() and text[end : end + 1].isalnum() else ""


def _without_templates(text: str, counts: Counter[str]) -> str:
    """Return the text with what templates show, where that is known, in their place. Braces without a pair stay."""
    out: list[str] = []
    opened: list[int] = []  # places in `out` of the braces that are open
    start = 0
    for braces in BRACES.finditer(text):
        out.append(text[start : braces.start()])
        start = braces.end()
        if braces[0] == "{{":
            opened.append(len(out))
            out.append("{{")
        elif opened:
            begin = opened.pop()
            inner = "".join(out[begin + 1 :])
            shown = _shown(inner)
            if not shown:
                shown = (
                    " " if "".join(out[begin - 1 : begin])[-1:].isalnum() and text[start : start + 1].isalnum() else ""
                )
            if not shown.strip() and not opened:
                counts[f"template {inner.partition('|')[0].strip().lower()[:40]}"] += len(inner) + 4
            out[begin:] = [shown]
        else:
            out.append("}}")
    out.append(text[start:])
    return "".join(out)


def _outside_tables(text: str) -> Iterator[str]:
    """Yield the text around tables. Of a table without an end, the rows are left out."""
    start = depth = 0
    outer = -1
    for mark in CUTS.finditer(text):
        if mark[0].endswith("{|"):
            outer = mark.start() if not depth else outer
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield text[start:outer]
                start = mark.end()
    if depth:
        yield text[start:outer]
        rows = ROWS.match(text, outer)
        start = rows.end() if rows else outer
    yield text[start:]


def _outside_files(text: str, namespaces: Collection[str]) -> Iterator[str]:
    """Yield the text around links to files, with their captions, to categories and to other languages."""
    start = 0
    for link in PREFIX.finditer(text):
        name = link[1].strip()
        is_namespace = name.lower().replace("_", " ") in namespaces or LANGUAGE.fullmatch(name)
        if link.start() < start or not (is_namespace or FILE.match(text, link.end())):
            continue
        depth = 0
        for mark in BRACKETS.finditer(text, link.start(), link.start() + MAX_CAPTION):
            depth += 1 if mark[0] == "[[" else -1
            if not depth:
                yield text[start : link.start()]
                start = mark.end()
                break
    yield text[start:]


def _linked(link: re.Match[str]) -> str:
    """Return what a link with a colon in its title shows."""
    colon, prefix, rest, label = link.groups()
    if label is not None:
        return label.strip()
    return rest.strip() if colon else f"{prefix}:{rest}"


def _paragraphs(text: str, lists: Lists, counts: Counter[str]) -> Iterator[str]:
    """Yield the paragraphs, without headings."""
    section: list[str] = []
    sections = back_matter.Sections()
    for line in text.split("\n"):
        if line[:1] == "=" and len(line) > 2 and line.rstrip()[-1] == "=":
            counts["headings"] += len(line)
            yield from _chosen(list(_blocks(section)), lists, counts, sections.are_back_matter)
            sections.begin(line)
            section = []
        else:
            section.append(line)
    yield from _chosen(list(_blocks(section)), lists, counts, sections.are_back_matter)


class _Block(NamedTuple):
    """A paragraph, or an item of a list."""

    text: str
    is_item: bool = False


def _blocks(lines: list[str]) -> Iterator[_Block]:
    """Yield the blocks of a section. Consecutive lines of text are one paragraph, as MediaWiki has it."""
    paragraph: list[str] = []
    for line in lines:
        first = line[:1]
        if first.strip() and first not in "*#;:|!{":
            paragraph.append(line.strip())
            continue
        if paragraph:
            yield _Block(" ".join(paragraph))
            paragraph = []
        if markers := MARKERS.match(line):
            yield _Block(line[markers.end() :].strip(), is_item=not markers[0].endswith(":"))
        elif line.strip():
            yield _Block(line.strip())
    if paragraph:
        yield _Block(" ".join(paragraph))


def _chosen(blocks: list[_Block], lists: Lists, counts: Counter[str], is_back_matter: bool) -> Iterator[str]:
    """Yield the texts of paragraphs and of the items that stay. A short line above items that do not stay goes, too."""
    if is_back_matter and lists != "keep":  # it has no items that are prose, and entries that are marked as paragraphs
        blocks = [_Block(text, is_item or back_matter.is_citation(text)) for text, is_item in blocks]
    prose = lists == "prose" and not is_back_matter and _has_prose([text for text, is_item in blocks if is_item])
    lead, without_items = "", False
    for text, is_item in [*blocks, _Block("")]:
        if is_item and not (lists == "keep" or (prose and is_prose(text))):
            counts["lists"] += len(text)
            without_items = True
            continue
        if lead and without_items and not is_item:
            counts["lists"] += len(lead)
        elif lead:
            yield lead
        lead, without_items = "", False
        if text and (text[0] in "({" or text[-1] == "}"):
            text = f"{MARKER}{text}{MARKER}"
        if not is_item and text.endswith(COLONS) and len(text) <= LEAD:
            lead = text
        elif text:
            yield text


def _has_prose(items: list[str]) -> bool:
    """Return whether the items of a section are no works, links or names, of which a few end as sentences do."""
    if sum(map(is_prose, items)) < LEAST_PROSE * len(items):
        return False
    works = sum(not item or bool(WORKS.search(item)) or back_matter.is_citation(item) for item in items)
    return works <= MOST_WORKS * len(items)


def is_prose(item: str) -> bool:
    """Return whether an item of a list ends as a sentence does and is longer than a name."""
    plain = re.sub(r"</?[A-Za-z][^<>]*>|''+", "", item).rstrip()
    if not STATEMENT.search(plain) or WORKS.search(plain) or back_matter.is_citation(item):
        return False
    shown = SHOWN_LINK.sub(r"\1", plain)
    words = len(shown.split())
    return words >= ITEM_WORDS or (words <= 2 and len(shown) >= ITEM_CHARACTERS and not shown.isascii())


def _shown(inner: str) -> str:
    """Return the text of a template: "" for one that is not known to show its arguments."""
    name, _, rest = inner.partition("|")
    name = name.strip().replace("_", " ").lower()
    if name in WITHOUT_ARGUMENTS:
        return WITHOUT_ARGUMENTS[name]
    if name.startswith("formatnum:"):
        return name.partition(":")[2].strip()
    show = SHOWN.get(name) or next((show for prefix, show in PREFIXES.items() if name.startswith(prefix)), None)
    if not show or len(inner) > MAX_SHOWN:
        return ""
    arguments = SEPARATOR.split(rest)
    positional = [argument.strip() for argument in arguments if not NAMED.match(argument)]
    named = dict(_pair(argument) for argument in arguments if NAMED.match(argument))
    if not positional or not positional[0]:
        positional = [named[key] for key in ("text", "1", "quote", "2") if key in named]
    text = show(positional, named)
    return text + (f"\xd710^{named['e']}" if text and named.get("e") else "")


def _pair(argument: str) -> tuple[str, str]:
    name, _, value = argument.partition("=")
    return name.strip(), value.strip()


Show = Callable[[list[str], dict[str, str]], str]


def _argument(number: int) -> Show:
    return lambda arguments, _: arguments[number] if number < len(arguments) else ""


def _around(before: str, after: str = "") -> Show:
    return lambda arguments, _: before + arguments[0] + after if arguments else ""


def _joined(separator: str, most: int = 99) -> Show:
    return lambda arguments, _: separator.join(arguments[:most])


UNITS = {"C": "\xb0C", "F": "\xb0F", "m2": "m\xb2", "km2": "km\xb2", "m3": "m\xb3", "km3": "km\xb3", "sqmi": "sq mi"}
NUMBER, RANGES = re.compile(r"[-+\d.,/ ]+"), ("to", "and", "-", "\u2013", "by", "x", "or")


def _measure(arguments: list[str], _: dict[str, str]) -> str:
    """Return the first quantity of a conversion: "12 km" of 12|km|mi, "3 to 5 m" of 3|to|5|m|ft."""
    if len(arguments) < 2 or not NUMBER.fullmatch(arguments[0]):
        return ""
    *numbers, unit = arguments[: 4 if len(arguments) > 3 and arguments[1] in RANGES else 2]
    return " ".join([*numbers, UNITS.get(unit, unit)])


def _as_of(arguments: list[str], named: dict[str, str]) -> str:
    if named.get("alt"):
        return named["alt"]
    months = dict(enumerate(MONTHS, 1))
    date = [months.get(int(a), a) if n == 1 and a.isdecimal() else a for n, a in enumerate(arguments[:3])]
    return " ".join(["as of" if named.get("lc") else "As of", *reversed(date)])


def _fraction(arguments: list[str], _: dict[str, str]) -> str:
    whole, *parts = arguments if len(arguments) != 1 else ["1", *arguments]
    return f"{whole} {'/'.join(parts)}" if len(parts) == 2 else "/".join([whole, *parts])


def _japanese(arguments: list[str], _: dict[str, str]) -> str:
    english, *others = arguments[:3] or [""]
    others = list(filter(None, others))
    return f"{english} ({', '.join(others)})".strip() if others else english


MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_FIRST, _SECOND = _argument(0), _argument(1)
# What templates show, by name. The name is that of the English Wikipedia or of several wikis.
SHOWN: dict[str, Show] = {
    **dict.fromkeys(("nowrap", "nobr", "quote", "cquote", "blockquote", "quotation", "poem quote", "val"), _FIRST),
    **dict.fromkeys(("small", "smaller", "big", "large", "sc", "smallcaps", "center", "nq", "abbr"), _FIRST),
    **dict.fromkeys(("vanchor", "visible anchor", "flag", "flagcountry", "flagu", "track gauge", "railgauge"), _FIRST),
    **dict.fromkeys(("ill", "interlanguage link", "sub", "circled", "not a typo", "proper name"), _FIRST),
    **dict.fromkeys(("lang", "langx", "tooltip", "rtl-lang", "native name", "resize"), _SECOND),
    **dict.fromkeys(("transl", "transliteration"), lambda arguments, _: arguments[-1] if arguments else ""),
    **dict.fromkeys(("convert", "cvt"), _measure),
    **dict.fromkeys(("chem", "chem2", "linktext", "gaps"), _joined("")),
    **dict.fromkeys(("unit\xe9", "unidad", "unit\xe0"), _joined(" ", 2)),
    **dict.fromkeys(("frac", "sfrac", "fraction"), _fraction),
    **dict.fromkeys(("uss", "hms", "ss", "mv", "rms"), _FIRST),
    **dict.fromkeys(("circa", "c."), _around("c. ")),
    "as of": _as_of,
    "nihongo": _japanese,
    "angbr": _around("\u27e8", "\u27e9"),
    "e": _around("\xd710^"),
    "us$": _around("US$"),
}
PREFIXES: dict[str, Show] = {"lang-": _FIRST, "script/": _FIRST}
WITHOUT_ARGUMENTS = {
    **dict.fromkeys(("nbsp", "spaces", "space", "nbs", "thinsp", "thin space", "zwsp", "pad"), " "),
    **dict.fromkeys(("ndash", "endash", "en dash", "nsndns"), "\u2013"),
    **dict.fromkeys(("snd", "snds", "spaced ndash", "spnd", "spaced en dash", "dash"), " \u2013 "),
    **dict.fromkeys(("mdash", "mdashb", "em dash", "emdash"), "\u2014"),
    **{
        "'s": "'s",
        "'": f"{MARKER}'{MARKER}",
        "' \"": "' \"",
        "\" '": "\" '",
        '-"': '"',
        "!": "|",
        "=": "=",
        "\\": " / ",
    },
    **dict.fromkeys(("\xb7", "dot", "middot", "\u2022", "bull", "bullet"), " \xb7 "),
}
