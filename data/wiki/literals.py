"""Characters of a page that MediaWiki shows as text, and that wikiextractor would take for markup.

They are those of entities (`&lt;`), of nowiki, the `<` of what is no tag, and brackets and braces without a partner.
Each becomes a noncharacter of Unicode, which no text has, before wikiextractor sees the page, and comes back when its
text has been cleaned. Sources: MediaWiki's Sanitizer (the tags that it recognizes), its Preprocessor (comments, the
tags of extensions, templates) and the regular expression for links of its Parser. All searches take time in proportion
to the page.
"""

import itertools
import re
from collections import Counter
from collections.abc import Collection

from data.splitting.sentences import SENTENCE_END
from data.wiki import references

# U+FDD0 to U+FDEF are noncharacters, which Unicode keeps for use within a program.
_HIDDEN = {ord(character): chr(0xFDD0 + n) for n, character in enumerate("<>[]{}|'&*#:;=!_-")}
_SHOWN = {ord(hidden): chr(character) for character, hidden in _HIDDEN.items()}
NONCHARACTER = re.compile("[\ufdd0-\ufdef]")
FIRST_BYTES = (b"\xef", b"\xef\xb7")  # of one in UTF-8; the first is searched faster
LESS, GREATER = _HIDDEN[ord("<")], _HIDDEN[ord(">")]
# wikiextractor drops a line that begins with a brace or ends with one, and one in parentheses; not with this.
MARKER = "\u2063"

ENTITY = re.compile(
    r"&(?:#\w+|[lg]t|[LG]T|amp|AMP|[lr](?:brack|sqb|brace|cub)|vert|verbar|apos|ast|num|colon|semi|equals|excl|lowbar);"
)
# Elements whose content is not wikitext, and comments.
_RAW = "nowiki|math|chem|ce|pre|syntaxhighlight|source|score|timeline|graph|templatedata"
RAW = re.compile(rf"<(?:!--|({_RAW})(?:\s[^<>]*)?/?>)", re.I)
RAW_ENDS = {name: re.compile(rf"</{name}\s*>", re.I) for name in _RAW.split("|")}
TAGS = (
    # of HTML, as far as MediaWiki recognizes them; b, i, p, q, s and u are below
    *("bdi", "del", "ins", "font", "big", "small", "sub", "sup", "h[1-6]", "cite", "code", "em", "strike", "strong"),
    *("tt", "var", "div", "center", "blockquote", "ol", "ul", "dl", "table", "caption", "pre", "ruby", "rb", "rp"),
    *("rt", "rtc", "span", "abbr", "dfn", "kbd", "samp", "data", "time", "mark", "br", "wbr", "hr", "li", "dt", "dd"),
    *("meta", "link", "tr", "td", "th", "bdo"),
    # of MediaWiki and of the extensions of Wikipedia; "section" also has a German and a Portuguese name
    *("nowiki", "noinclude", "includeonly", "onlyinclude", "translate", "tvar", "languages", "section", "abschnitt"),
    *("trecho", "ref", "references", "gallery", "indicator", "langconvert", "math", "chem", "ce", "poem", "score"),
    *("syntaxhighlight", "source", "timeline", "hiero", "imagemap", "inputbox", "categorytree", "charinsert", "graph"),
    *("templatestyles", "templatedata", "mapframe", "maplink", "quiz", "phonos", "dynamicpagelist", "rss", "pages"),
    *("pagelist", "pagequality", "seo"),
)
# One letter and words without "=" are text, as in "i<b and c>d", though MediaWiki leaves them out.
NO_TAG = re.compile(rf"<(?!/?(?:(?:{'|'.join(TAGS)})(?:[\s/][^<>]*)?|[bipqsu](?:\s*/?|\s[^<>=]*=[^<>]*))>)", re.I)
# A parameter of a template, on a page that is none: what it is by default, else itself.
PARAMETER = re.compile(r"(?<!\{)\{\{\{([^{}|\n]*)(\|[^{}]*)?\}\}\}(?!\})")
# An external link, whose label has links in it; wikiextractor ends it at the first bracket.
EXTERNAL = re.compile(
    r"\[(?:https?:|ftp:)?//[^\s\[\]]*((?:[ \t][^\[\]\n]*)?\[\[[^\[\]\n]*\]\](?:[^\[\]\n]|\[\[[^\[\]\n]*\]\])*)\]"
)
LINK_IN_LABEL = re.compile(r"\[(?:https?:|ftp:)?//[^\[\]\n]*\[\[")
NO_TITLE = re.compile(r"[^{}|\n]+[{}]")  # a title has no braces: {{1}, {2}} is text
BRACES, BRACKETS = re.compile(r"\{\{|\}\}|\{\||\|\}"), re.compile(r"\[\[|\]\]")
NO_LINK = re.compile(r"\[\[(?![^\[\]{}|<>\n]+(?:\|[^\[\]]*)?\]\])")
TARGET = re.compile(r"[^\[\]{}|<>\n]+(?:\||\]\])")
LOST_END = re.compile(r"\s*(?:(?:\}\}|\|\})[\s}|]*|[{}|]\s*$)")  # of a template or table, at the beginning of a line
LOST_START = re.compile(rf"\s*(?:\{{[{{|]|{_HIDDEN[ord('[')] * 2}([^\[\]|{{}}\n:]{{1,80}}):)")  # or of a file


