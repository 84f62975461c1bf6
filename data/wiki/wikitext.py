"""Prepare a page for wikiextractor: what that would lose of the text is replaced by text, and what is no text goes.

References, templates, tables, files and headings are taken out here, and their characters counted. wikiextractor
removes the rest of the markup. All searches take time in proportion to the page, for any page.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from html import escape
from typing import Literal, NamedTuple

from data.splitting.sentences import CLOSING, TERMINAL
from data.wiki import back_matter, languages, literals, references, templates
from data.wiki.literals import MARKER

Lists = Literal["keep", "prose", "drop"]
LINK = re.compile(r"\[\[(:?)([^\[\]|{}\n:]{1,80}):([^\[\]|{}\n]{1,255})(?:\|([^\[\]{}\n]*))?\]\]")
PREFIX = re.compile(r"\[\[[ ]*([^\[\]|{}\n:]{1,80}):")
BRACKETS = re.compile(r"\[\[|\]\]")
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
    "|noinclude|includeonly|templatedata|hiero|maplink|indicator|dynamicpagelist|rss|quiz"
)
ELEMENT = re.compile(rf"<({_ELEMENTS})(?:\s[^<>]*)?>", re.I)
ENDS = {name: re.compile(rf"</{name}\s*>|<{name}\b", re.I) for name in _ELEMENTS.split("|")}
POEM = re.compile(r"<poem\b[^<>]*>([^<]*)</poem\s*>", re.I)
BLOCK = re.compile(r"</?(?:div|small|blockquote|poem|center|ul|ol|dl|li|dd|dt)\b[^<>]*>", re.I)
BRACES = re.compile(r"\{\{|\}\}")
# Where tables begin and end; not where a sentence begins, such as "{|0>, |1>} is a basis."
CUTS = re.compile(rf"^[ \t:]*\{{\|(?![^\n]*[.!?\u2026{TERMINAL}]$)|^[ \t]*\|\}}", re.M)
ROWS = re.compile(r"[^\n]*(?:\n(?:[ \t]*[|!][^\n]*)?(?=\n|\Z))*")  # of a table without an end
AFTER = re.compile(r"[^\n|]{0,60}")  # characters behind a template, within its line and within a parameter
# 10<sup>6</sup> would become 106, and 2<sup>n</sup> 2n; not the end of a word, as in 1<sup>er</sup>.
POWER = re.compile(r"<sup>(?<=\d<sup>)([-+\u2212]*)(?:(\d+)|(?:'')?([kmnNx])(?:'')?)</sup>")
QUOTES = re.compile("''+")
ITALIC = re.compile(r"''(?<!''')(?!')([^\n]*?[^\n'])''(?!')(?=([^\W_]|<su[bp]>)?)")
MARKERS = re.compile(r"[*#;:]+")

# An item of a list is prose if it ends as a sentence does and has some length.
STATEMENT = re.compile(rf"[.!?\u2026{TERMINAL}](?:[{CLOSING}]|\]\])*\Z")
TAGS_AND_QUOTES = re.compile(r"</?[A-Za-z][^<>]*>|''+")
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


def prepared(content: bytes, namespaces: Collection[str], lists: Lists, table: templates.Table | None = None) -> Page:
    """Return a page's XML, from <page> to </page>, and the counts of its characters.

    namespaces: lower-case names of the wiki's namespaces. table: what its templates show; None: the table for English.
    """
    content = content.replace(b"><", b">\n<")  # wikiextractor reads a tag on each line
    if b"<ns>" not in content.partition(b"<revision>")[0]:
        content = content.replace(b"</title>", b"</title>\n<ns>0</ns>", 1)
    element = content.find(b"<text")
    begin = content.find(b">", element) + 1
    is_deleted = element < 0 or content[begin - 2 : begin] == b"/>"  # <text />
    end = -1 if is_deleted else content.find(b"</text>", begin)
    content = _main_slot(content, max(0, end))
    if end < 0:
        return Page(content, Counter())
    text = content[begin:end].decode("utf-8", "replace")
    if "&#" in text:
        text = CHARACTER.sub(lambda reference: references.unescape(reference[0]), text)
    for reference, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        text = text.replace(reference, character)
    counts = Counter({"in": len(text)})
    if all(first in content for first in literals.FIRST_BYTES):
        text = literals.NONCHARACTER.sub("", text)
    table = table or templates.load(("en",))
    shown = "\n".join(_paragraphs(_text(text, namespaces, table, counts), lists, counts))
    return Page(content[:begin] + escape(shown, quote=False).encode("utf-8", "replace") + content[end:], counts)


def _main_slot(content: bytes, text_end: int) -> bytes:
    """Return a page's XML without its other slots: each is a <content> behind <text>, with another <text> inside."""
    begin, end = content.find(b"<content>", text_end), content.rfind(b"</content>", text_end)
    return content[:begin] + content[end + len(b"</content>") :] if 0 <= begin < end else content


