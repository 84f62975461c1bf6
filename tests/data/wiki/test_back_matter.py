"""References and literature behind an article are told from its text, in many languages."""

import html
import time

import pytest

from data.wiki import back_matter, wikitext

ARTICLE = """Der Turm steht.

== Geschichte ==
* Der Turm wurde im Jahr 1200 von Otto erbaut und steht noch.
* Im Jahr 1500 wurde er nach einem Brand wieder aufgebaut.

== Quellen und Literatur (Auswahl) ==
Diese Liste ist nicht vollst\xe4ndig.
=== B\xfccher ===
* Das Buch von Ada ist ein gutes Buch \xfcber den Turm.
: Ada Ash: ''Der Turm''. Verlag Birke, Berlin 1998.
== Publikationen ==
* Ada Ash: ''Der Turm und seine Zeit''. Verlag Birke, Berlin 1998.
* Bo Birke: Der kleine Turm und seine Zeit. Verlag Birke, Berlin 1998, S. 7.
== Heute ==
* Der Turm ist heute ein Museum und hat viele Besucher."""
PROSE = [
    "Der Turm steht.",
    "Der Turm wurde im Jahr 1200 von Otto erbaut und steht noch.",
    "Im Jahr 1500 wurde er nach einem Brand wieder aufgebaut.",
    "Diese Liste ist nicht vollst\xe4ndig.",
    "Der Turm ist heute ein Museum und hat viele Besucher.",
]


def prepared(text: str, lists: wikitext.Lists) -> list[str]:
    page = f"<page>\n<title>T</title>\n<ns>0</ns>\n<revision>\n<text>{html.escape(text)}</text>\n</revision>\n</page>"
    content = wikitext.prepared(page.encode(), set(), lists).content.decode()
    return html.unescape(content.partition("<text>")[2].partition("</text>")[0]).split("\n")


def test_a_german_list_of_references_is_no_prose() -> None:
    assert prepared(ARTICLE, "prose") == PROSE
    assert prepared(ARTICLE, "drop") == [PROSE[0], PROSE[3]]
    assert len(prepared(ARTICLE, "keep")) == 9  # all items and paragraphs


@pytest.mark.parametrize(
    "title",
    [  # of pywikibot's scripts/noreferences.py, and made of two of them
        *("Einzelnachweise", "Anmerkungen", " ''Literatur'' ", "Weblinks", "Literatur (Auswahl)", "Quellen & Belege"),
        *("Notes et r\xe9f\xe9rences", "Collegamenti esterni", "Enlaces externos", "Referenties", "Przypisy"),
        *("\u041f\u0440\u0438\u043c\u0435\u0447\u0430\u043d\u0438\u044f", "\u811a\u6ce8\u30fb\u51fa\u5178"),
        *("\u53c3\u8003\u6587\u737b", "\u5916\u90e8\u94fe\u63a5", "\u0645\u0631\u0627\u062c\u0639", "\uac01\uc8fc"),
        *("\u05d4\u05e2\u05e8\u05d5\u05ea \u05e9\u05d5\u05dc\u05d9\u05d9\u05dd", "\u03a0\u03b7\u03b3\u03ad\u03c2"),
    ],
)
def test_sections_of_references_are_known_by_their_names(title: str) -> None:
    assert back_matter.is_back_matter(title)
    assert not back_matter.is_back_matter(f"Geschichte der {title}")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Ada Ash: ''The Mill and its Time''. Elm Press, London 1998.", True),
        ("Ada Ash, Karl von Birke: Die M\xfchle. In: ''Zeitschrift'', Band 12, 1998, S. 12\u201334.", True),
        (
            "[[Ada Ash (Autorin)|Ada Ash]] (Hrsg.): ''Die M\xfchle.'' 2. Auflage. Elm, Berlin/Ulm 2004, S. 5\u20139.",
            True,
        ),
        ("''Der Turm.'' M\xfcnchen 1901.", True),
        ("Jean Dupont, ''La Tour et son temps'', Paris, Orme, 1998, 320 p.", True),
        ("Juan Fresno (1998). ''La torre''. Madrid: Olmo.", True),
        ("Jan Buk: Wie\u017ca. Warszawa: WIO, 1998, s. 12.", True),
        (
            "\u0412\u044f\u0437 \u0418. \u0418. \u0411\u0430\u0448\u043d\u044f. \u2014 \u041c.: \u0412\u044f\u0437, "
            "1998. \u2014 320 \u0441.",
            True,
        ),
        ("Paris: the tower was finished in 1889.", False),
        ("The tower of ''Faust'' was written in 1808.", False),
        ("Ada Ash (born 1950), a German painter, lived in Berlin.", False),
        ("1990: Gr\xfcndung der Firma Ash in Berlin, 1998 Umzug nach K\xf6ln.", False),
        ("The first season: ''Pilot'' was shown on NBC in May 2004.", False),
        ("She is the heroine of Elm's novel ''The Song of the Mill'' (2011).", False),
        ('"The Mill" is an oratorio by Max Ash (1885).', False),
    ],
)
def test_an_entry_names_a_work_with_its_place_and_year(line: str, expected: bool) -> None:
    """Forms of citation of the wikis, such as de:Wikipedia:Zitierregeln; titles are invented."""
    assert back_matter.is_citation(line) == expected


def test_an_endless_line_takes_no_time() -> None:
    begin = time.process_time()
    for line in (
        "Ash Elm " * 50_000 + "1998",
        "A, " * 99_999 + "1998.",
        ".'' A " * 50_000 + " 1998",
        "(" * 99_999 + "1998",
    ):
        back_matter.is_citation(line)
    assert time.process_time() - begin < 5
