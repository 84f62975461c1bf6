"""The text of one citation of PubMed: its abstract, from a record of XML.

Elements as in https://dtd.nlm.nih.gov/ncbi/pubmed/doc/out/190101/index.html.
"""

import re
from typing import NamedTuple
from xml.etree import ElementTree

from data.pipeline import sources
from data.wiki import references
from extensions.pubmed import mathml

# Formulas are in MathML, whose prefix a record need not declare.
WRAPPED = b'<record xmlns:mml="http://www.w3.org/1998/Math/MathML" xmlns:xlink="http://www.w3.org/1999/xlink">'
NO_LABELS = ("", "UNLABELLED", "UNASSIGNED")
POWER = re.compile(r"[-+\u2212\u2013]?(?:\d+(?:[.,/\xb7]\d+)*|[kmnNx])")  # 1<sup>st</sup> is none
DISPLAYED = ("DispFormula", "disp-formula")  # formulas on a separate line
FORMULAS = (*DISPLAYED, "inline-formula", "alternatives")
SCRIPTS = {"sup": "^", "sub": "_"}
TRUNCATED = re.compile(r"\s*[(\[]ABSTRACT TRUNCATED(?: AT \d+ WORDS)?[)\]]\.?$")


class Article(NamedTuple):
    """What a citation says."""

    title: str
    languages: tuple[str, ...]  # of the article; an abstract is in English whatever they are
    sections: list[tuple[str, str]]  # the label, which may be empty, and the text of each section of the abstract
    controls: int  # control characters that were removed


def parse(content: bytes) -> Article:
    """Return what a record says. Raise ValueError, with the reason, if it is not well-formed XML."""
    parser = ElementTree.XMLParser()
    try:
        for piece in (WRAPPED, content, b"</record>"):
            parser.feed(piece)
        record = parser.close()
    except ElementTree.ParseError as error:
        raise ValueError(f"not well-formed XML ({error})") from error
    article = record.find("PubmedArticle/MedlineCitation/Article")
    if article is None:
        return Article("", (), [], 0)
    title, removed = _text(article.find("ArticleTitle"))
    sections: list[tuple[str, str]] = []
    for element in article.iterfind("Abstract/AbstractText"):
        text, controls = _text(element)
        removed += controls
        if text := TRUNCATED.sub("", text):
            label = " ".join(element.get("Label", "").split()).rstrip(":")
            sections.append(("" if label in NO_LABELS else label, text))
    languages = tuple((element.text or "").strip().lower() for element in article.iterfind("Language"))
    return Article(_without_brackets(title), languages, sections, removed)


def _text(element: ElementTree.Element | None) -> tuple[str, int]:
    """Return the text of an element and of the markup in it, on one line, and how many control characters it had."""
    if element is None:
        return "", 0
    try:
        text = _marked(element)
    except RecursionError as error:
        raise ValueError("its text has elements in elements without end") from error
    text, removed = sources.without_controls(references.unescape(text))
    return " ".join(text.split()), removed


def _marked(element: ElementTree.Element) -> str:
    """Return the text of an element. Mark powers so that they are no digits; set bold headings apart from words."""
    text = element.text or ""
    for child in element:
        inner, tail = _inner(child, element), child.tail or ""
        number, is_formula = POWER.fullmatch(inner.strip()), mathml.is_formula(child.tag)
        if child.tag in SCRIPTS and number and text[-1:].isdigit():
            inner = f"{SCRIPTS[child.tag]}{inner.strip()}"  # 10<sup>6</sup> would be 106
        elif child.tag == "b" and inner.isupper():
            inner = f" {inner} "
        elif is_formula:
            inner = (" " if mathml.stands_apart(text, inner) else "") + mathml.without_mark(text, inner)
        ends = (number and child.tag in SCRIPTS) or is_formula
        text += inner + (" " if ends and mathml.stands_apart(inner, tail) else "") + tail
    return text


def _inner(child: ElementTree.Element, around: ElementTree.Element) -> str:
    """Return the text of an element of marked text. A formula that is there in MathML is not repeated as TeX."""
    if mathml.is_formula(child.tag):
        return mathml.shown(child)
    if child.tag == "tex-math":
        is_repeated = around.tag in FORMULAS and any(mathml.is_formula(one.tag) for one in around)
        return "" if is_repeated else mathml.tex(child)
    return f" {_marked(child)} " if child.tag in DISPLAYED else _marked(child)


def _without_brackets(title: str) -> str:
    """Return a title without the brackets that NLM puts around its translation.

    They are a pair: "[18F]FDG in mice [corrected]." begins with one pair and ends with another.
    """
    match = re.fullmatch(r"\[(.*?)\.?\]\.?", title)
    if not match or not match[1]:
        return title
    depth = 1
    for bracket in re.findall(r"[][]", match[1]):
        depth += 1 if bracket == "[" else -1
        if not depth:
            return title
    return f"{match[1]}."
