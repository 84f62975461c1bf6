"""The dump and folder readers: every page is accounted for, and no damage passes."""

import bz2
import json
from pathlib import Path
from typing import Any

import pytest

from data import wikipedia
from tests.wiki_dump import PROSE, SITEINFO, page, pages, xml


def facts(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize("siteinfo", [SITEINFO, ""])
def test_every_page_is_accounted_for(tmp_path, stage, read, siteinfo):
    (tmp_path / "dump.xml").write_text(xml(siteinfo))
    code, lines = stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out", "--workers", 2)
    assert (code, len(lines)) == (0, 3)
    expected = {"articles": 8, "redirects": 1, "other_namespace": 1, "empty": 1, "rejected": 0, "pages": 11}
    assert facts(tmp_path / "out")["counts"] == expected
    characters = facts(tmp_path / "out")["extra"]["characters"]
    assert characters.pop("in") == sum(characters.values()) and characters["headings"] == 7 * len("== Course ==")
    documents = read(tmp_path / "out")
    assert characters["text"] == sum(len(document["text"]) for document in documents)
    assert [document["id"] for document in documents] == [f"wikipedia:{n}" for n in (*range(1, 8), 20)]
    assert documents[2]["text"].splitlines() == [
        "The river Ouse rises in the hills & runs for 40 miles  to the sea. It floods in spring.".replace("  ", " "),
        "It passes 3 mills and a weir.",
    ]


def test_a_name_to_download_and_a_missing_path_differ(tmp_path, stage):
    assert stage("wikipedia", "--source", "simple", "--output", tmp_path / "out")[0] == 2
    assert stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out")[0] == 3


@pytest.mark.slow
def test_parts_of_a_dump_give_the_same_bytes_for_any_workers(tmp_path, stage, read, contents):
    source = tmp_path / "enwiki"
    source.mkdir()
    ranges = {(1, 3): pages()[:3], (4, 12): pages()[3:7], (100, 2000): pages()[7:]}
    for number, (ends, content) in enumerate(ranges.items(), 1):
        name = f"enwiki-20990101-pages-articles-multistream{number}.xml-p{ends[0]}p{ends[1]}.bz2"
        (source / name).write_bytes(bz2.compress(xml(content=content).encode()))
    (source / "enwiki-20990101-pages-articles-multistream-index1.txt-p1p3.bz2").write_bytes(b"not read")
    for workers in (1, 5):
        code, lines = stage(
            "wikipedia", "--source", source, "--output", tmp_path / f"out{workers}", "--workers", workers
        )
        assert code == 0 and "no part has the pages 13-99" in lines[-2]
    assert contents(tmp_path / "out1") == contents(tmp_path / "out5")
    ids = [document["id"] for document in read(tmp_path / "out1")]
    assert ids == [f"wikipedia:{n}" for n in (*range(1, 8), 20)]
    found = facts(tmp_path / "out1")
    assert found["extra"]["missing_pages"] == ["13-99"]
    expected = {"articles": 8, "redirects": 1, "other_namespace": 1, "empty": 1, "rejected": 0, "pages": 11}
    assert found["counts"] == expected and len(found["files"]) == 3


DIRTY = """Ouse

Ouse (; ; "Usa") is a river () in England , as of 2014[ [update]], and a &lt; b.&lt;br&gt;
History.
{{Infobox river
| length = 40
Its flow is formula_12, see codice_3.__NOTOC__
[[Category:Rivers]]
* The longest list entry is still a line of some words here.
"""
STRAY = "A [[city|town] with one bracket too few is near the river."
CLEAN = """Ouse ("Usa") is a river  in England , as of 2014, and a < b.
Its flow is formula, see code.
The longest list entry is still a line of some words here."""


def test_remnants_of_markup_are_removed():
    assert wikipedia.clean("Ouse", f"{DIRTY}{STRAY}\n", headings=True) == f"{CLEAN}\n{STRAY}"


def test_parentheses_of_chinese_and_japanese_that_held_only_a_template_are_removed():
    text = "\u5854\uff08\uff0c \uff09\u9ad8\uff08\u3001\u65e5\u672c\uff09\u3002"
    assert wikipedia.clean("A", text, headings=False) == "\u5854\u9ad8\uff08\u65e5\u672c\uff09\u3002"


@pytest.mark.parametrize("headings", [True, False])
def test_a_paragraph_may_begin_with_an_exclamation_mark(headings):
    """A row of names above a table begins with one, too."""
    band = "!!! is an American rock band that formed in 1996."
    text = (
        f"First.\n{band}\n! Year !! Album !! Label of the first edition and of the second\n! scope=col | Year of birth"
    )
    assert wikipedia.clean("Chk", text, headings).split("\n")[1:] == [band]


def test_both_forms_of_extracted_folders_give_the_same(tmp_path, stage, contents):
    (tmp_path / "tags" / "AA").mkdir(parents=True)
    (tmp_path / "json" / "AB").mkdir(parents=True)
    tagged = [f'<doc id="{n}" url="u" title="A &amp; {n}">\nA & {n}\n\n{PROSE}\n</doc>\n' for n in range(5)]
    lines = [json.dumps({"id": str(n), "title": f"A & {n}", "text": PROSE}) + "\n" for n in range(5)]
    lines[3] = lines[3].replace("\\n", " \\ud83d\\n", 1)
    tagged[3] = tagged[3].replace(PROSE, PROSE.replace("\n", " \ufffd\n", 1))
    for kind, texts in (("tags/AA", tagged), ("json/AB", lines)):
        (tmp_path / kind / "wiki_00").write_text("".join(texts[:3]))
        (tmp_path / kind / "wiki_01.bz2").write_bytes(bz2.compress("".join(texts[3:]).encode()))
    for kind in ("tags", "json"):
        assert stage("wikipedia", "--source", tmp_path / kind, "--output", tmp_path / f"out-{kind}")[0] == 0
    tags, json_lines = (contents(tmp_path / f"out-{kind}")["part-00000-00000.jsonl"] for kind in ("tags", "json"))
    assert tags == json_lines and tags.count(b"\n") == 5


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('<doc id="7" url="u" title="Ouse">\nOuse\n\nA river', "ends inside article 7"),
        ("Once upon a time", "instead of <doc id=...>"),
        ('<doc id="7" url="u" title="Ouse', "instead of <doc id=...>"),
        ('<doc id="7" url="u">\n', "instead of <doc id=...>"),
        ('{"id": "7"}\n', "line 1 is not from wikiextractor"),
        ('{"id": "7", "title": "", "text": 5}\n', "line 1 is not from wikiextractor"),
        ('{"id": "7", "title": "", "text": ' + "[" * 100_000, "line 1 is not from wikiextractor"),
        ('{"id": "7", "title": "", "text": "A"}\n{"id"', "line 2 is not from wikiextractor"),
    ],
)
def test_a_damaged_extracted_file_is_named(tmp_path, stage, content, reason):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "wiki_00").write_text(content)
    code, lines = stage("wikipedia", "--source", tmp_path / "in", "--output", tmp_path / "out")
    assert code == 3 and reason in lines[0] and "wiki_00" in lines[0] and not (tmp_path / "out").exists()


