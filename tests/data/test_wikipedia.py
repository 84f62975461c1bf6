"""The dump and folder readers: every page is accounted for, and no damage passes."""

import bz2
import gzip
import html
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.errors import InputError
from data import wikipedia
from data.wiki import dump, extractor

PROSE = "The river Ouse rises in the hills & runs for 40 miles <ref>Map</ref> to the sea. It floods in spring."
SITEINFO = """  <siteinfo>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="10" case="first-letter">Template</namespace>
    </namespaces>
  </siteinfo>
"""


def page(number: int, title: str, text: str, namespace: int = 0, redirect: str = "") -> str:
    target = f'    <redirect title="{redirect}" />\n' if redirect else ""
    return (
        f"  <page>\n    <title>{title}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n{target}"
        f"    <revision>\n      <id>{number + 100}</id>\n"
        f'      <text xml:space="preserve">{html.escape(text)}</text>\n    </revision>\n  </page>\n'
    )


def pages() -> list[str]:
    articles = [page(n, f"River {n}", f"{PROSE}\n\n== Course ==\nIt passes {n} mills and a weir.") for n in range(1, 8)]
    return [
        *articles,
        page(20, "Template engine", PROSE),  # wikiextractor alone loses this one
        page(21, "Ouse", "#REDIRECT [[River 1]]", redirect="River 1"),
        page(22, "Template:Map", "map of {{{1}}}", namespace=10),
        page(23, "Blank", "{{stub}}"),
    ]


def xml(siteinfo: str = SITEINFO, content: list[str] | None = None) -> str:
    body = "".join(pages() if content is None else content)
    return f'<mediawiki version="0.10" xml:lang="en">\n{siteinfo}{body}</mediawiki>\n'


def facts(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize("siteinfo", [SITEINFO, ""])
def test_every_page_is_accounted_for(tmp_path, stage, read, siteinfo):
    (tmp_path / "dump.xml").write_text(xml(siteinfo))
    code, lines = stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out", "--workers", 2)
    assert (code, len(lines)) == (0, 1)
    expected = {"articles": 8, "redirects": 1, "other_namespace": 1, "empty": 1, "rejected": 0, "pages": 11}
    assert facts(tmp_path / "out")["counts"] == expected
    documents = read(tmp_path / "out")
    assert [document["id"] for document in documents] == [f"wikipedia:{n}" for n in (*range(1, 8), 20)]
    assert documents[2]["text"].splitlines() == [
        "The river Ouse rises in the hills & runs for 40 miles  to the sea. It floods in spring.".replace("  ", " "),
        "It passes 3 mills and a weir.",
    ]


def test_compression_and_workers_do_not_change_a_byte(tmp_path, stage, contents):
    for name, content in {"a.xml": xml().encode(), "b.xml.bz2": bz2.compress(xml().encode())}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "c.xml.gz").write_bytes(gzip.compress(xml().encode()))
    found = []
    for name, workers in (("a.xml", 1), ("b.xml.bz2", 3), ("c.xml.gz", 2)):
        out = tmp_path / f"out-{name}"
        assert stage("wikipedia", "--source", tmp_path / name, "--output", out, "--workers", workers)[0] == 0
        found.append(contents(out)["part-00000-00000.jsonl"])
    assert found[0] == found[1] == found[2]


def damaged() -> dict[str, tuple[bytes, str]]:
    whole = xml().encode()
    middle = whole.index(b"mills", 2000)
    return {
        "cut.xml": (whole[:middle], "the file ends inside a page"),
        "between.xml": (whole[: whole.index(b"</mediawiki>")], "the file ends between pages"),
        "cut.xml.bz2": (bz2.compress(whole)[:-30], "the compressed file is cut"),
        "other.xml.bz2": (whole, "damaged"),
        "bad.xml": (whole[:middle] + b"\xff\xfe" + whole[middle:], f"not UTF-8 at byte {middle:,}"),
        "text.xml": (b"Once upon a time\n" * 99, "not an XML dump of MediaWiki"),
        "empty.xml": (b"", "not an XML dump of MediaWiki"),
        "history.xml": (whole.replace(b"    </revision>", b"    </revision><revision>", 1), "page histories"),
        "none.xml": (b"<mediawiki>\n</mediawiki>\n", "no article"),
        "within.xml": (whole.replace(b"  </page>\n", b"", 1), "page 1 has no end, title or id"),
        "nameless.xml": (whole.replace(b"<title>River 2</title>", b"<title>"), "page 2 has no end, title or id"),
        "laughs.xml": (b'<!DOCTYPE x [<!ENTITY a "&b;&b;">]>\n' + whole, "declares entities"),
        "late.xml": (whole.replace(b"</siteinfo>\n", b"</siteinfo>\n<!ENTITY a 'b'>"), "declares entities"),
    }


