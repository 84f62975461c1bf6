"""The dump and folder readers: every page is accounted for, and no damage passes."""

import bz2
import gzip
import html
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.errors import InputError
from data import dump, wikipedia

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


def xml(siteinfo: str = SITEINFO) -> str:
    return f'<mediawiki version="0.10" xml:lang="en">\n{siteinfo}{"".join(pages())}</mediawiki>\n'


@pytest.mark.parametrize("siteinfo", [SITEINFO, ""])
def test_every_page_is_accounted_for(tmp_path, stage, read, siteinfo):
    (tmp_path / "dump.xml").write_text(xml(siteinfo))
    code, lines = stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out", "--workers", 2)
    assert (code, len(lines)) == (0, 1)
    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]
    assert counts == {"articles": 8, "redirects": 1, "other_namespace": 1, "empty": 1, "pages": 11}
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
        found.append(contents(out)["part-00000.jsonl"])
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
    }


@pytest.mark.parametrize("name", list(damaged()))
def test_a_damaged_dump_is_one_line_and_leaves_nothing(tmp_path, stage, name):
    content, reason = damaged()[name]
    (tmp_path / name).write_bytes(content)
    code, lines = stage("wikipedia", "--source", tmp_path / name, "--output", tmp_path / "work" / "out")
    assert (code, len(lines)) == (3, 1)
    assert lines[0].startswith(f"error: {tmp_path / name}: ") and reason in lines[0]
    assert list((tmp_path / "work").iterdir()) == []


def test_a_name_to_download_and_a_missing_path_differ(tmp_path, stage):
    assert stage("wikipedia", "--source", "simple", "--output", tmp_path / "out")[0] == 2
    assert stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out")[0] == 3


def test_a_lost_article_is_noticed(tmp_path, stage, monkeypatch):
    (tmp_path / "dump.xml").write_text(xml())
    answer = json.dumps({"id": "1", "title": "River 1", "text": PROSE})
    program = f"import sys; sys.stdin.read(); print({answer!r})"
    monkeypatch.setattr(dump, "COMMAND", [sys.executable, "-c", program])
    code, lines = stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out")
    assert code == 4 and "gave 1 of the dump's 9 articles" in lines[0]


def test_a_stalled_extractor_is_killed_with_its_workers(tmp_path, monkeypatch):
    (tmp_path / "dump.xml").write_text(xml())
    child = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program = f"import os, time; os.fork(); {child}"
    monkeypatch.setattr(dump, "COMMAND", [sys.executable, "-c", program])
    begin = time.monotonic()
    with pytest.raises(InputError, match="stalled for 1 s at its beginning"):
        list(dump.extract(tmp_path / "dump.xml", 1, 1.0, {}))
    assert time.monotonic() - begin < 20
    pid = int((tmp_path / "pid").read_text())
    assert ended(pid)


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
    extractor = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program = (
        f"import sys; from pathlib import Path; from data import dump;"
        f"dump.COMMAND = [sys.executable, '-c', {extractor!r}];"
        f"list(dump.extract(Path({str(tmp_path / 'dump.xml')!r}), 1, 60.0, {{}}))"
    )
    stage = subprocess.Popen([sys.executable, "-c", program])
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.05)
    stage.kill()
    stage.wait()
    assert ended(int((tmp_path / "pid").read_text()))


def test_a_failing_extractor_is_quoted(tmp_path, stage, monkeypatch):
    (tmp_path / "dump.xml").write_text(xml())
    monkeypatch.setattr(dump, "COMMAND", [sys.executable, "-c", "raise SystemExit('no space for templates')"])
    code, lines = stage("wikipedia", "--source", tmp_path / "dump.xml", "--output", tmp_path / "out")
    assert code == 3 and "exit code 1: no space for templates" in lines[0]


@given(cuts=st.lists(st.integers(0, len(xml())), max_size=9).map(sorted))
def test_where_the_chunks_are_cut_does_not_matter(cuts):
    content = xml().encode()
    survey = dump.Survey(Path("dump.xml"))
    for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        survey.add(content[begin:end])
    survey.finish()
    assert (survey.pages, survey.articles, survey.redirects, survey.other_namespace) == (11, 9, 1, 1)


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
    tags, json_lines = (contents(tmp_path / f"out-{kind}")["part-00000.jsonl"] for kind in ("tags", "json"))
    assert tags == json_lines and tags.count(b"\n") == 5


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('<doc id="7" url="u" title="Ouse">\nOuse\n\nA river', "ends inside article 7"),
        ("Once upon a time", "where <doc id=...> should be"),
        ('{"id": "7"}\n', "line 1 is no article"),
        ('{"id": "7", "title": "", "text": "A"}\n{"id"', "line 2 is no article"),
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
    assert code == 3 and "no wikiextractor output" in lines[0]


def test_the_real_slice_is_extracted_whole(tmp_path, stage, shared_data, read):
    source = shared_data / "wikipedia" / "enwiki-pages-articles-slice.xml.bz2"
    assert stage("wikipedia", "--source", source, "--output", tmp_path / "out")[0] == 0
    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]
    assert counts == {"pages": 206, "articles": 105, "empty": 1, "redirects": 99, "other_namespace": 1}
    text = "\n".join(document["text"] for document in read(tmp_path / "out"))
    assert len(text) > 2_500_000
    assert not any(mark in text for mark in ("{{", "[[", "()", "<br", "</", "formula_", "&lt;", "__NOTOC__"))
