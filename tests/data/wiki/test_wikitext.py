"""What wikiextractor would lose of a page is text before it sees the page, and what is no text is counted and gone."""

import html

import pytest

from data.wiki import literals, wikitext

HEAD = b'<namespace key="0" case="x"/><namespace key="6">Datei</namespace><namespace key="14">Kategorie</namespace>'
NAMES = wikitext.names_of(HEAD)


def page(text: str) -> bytes:
    return (
        f"<page>\n<title>T</title>\n<ns>0</ns>\n<revision>\n<text>{html.escape(text)}</text>\n</revision>\n</page>"
    ).encode()


def prepared(text: str, lists: wikitext.Lists = "prose") -> str:
    content = wikitext.prepared(page(text), NAMES, lists).content.decode()
    return literals.show(html.unescape(content.partition("<text>")[2].partition("</text>")[0]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("in [[Star Trek: The Next Generation]] and", "in Star Trek: The Next Generation and"),
        ("[[2001: A Space Odyssey (novel)|2001]]", "2001"),
        ("[[:Category:Ships|ships]] [[:fr:Lyon]] [[wikt:boat|boats]]", "ships Lyon boats"),
        ("a [[Datei:a.jpg|thumb|[[B]] c]][[Kategorie:X]][[de:Schiff]][[zh-min-nan:X]] [[Ship]]", "a  [[Ship]]"),
        ("a[[Bild:b.JPG|thumb]] [[Star: c.d]]", "a Star: c.d"),
        ("in [[CSI: Miami]] and [[Up: A Story|Up]]\n[[ fr:L]][[simple:S]]", "in CSI: Miami and Up"),
        ("{{convert|93|m|ft}} {{cvt|3|to|5|km|mi|abbr=on}}", "93 m 3 to 5 km"),
        ("{{lang|de|Turm}} {{nowrap|a b}} {{Val|3.5|e=6}} {{Quote|We did.|X}}", "Turm a b 3.5\xd710^6 We did."),
        ("a {{lang-sq|Tir\xeb}} {{quote|text=We did.}} {{nihongo|Tea|cha|o}}", "a Tir\xeb We did. Tea (cha, o)"),
        ("{{convert|3|to|5|C|F}} of {{transl|ar|jaza}}", "3 to 5 \xb0C of jaza"),
        ("{{nowrap|{{convert|5|km|mi}} of [[A|b]]}}", "5 km of [[A|b]]"),
        ("{{as of|2014|3|lc=y}} {{chem|H|2|O}} {{frac|1|2}} {{frac|3|1|4}}", "as of March 2014 H2O 1/2 3 1/4"),
        ("1775{{ndash}}1783, 6{{nbsp}}million, Eagle{{'}}s", "1775\u20131783, 6 million, Eagle\u2063'\u2063s"),
        ("no breaks{{clarify|date=a}}in<ref>b</ref>it.{{x}}", "no breaks in it."),
        ("{{Infobox|a={{b}}\n}}a{{cite web|title=T}}b", "a b"),
        ("10<sup>6</sup> but x<sup>2</sup>", "10^6 but x<sup>2</sup>"),
        ("2<sup>''n''</sup>, 10<sup>-k</sup>, 1<sup>er</sup>", "2^n, 10^-k, 1<sup>er</sup>"),
        ("l'''Altes'' and ''b'', '''c'''", "l'\u2063''Altes'' and ''b'', '''c'''"),
        ("dell'''A'' and '''c du'''", "dell'\u2063''A'' and '''c du'''"),
        ("''un''clear p''K''<sub>a</sub> ''of'' '''b'''s", "unclear pK<sub>a</sub> ''of'' '''b'''s"),
        ('A.\n== Name ==\nB.\n=== "C" === <!-- d -->\nE.', "A.\nB.\nE."),
        ("== First ==\nB.", "B."),
        ("a == b\n\n= 5\n\n==\n\n=x", "a == b\n= 5\n==\n=x"),
        ("(All of it.)\n\nset {1}\n\n{a} is", "\u2063(All of it.)\u2063\n\u2063set {1}\u2063\n\u2063{a} is\u2063"),
        ("One line\nand the next.\n\n code\n:indented", "One line and the next.\ncode\nindented"),
        ("a<small>b</small>\n<div>c</div><poem>d\ne</poem>", "ab\nc\nd\ne"),
        ("a<ref name=x/> b<ref>c<br>{{d</ref> e <gallery>\nf\n</gallery> g", "a b e  g"),
        ("a<ref>open b<ref>c</ref> d", "a<ref>open b d"),
        ("a {{open b\n\nc }} d {{cn}} g", "a  d  g"),
        ("a {{open {{cn}}\n\nc", "a {{open\nc"),
        ("a\n{| x\n| b\n{|\n| c\n|}\n|}\nd", "a\nd"),
        ("a\n{| x\n| b\n! c\n\n|-\n| e\nd\n\nf", "a\nd\nf"),
    ],
)
def test_text_that_would_be_lost_is_shown_and_the_rest_is_gone(text: str, shown: str) -> None:
    assert prepared(text) == shown