def names_of(head: bytes) -> set[str]:
    """Return the lower-case names of a wiki's namespaces, except that for articles. head: the beginning of its dump."""
    namespaces = re.findall(rb'<namespace key="(-?\d+)"[^>]*>([^<]+)</namespace>', head)
    return NAMESPACES | {name.decode("utf-8", "replace").lower() for key, name in namespaces if key != b"0"}


def _text(text: str, namespaces: Collection[str], table: templates.Table, counts: Counter[str]) -> str:
    """Return only the text of the article. Add the numbers of characters taken out to `counts`."""

    def less(name: str, new: str) -> str:
        if len(new) < len(text):
            counts[name] += len(text) - len(new)
        return new

    text = literals.of_entities(text)
    if "<" in text:
        text = literals.of_raw(text)
        text = less("comments", COMMENT.sub("", text))
        text = less("references and media", "".join(_outside_elements(text)))
        text = literals.of_tags(text)
    text = literals.of_parameters(text)
    if "{{" in text:
        text = less("templates", _without_templates(text, table, counts))
    if "{|" in text:
        text = less("tables", "".join(_outside_tables(text)))
    text = less("files and categories", "".join(_outside_files(text, namespaces)))
    text = LINK.sub(_linked, text)
    if "<" in text:
        text = POWER.sub(r"^\1\2\3", text)
        text = POEM.sub(lambda poem: poem[1].replace("\n", "\n\n"), text)
        text = BLOCK.sub(_block, text)
    if "''" in text:
        if "'''" in text:
            text = "\n".join(_with_apostrophe(line) if "'''" in line else line for line in text.split("\n"))
        text = ITALIC.sub(_italic, text)
    return literals.of_strays(text, namespaces, counts)


def _italic(italic: re.Match[str]) -> str:
    """Return italics. Within a word, remove their marks, because wikiextractor would put quotation marks there."""
    within = italic[2] or italic.string[italic.start() - 1 : italic.start()].isalnum()
    return italic[1] if within else italic[0]


def _with_apostrophe(text: str) -> str:
    """Return a line in which the apostrophe of l'''Altes'' is one, and not part of a mark of bold text.

    As in MediaWiki: if the marks of bold and of italic text are both odd in number, one mark of bold text begins with
    an apostrophe. It is the first one behind a word of one letter, else the first one behind another word.
    """
    marks = list(QUOTES.finditer(text))
    bold, italic = (sum(len(mark[0]) in sizes for mark in marks) for sizes in ((3, 5), (2, 5)))
    behind = [mark.start() for mark in marks if len(mark[0]) == 3 and text[: mark.start()][-1:].strip()]
    if not (bold % 2 and italic % 2 and behind):
        return text
    at = next((at for at in behind if at == 1 or text[at - 2].isspace()), behind[0]) + 1
    return f"{text[:at]}{MARKER}{text[at:]}"


def _block(tag: re.Match[str]) -> str:
    """Return what replaces an HTML tag, such as line ends. wikiextractor would drop or join its content."""
    name = tag[0].strip("</>").split()[0].lower()
    if name == "small":
        return ""
    opens = tag[0][1] != "/"
    return {"li": "\n* ", "dt": "\n; ", "dd": "\n: "}.get(name, "\n\n") if opens else "\n\n"


def _outside_elements(text: str) -> Iterator[str]:
    """Yield the text around elements. An element without an end removes nothing."""
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


def _without_templates(text: str, table: templates.Table, counts: Counter[str]) -> str:
    """Return the text with what templates show, or with a hole for an unknown template in a sentence. Count what goes.

    Braces without a pair stay.
    """
    out: list[str] = []  # parts of the text, none empty
    opened: list[int] = []  # places in `out` of the braces that are open
    start = 0
    for braces in BRACES.finditer(text):
        if braces.start() > start:
            out.append(text[start : braces.start()])
        start = braces.end()
        if braces[0] == "{{":
            opened.append(len(out))
            out.append("{{")
        elif opened:
            begin = opened.pop()
            inner = "".join(out[begin + 1 :])
            del out[begin:]
            shown = literals.of_template(inner) or table.shown(inner)
            shown = _in_place(shown, out, text, start) if shown else _unshown(inner, shown, out, text, start)
            if not opened and (not shown.strip() or shown[0] == templates.HOLE):
                counts[f"template {inner.partition('|')[0].strip().lower()[:40]}"] += len(inner) + 4
            if shown:
                out.append(shown)
        else:
            out.append("}}")
    out.append(text[start:])
    return "".join(out)


