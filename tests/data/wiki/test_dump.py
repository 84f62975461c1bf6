"""A dump is cut into its pages: every page is counted, and a damaged dump is refused in one line."""

import bz2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core.errors import InputError
from data.wiki import dump
from tests.wiki_dump import page, pages, xml


def damaged() -> dict[str, tuple[bytes, str]]:
    whole = xml().encode()
    middle = whole.index(b"mills", 2000)
    return {
        "cut.xml": (whole[:middle], "the file ends inside a page"),
        "between.xml": (whole[: whole.index(b"</mediawiki>")], "the file ends between pages"),
        "cut.xml.bz2": (bz2.compress(whole)[:-30], "the compressed file is truncated"),
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


@pytest.mark.parametrize("place", ["before", "behind"])
def test_pages_that_are_no_wikitext_are_counted_by_their_model(place):
    """Export-0.10 has the model before the text, export-0.8 (until 2013) behind it; slots have models of their own."""
    models = ["wikitext", "css", "sanitized-css", "Scribunto", "javascript", "json", "json", "wikitext"]
    content = []
    for number, model in enumerate(models, 1):
        begin, tag, rest = page(number, f"P{number}", "a").partition("      <text")
        text, end, rest = (tag + rest).partition("</text>\n")
        name = f"      <model>{model}</model>\n"
        slot = "<content><model>json</model><text>{}</text></content>" if place == "before" else ""
        content.append(begin + (name + text + end + slot if place == "before" else text + end + name) + rest)
    reader = dump.Reader(Path("dump.xml"))
    articles = [article.id for article in reader.add(xml(content=content).encode())]
    assert articles == ["1", "8"] and reader.counts["articles"] == 2 and reader.counts["pages"] == 8
    of_models = {name: count for name, count in reader.counts.items() if name.startswith("of model")}
    assert of_models == {f"of model {model}": models.count(model) for model in models if model != "wikitext"}