@pytest.mark.parametrize("name", list(damaged()))
def test_a_damaged_dump_is_one_line_and_leaves_nothing(tmp_path, stage, name):
    content, reason = damaged()[name]
    (tmp_path / name).write_bytes(content)
    code, lines = stage("wikipedia", "--source", tmp_path / name, "--output", tmp_path / "work" / "out")
    assert (code, len(lines)) == (3, 1)
    assert lines[0].startswith(f"error: {tmp_path / name}: ") and reason in lines[0]
    assert not (tmp_path / "work" / "out").exists()


def test_a_name_to_download_and_a_missing_path_differ(tmp_path, stage):
    assert stage("wikipedia", "--source", "simple", "--output", tmp_path / "out")[0] == 2
    assert stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out")[0] == 3


def test_a_lost_article_is_noticed(tmp_path, stage, monkeypatch):
    (tmp_path / "dump.xml").write_text(xml())
    answer = json.dumps({"id": "1", "title": "River 1", "text": PROSE})
    program = f"import sys; sys.stdin.read(); print({answer!r})"
    monkeypatch.setattr(extractor, "COMMAND", [sys.executable, "-c", program])
    code, lines = stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out")
    assert code == 4 and "gave no article for page 2 'River 2'" in lines[0]


def test_a_stalled_extractor_is_killed_with_its_workers(tmp_path, monkeypatch):
    (tmp_path / "dump.xml").write_text(xml())
    child = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program = f"import os, time; os.fork(); {child}"
    monkeypatch.setattr(extractor, "COMMAND", [sys.executable, "-c", program])
    begin = time.monotonic()
    with pytest.raises(InputError, match="gave no answer for 1 s, 3 times in a row, at page 3"):
        list(extractor.extract(dump.Reader(tmp_path / "dump.xml"), 1, 1.0))
    assert time.monotonic() - begin < 30
    pid = int((tmp_path / "pid").read_text())
    assert ended(pid)


HOLDS = """
import json, re, sys, time
held = []
for line in sys.stdin:
    if found := re.match(" {4}<id>([0-9]+)", line):
        if found[1] in ("2", "5"):
            time.sleep(60)
        print(*held, sep="", end="", flush=True)
        held = [json.dumps({"id": found[1], "title": "", "text": ""}) + "\\n"]
print(*held, sep="", end="")
"""


def test_the_page_that_stalls_alone_is_rejected_and_not_one_whose_answer_waits_behind_it(tmp_path, monkeypatch):
    # In wikiextractor itself a thread sends the answers; a page that keeps the interpreter busy lets it wait.
    (tmp_path / "dump.xml").write_text(xml())
    monkeypatch.setattr(extractor, "COMMAND", [sys.executable, "-c", HOLDS])
    reader = dump.Reader(tmp_path / "dump.xml")
    assert [found.id for found in extractor.extract(reader, 1, 1.0)] == ["1", "3", "4", "6", "7", "20", "23"]
    assert reader.rejected == dict.fromkeys(["2 River 2", "5 River 5"], "wikiextractor had no answer in 1 s")


def ended(pid: int) -> bool:
    """Whether a process ends within 5 seconds; its zombie may stay until the machine's first process collects it."""
    for _ in range(50):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or status.read_text().split(")")[1].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


def test_the_extractor_does_not_outlive_a_killed_stage(tmp_path):
    (tmp_path / "dump.xml").write_text(xml())
    child = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program = (
        f"import sys; from pathlib import Path; from data.wiki import dump, extractor;"
        f"extractor.COMMAND = [sys.executable, '-c', {child!r}];"
        f"list(extractor.extract(dump.Reader(Path({str(tmp_path / 'dump.xml')!r})), 1, 60.0))"
    )
    stage = subprocess.Popen([sys.executable, "-c", program])
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert stage.poll() is None
        time.sleep(0.05)
    stage.kill()
    stage.wait()
    assert ended(int((tmp_path / "pid").read_text()))


def test_a_failing_extractor_is_quoted(tmp_path, stage, monkeypatch):
    (tmp_path / "dump.xml").write_text(xml())
    monkeypatch.setattr(extractor, "COMMAND", [sys.executable, "-c", "raise SystemExit('no space for templates')"])
    code, lines = stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out")
    assert code == 3 and "exit code 1: no space for templates" in lines[0]


@given(cuts=st.lists(st.integers(0, len(xml())), max_size=9).map(sorted))
def test_where_the_chunks_are_cut_does_not_matter(cuts):
    content = xml().encode()
    reader = dump.Reader(Path("dump.xml"))
    found = [
        article
        for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True)
        for article in reader.add(content[begin:end])
    ]
    reader.finish()
    assert reader.counts == {"pages": 11, "articles": 9, "redirects": 1, "other_namespace": 1, "rejected": 0}
    assert [(article.id, article.title) for article in found[6:]] == [
        ("7", "River 7"),
        ("20", "Template engine"),
        ("23", "Blank"),
    ]
    assert [article.content.decode() for article in found[:7]] == [page.strip() for page in pages()[:7]]