def hide(text: str) -> str:
    """Return a text in which no character is markup."""
    return text.translate(_HIDDEN)


def show(text: str) -> str:
    """Return a text with the characters that are hidden in it."""
    return text.translate(_SHOWN) if NONCHARACTER.search(text) else text


def of_entities(text: str) -> str:
    """Return a text with the characters of its entities hidden that could be markup. Other entities stay."""
    return ENTITY.sub(_entity, text) if "&" in text else text


def _entity(entity: re.Match[str]) -> str:
    character = references.unescape(entity[0])
    return _HIDDEN.get(ord(character), entity[0]) if len(character) == 1 else entity[0]


def of_raw(text: str) -> str:
    """Return a text with the content of elements hidden that is not wikitext.

    The tags of elements that show their content are left out.
    """
    out: list[str] = []
    start = 0
    endless: set[str] = set()
    for begin in RAW.finditer(text):
        name = (begin[1] or "").lower()
        if begin.start() < start or name in endless:
            continue
        if not name:  # a comment, which is left out later; without an end it is the rest of the page
            end = text.find("-->", begin.end())
            out.append(text[start : end if end >= 0 else None])
            start = end if end >= 0 else len(text)
            continue
        is_empty = begin[0].endswith("/>")
        end_tag = None if is_empty else RAW_ENDS[name].search(text, begin.end())
        if not is_empty and not end_tag:
            endless.add(name)
            continue
        content = hide(text[begin.end() : end_tag.start()]) if end_tag else ""
        if name in ("nowiki", "chem", "ce"):
            out += text[start : begin.start()], content.replace("\n", " ") or MARKER
        elif name in ("syntaxhighlight", "source") and " inline" in begin[0].lower():
            out += text[start : begin.start()], f"<code>{content}</code>"
        else:
            out += text[start : begin.end()], content, end_tag[0] if end_tag else ""
        start = end_tag.end() if end_tag else begin.end()
    return "".join([*out, text[start:]]) if out else text


def of_tags(text: str) -> str:
    """Return a text with each "<" hidden that begins no tag, and each ">" behind another ">"."""
    text = NO_TAG.sub(LESS, text)
    return text.replace(">>", f">{GREATER}") if ">>" in text else text


def of_parameters(text: str) -> str:
    """Return a text with the parameters of templates replaced by what MediaWiki shows."""
    return PARAMETER.sub(_parameter, text) if "{{{" in text else text


def _parameter(parameter: re.Match[str]) -> str:
    return hide(parameter[0]) if parameter[2] is None else parameter[2][1:]


def of_template(inner: str) -> str:
    """Return what is between pairs of braces, with them hidden, if it names no template; "" if it does."""
    return f"{hide('{{')}{inner}{hide('}}')}" if NO_TITLE.match(inner) else ""


def of_strays(text: str, namespaces: Collection[str], counts: Counter[str]) -> str:
    """Return a text with its brackets and braces hidden that have no partner.

    All templates and tables have been taken out. What remains of one that is not closed goes, and is counted.
    """
    if LINK_IN_LABEL.search(text):
        text = EXTERNAL.sub(r"\1", text)
    if (("{" in text or "}" in text) and BRACES.search(text)) or not _has_links_only(text):
        text = "\n".join(_without_strays(text, namespaces, counts))
    return text


def _has_links_only(text: str) -> bool:
    return text.count("[[") == text.count("]]") and not NO_LINK.search(text)


def _without_strays(text: str, namespaces: Collection[str], counts: Counter[str]) -> list[str]:
    lines = []
    for line in _with_links(text).split("\n"):
        rest = line[end.end() :] if (end := LOST_END.match(line)) else line
        begin = LOST_START.match(rest)
        is_markup = begin and (
            begin[1].strip().lower().replace("_", " ") in namespaces if begin[1] else not SENTENCE_END.search(rest)
        )
        if is_markup or (end and not rest):
            counts["unclosed markup"] += len(line)
        else:
            lines.append(BRACES.sub(lambda braces: hide(braces[0]), rest))
    return lines


def _with_links(text: str) -> str:
    """Return a text with all square brackets hidden that are not part of a link."""
    out: list[str] = []
    start = link_end = 0
    marks = list(BRACKETS.finditer(text))
    for mark, following in itertools.zip_longest(marks, marks[1:]):
        if mark.end() == link_end:
            continue
        if mark[0] == "[[" and following and following[0] == "]]" and TARGET.match(text, mark.end()):
            link_end = following.end()
            continue
        out += text[start : mark.start()], hide(mark[0])
        start = mark.end()
    return "".join([*out, text[start:]])