def test_an_empty_folder_is_refused(tmp_path, stage):
    (tmp_path / "in").mkdir()
    code, lines = stage("wikipedia", "--source", tmp_path / "in", "--output", tmp_path / "out")
    assert code == 3 and "nor wikiextractor output" in lines[0]


def test_lists_of_a_folder_without_them_are_not_to_be_kept(tmp_path, stage):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "wiki_00").write_text(f'<doc id="7" url="u" title="Ouse">\nOuse\n\n{PROSE}\n</doc>\n')
    command = ("--source", tmp_path / "in", "--output", tmp_path / "out")
    code, lines = stage("wikipedia", *command, "--lists", "keep")
    assert (code, len(lines)) == (2, 1) and "wikiextractor has dropped the lists" in lines[0]
    assert stage("wikipedia", *command)[0] == 0 and facts(tmp_path / "out")["parameters"] == {}


@pytest.mark.thorough
def test_the_real_slice_is_extracted_whole(tmp_path, stage, shared_data, read):
    source = shared_data / "wikipedia" / "enwiki-pages-articles-slice.xml.bz2"
    assert stage("wikipedia", "--source", source, "--output", tmp_path / "out")[0] == 0
    counts = facts(tmp_path / "out")["counts"]
    expected = {"pages": 206, "articles": 104, "empty": 2, "redirects": 99, "other_namespace": 1, "rejected": 0}
    assert counts == expected
    text = "\n".join(document["text"] for document in read(tmp_path / "out"))
    assert len(text) > 2_500_000
    assert not any(mark in text for mark in ("{{", "[[", "()", "<br", "</", "formula_", "&lt;", "__NOTOC__"))


SHORT = """<mediawiki xml:lang="zh">
<siteinfo><dbname>zhwiki</dbname><base>https://zh.wikipedia.org/wiki/X</base><namespaces>
<namespace key="0"/><namespace key="14">Category</namespace></namespaces></siteinfo>
<page>
<title>A</title>
<id>7</id>
<revision>
<text>\u957f\u6c5f\u662f\u6cb3\u3002__\u65e0\u76ee\u5f55__

== \u540d\u79f0 ==
-{zh-hans:\u8ba1\u7b97; zh-hant:\u8a08\u7b97}-\u673a\u3002-{H|x}-

1945 wurde sie zerst\xf6rt.
</text>
</revision>
</page>
<page>
<title>Category:B</title>
<id>8</id>
<revision>
<text>none</text>
</revision>
</page>
</mediawiki>
"""