def test_a_page_too_large_is_rejected_by_name_wherever_its_chunks_are_cut():
    large = page(8, "Delta &amp; sea", "water " * 500)
    content = xml(content=[*pages()[:3], large, page(9, "Delta", "water " * 500, namespace=4), *pages()[3:]]).encode()
    for size in (7, 333, 10_000):
        reader = dump.Reader(Path("dump.xml"), max_page=2_000)
        found = [a.id for begin in range(0, len(content), size) for a in reader.add(content[begin : begin + size])]
        reader.finish()
        assert found == ["1", "2", "3", "4", "5", "6", "7", "20", "23"]
        assert reader.rejected == {"8 Delta & sea": "more than 2,000 bytes of XML"}
        counts = reader.counts
        assert (counts["pages"], counts["articles"], counts["rejected"], counts["other_namespace"]) == (13, 9, 1, 2)


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
        assert code == 0 and "no part has the pages 13-99" in lines[-1]
    assert contents(tmp_path / "out1") == contents(tmp_path / "out5")
    ids = [document["id"] for document in read(tmp_path / "out1")]
    assert ids == [f"wikipedia:{n}" for n in (*range(1, 8), 20)]
    found = facts(tmp_path / "out1")
    assert found["extra"]["missing_pages"] == ["13-99"]
    expected = {"articles": 8, "redirects": 1, "other_namespace": 1, "empty": 1, "rejected": 0, "pages": 11}
    assert found["counts"] == expected and len(found["files"]) == 3


def test_parts_are_ordered_by_their_pages_and_never_hold_a_page_twice(tmp_path):
    names = [f"dewiki-1-pages-articles{n}.xml-p{p}p{q}.bz2" for n, p, q in ((1, 1, 9), (2, 10, 99), (10, 100, 2000))]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in dump.parts_of(tmp_path)] == names
    (tmp_path / "dewiki-1-pages-articles-multistream1.xml-p1p9.bz2").touch()
    with pytest.raises(InputError, match="hold the same pages"):
        dump.parts_of(tmp_path)
    (tmp_path / "dewiki-1-pages-articles-multistream1.xml-p1p9.bz2").unlink()
    (tmp_path / "dewiki-1-pages-articles.xml.bz2").touch()  # the whole beside its parts
    with pytest.raises(InputError, match="hold the same pages"):
        dump.parts_of(tmp_path)
    (tmp_path / "dewiki-1-pages-articles.xml.bz2").rename(tmp_path / "enwiki-1-pages-articles.xml.bz2")
    with pytest.raises(InputError, match="parts of two dumps"):
        dump.parts_of(tmp_path)


def test_a_damaged_part_fails_the_whole(tmp_path, stage):
    (tmp_path / "in").mkdir()
    for number, cut in ((1, 9999), (2, 500)):
        name = f"enwiki-1-pages-articles{number}.xml-p{number}p{number}.bz2"
        content = xml(content=pages()[number : number + 1]).encode()
        (tmp_path / "in" / name).write_bytes(bz2.compress(content[:cut]))
    code, lines = stage("wikipedia", "--source", tmp_path / "in", "--output", tmp_path / "work" / "out", "--workers", 2)
    assert code == 3 and "articles2.xml-p2p2.bz2: the file ends inside a page" in lines[-1]
    assert not (tmp_path / "work" / "out").exists()


DIRTY = """Ouse

Ouse (; ; "Usa") is a river () in England , as of 2014[ [update]], and a &lt; b.&lt;br&gt;
History.
{{Infobox river
| length = 40
Its flow is formula_12, see codice_3.__NOTOC__
[[Category:Rivers]]
* The longest list entry is still a line of some words here.
"""
CLEAN = """Ouse ("Usa") is a river  in England , as of 2014, and a < b.
Its flow is formula, see code.
The longest list entry is still a line of some words here."""


def test_remnants_of_markup_are_removed():
    assert wikipedia.clean("Ouse", DIRTY) == CLEAN


def test_both_forms_of_extracted_folders_give_the_same(tmp_path, stage, contents):
    (tmp_path / "tags" / "AA").mkdir(parents=True)
    (tmp_path / "json" / "AB").mkdir(parents=True)
    tagged = [f'<doc id="{n}" url="u" title="A &amp; {n}">\nA & {n}\n\n{PROSE}\n</doc>\n' for n in range(5)]
    lines = [json.dumps({"id": str(n), "title": f"A & {n}", "text": PROSE}) + "\n" for n in range(5)]
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
        ('{"id": "7"}\n', "line 1 is not from wikiextractor"),
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


def test_the_real_slice_is_extracted_whole(tmp_path, stage, shared_data, read):
    source = shared_data / "wikipedia" / "enwiki-pages-articles-slice.xml.bz2"
    assert stage("wikipedia", "--source", source, "--output", tmp_path / "out")[0] == 0
    counts = facts(tmp_path / "out")["counts"]
    expected = {"pages": 206, "articles": 105, "empty": 1, "redirects": 99, "other_namespace": 1, "rejected": 0}
    assert counts == expected
    text = "\n".join(document["text"] for document in read(tmp_path / "out"))
    assert len(text) > 2_500_000
    assert not any(mark in text for mark in ("{{", "[[", "()", "<br", "</", "formula_", "&lt;", "__NOTOC__"))