def _in_place(shown: str, out: list[str], text: str, end: int) -> str:
    """Return what a template shows, so that it stays apart from what is around it: `out`, and the text from `end` on.

    An apostrophe is no part of a mark of italics, and "19" before "1/2" is not "191/2".
    """
    if shown == templates.NOTE:
        return " " if out and out[-1][-1].isalnum() and text[end : end + 1].isalnum() else ""
    if shown[0].isdigit() and out and out[-1][-1].isdigit():
        return f" {shown}"
    return f"{MARKER}{shown}{MARKER}" if shown == "'" else shown


def _unshown(inner: str, shown: str | None, out: list[str], text: str, end: int) -> str:
    """Return what replaces a template that shows nothing, or whose text is not known."""
    if shown is not None:
        return shown
    if "\n" not in inner:
        after = AFTER.match(text, end)
        before, is_inner = _line_before(out)
        if (is_inner and not before) or templates.is_hole(before, after[0] if after else ""):
            return templates.hole(inner.partition("|")[0])
    return _in_place(templates.NOTE, out, text, end)


def _line_before(out: list[str]) -> tuple[str, bool]:
    """Return the last characters of what is before a template in its line, and whether it is in another template.

    If it is in another template, return only what is in the same parameter.
    """
    line: list[str] = []
    size = 0
    for part in reversed(out):
        if part == "{{":
            _, bar, value = "".join(reversed(line)).rpartition("|")
            return templates.NAMED.sub("", value, count=1).lstrip() if bar else value.partition(":")[2], True
        part = part[-templates.BEFORE :]
        newline = part.rfind("\n") + 1
        line.append(part[newline:])
        size += len(part)
        if newline or size > templates.BEFORE:
            break
    return "".join(reversed(line)), False


def _outside_tables(text: str) -> Iterator[str]:
    """Yield the text around tables. If a table has no end, leave its rows out."""
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
        is_namespace = name.lower().replace("_", " ") in namespaces or name.lower() in languages.PREFIXES
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
    """Yield the texts of paragraphs and of the items that stay. Drop a short line above items that do not stay."""
    if is_back_matter and lists != "keep":  # it has no items that are prose, and entries that are marked as paragraphs
        blocks = [_Block(text, is_item or back_matter.is_citation(text)) for text, is_item in blocks]
    items = [text for text, is_item in blocks if is_item]
    prose = _prose_of(items) if lists == "prose" and not is_back_matter else set()
    lead, without_items = "", False
    for text, is_item in [*blocks, _Block("")]:
        if is_item and lists != "keep" and text not in prose:
            counts["lists"] += len(text)
            without_items = True
            continue
        if lead and without_items and not is_item:
            counts["lists"] += len(lead)
        elif lead:
            yield lead
        lead, without_items = "", False
        if text[:1] == "|":  # a row of a table or an argument of a template that is not closed
            counts["unclosed markup"] += len(text)
            continue
        if text and (text[0] in "({" or text[-1] == "}"):
            text = f"{MARKER}{text}{MARKER}"
        if not is_item and text.endswith(COLONS) and len(text) <= LEAD:
            lead = text
        elif text:
            yield text


def _prose_of(items: list[str]) -> set[str]:
    """Return the items of a section that read as sentences; none if they are works, links or names."""
    prose = list(filter(is_prose, items))
    if len(prose) < LEAST_PROSE * len(items):
        return set()
    works = sum(not item or bool(WORKS.search(item)) or back_matter.is_citation(item) for item in items)
    return set(prose) if works <= MOST_WORKS * len(items) else set()


def is_prose(item: str) -> bool:
    """Return whether an item of a list ends as a sentence does and is longer than a name."""
    plain = TAGS_AND_QUOTES.sub("", item).rstrip() if "<" in item or "''" in item else item
    if not STATEMENT.search(plain) or WORKS.search(plain) or back_matter.is_citation(item):
        return False
    shown = SHOWN_LINK.sub(r"\1", plain)
    words = len(shown.split())
    return words >= ITEM_WORDS or (words <= 2 and len(shown) >= ITEM_CHARACTERS and not shown.isascii())