def test_short_paragraphs_of_any_language_stay_and_headings_go(tmp_path, stage, read):
    (tmp_path / "a.xml").write_text(SHORT, encoding="utf-8")
    code, lines = stage("wikipedia", "--source", tmp_path / "a.xml", "--output", tmp_path / "out")
    assert code == 0 and "1 other_namespace" in lines[-3]
    text = "\u957f\u6c5f\u662f\u6cb3\u3002\n\u8ba1\u7b97\u673a\u3002\n1945 wurde sie zerst\xf6rt."
    assert read(tmp_path / "out") == [{"id": "wikipedia:zh.wikipedia.org:7", "text": text}]


# What MediaWiki shows of a page: its Sanitizer escapes what is no tag that it knows, the content of nowiki and entities
# are text, and brackets and braces without a partner are themselves. mwparserfromhell 0.7.2 keeps the same words.
AS_TEXT = {
    "If x<y and y<z then x<z follows, but z>x too.": "",
    "For i<j one writes List<String> or Map<String, List<Integer>> in programs.": "",
    "Let i<b and c>d hold, x <3 and 5 < 6 > 4 <- too.": "",
    "Write to <ash@example.org> or see <a href='x'>this</a> page.": "",
    "One writes cin >> x; and cout << y; in C++.": "",
    "The tag &lt;c&gt; and &amp;nbsp; of AT&amp;T.": "The tag <c> and &nbsp; of AT&T.",
    "&#42; and &#123;&#123;y&#125;&#125; and &#39;&#39;z&#39;&#39; are signs.": "* and {{y}} and ''z'' are signs.",
    "Use <nowiki>[[a]]</nowiki> or <nowiki>{{x|&lt;b></nowiki> here.": "Use [[a]] or {{x|<b> here.",
    "The <nowiki><!--</nowiki> begins and <nowiki>--></nowiki> ends it.": "The <!-- begins and --> ends it.",
    "<pre>\n<!--\n</pre>\nThe text behind it stays here.": "The text behind it stays here.",
    "<math>\\frac{{a}}{{b}} < {{x</math> is in the text, and <ce>H2O</ce> too.": "formula is in the text, and H2O too.",
    "A [[city|town] with one bracket too few is by the river.": "",
    "[[City] is a town on the river, and ]] is a stray.": "",
    "The states {|0>, |1>} and the set {{1,2},{3}} of {1,2,3}.": "",
    "{|0>, |1>} is a basis, and {| and |} are signs.": "",
    "Write <source lang=c inline>x<y;</source> in <syntaxhighlight lang=c inline=1>{{</syntaxhighlight> here.": (
        "Write code in code here."
    ),
    "Text with {{cn} here and {{nowrap|a b}} there {{ so.": "Text with {{cn} here and a b there {{ so.",
    "The matrix [[1,2],[3,4]] and {{{1}}} and {{{2|b}}} are.": "The matrix [[1,2],[3,4]] and {{{1}}} and b are.",
    "See [http://x.y the [[b|site]] of c] here.": "See the site of c here.",
    "{{Infobox\n| a = b\n}}\n}}\n'''X''' is a writer of books.": "X is a writer of books.",
    "{{Infobox\n| a = [[b]]\n| c = d\n\n'''Y''' is a writer of books.": "Y is a writer of books.",
    "{{Infobox\n| a = b\n}\n'''V''' is a writer of books.": "V is a writer of books.",
    "[[File:x.jpg|thumb|A caption without an end.\n\nZ is a writer.": "Z is a writer.",
    "|}\nA paragraph is behind the end of a table.\n[[zh-classical:X]] [[BE-x-old:Y]]": (
        "A paragraph is behind the end of a table."
    ),
}


def test_what_mediawiki_shows_as_text_stays_and_the_rest_of_unclosed_markup_is_counted(tmp_path, stage, read):
    content = [page(number, f"Page {number}", text) for number, text in enumerate(AS_TEXT, 1)]
    (tmp_path / "dump.xml").write_text(xml(content=content))
    assert stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out")[0] == 0
    shown = [document["text"] for document in read(tmp_path / "out")]
    assert shown == [expected or text for text, expected in AS_TEXT.items()]
    lost = ["}}", *("{{Infobox", "| a = [[b]]", "| c = d"), *("{{Infobox", "| a = b", "}"), "|}"]
    lost.append("[[File:x.jpg|thumb|A caption without an end.")
    characters = facts(tmp_path / "out")["extra"]["characters"]
    assert characters.pop("in") == sum(characters.values())
    assert characters["unclosed markup"] == sum(map(len, lost))