MUSEUM = "The museum has {{convert|3|km|mi}} of shelves.<ref>{{cite web|x}}</ref>"
ITEMS = [
    f"* {MUSEUM}",
    "** ''Nested'' items of a list may be sentences, too.",
    "# [[Oslo|The capital]] of Norway lies on a long fjord.{{citation needed}}",
    "; Term: what it means is said in a sentence.",
    "* Names only",
]
KEPT = [
    "The museum has 3 km of shelves.",
    "''Nested'' items of a list may be sentences, too.",
    "[[Oslo|The capital]] of Norway lies on a long fjord.",
    "Term: what it means is said in a sentence.",
]


def test_items_that_read_as_sentences_stay_without_their_references() -> None:
    text = "\n".join(["It has:", *ITEMS, "After."])
    assert prepared(text, "prose").split("\n") == ["It has:", *KEPT, "After."]
    assert prepared(text, "keep").split("\n") == ["It has:", *KEPT, "Names only", "After."]
    assert prepared(text, "drop") == "After."


@pytest.mark.parametrize(
    "items",
    [
        ["* [[New class]]", "* [[Pigs]]", "* [[Farm]], where animals are kept by people."],  # see also
        ["* {{cite book|title=A}}", "* {{cite web|b}}"],
        ["* [http://a.b The site of the museum of the city.]", "* It shows what people made there."],
        [
            "* Lord, Carnes. 1984. ''Introduction to The Politics.'' Chicago.",
            "* Owen, Thomas. 1921. ''Alabama and its people.''",
        ],
        ["* A history of the city and its port. ISBN 978-1-4000-4024-7."],
    ],
)
def test_lists_of_references_works_links_and_names_are_no_prose(items: list[str]) -> None:
    assert prepared("\n".join(["Above.", "== More ==", *items])) == "Above."


def test_the_characters_taken_out_are_counted_by_reason() -> None:
    text = "A.<ref>b</ref>{{c|d}}<!--e-->\n{|\n|}\n[[File:f.jpg]]\n== g ==\n* h\nI."
    _, counts = wikitext.prepared(page(text), NAMES, "prose")
    assert counts == {
        "in": len(text),
        "references and media": len("<ref>b</ref>"),
        "templates": len("{{c|d}}"),
        "template c": len("{{c|d}}"),
        "comments": len("<!--e-->"),
        "tables": len("{|\n|}"),
        "files and categories": len("[[File:f.jpg]]"),
        "headings": len("== g =="),
        "lists": len("h"),
    }


def test_a_page_on_one_line_and_one_of_an_old_dump_are_like_others() -> None:
    content = b"<page><title>T</title><id>1</id><revision><text>A.</text></revision></page>"
    expected = b"<page>\n<title>T</title>\n<ns>0</ns>\n<id>1</id>\n<revision>\n<text>A.</text>\n</revision>\n</page>"
    assert wikitext.prepared(content, NAMES, "prose").content == expected


def test_a_page_whose_text_was_deleted_stays_as_it_is() -> None:
    content = b'<page>\n<ns>0</ns>\n<revision>\n<text deleted="deleted" />\n</revision>\n</page>'
    assert wikitext.prepared(content, NAMES, "prose") == (content, {})


def slot(content: str) -> bytes:
    return f"<content><role>x</role><model>json</model>\n<text bytes='1'>{content}</text>\n</content>\n".encode()


@pytest.mark.parametrize("text", [b"<text>A.</text>\n", b'<text deleted="deleted" />\n'])
def test_a_page_has_its_main_slot_only(text: bytes) -> None:
    """MediaWiki's export-0.11.xsd: behind the text of the main slot, each other slot is a <content> with a text."""
    begin, end = b"<page>\n<ns>0</ns>\n<revision>\n<model>wikitext</model>\n", b"<sha1>a</sha1>\n</revision>\n</page>"
    content = begin + text + slot("{}") + slot("B.") + end
    assert wikitext.prepared(content, NAMES, "prose").content.split() == (begin + text + end).split()


@pytest.mark.parametrize(
    "prefix", ["be-x-old", "zh-classical", "zh-min-nan", "simple", "roa-rup", "nds-nl", "FR", "dk"]
)
def test_links_to_other_languages_are_no_text_and_titles_with_a_colon_are(prefix: str) -> None:
    """The prefixes are those of Wikimedia's langlist and interwiki maps; MediaWiki compares them without their case."""
    assert prepared(f"A. [[{prefix}:X]] B [[:{prefix}:X]] C [[Up: X]] [[csi: Miami]]") == "A.  B X C Up: X csi: Miami"


def test_a_noncharacter_of_a_page_is_no_hidden_character() -> None:
    assert prepared("a\ufdd0b &#xfdd0; c") == "ab &#xfdd0; c"
