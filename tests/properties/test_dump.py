"""Damaged dumps of Wikipedia: each is read or refused with one line, and every page is counted."""

import bz2
import tempfile
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from bert.core.errors import InputError
from data.wiki import dump
from tests.properties import mutations
from tests.properties.fuzz import fuzz
from tests.wiki_dump import page, xml

PLAIN = (
    xml().encode(),
    xml(siteinfo="", content=[page(3, "A &amp; B &#8211; &#x110000;", "caf\u00e9 \U0001f41d")]).encode(),
)
TAGS = (b"<page>", b"</page>", b"<title>", b"<id>", b"<ns>", b"<revision>", b"</mediawiki>", b"<!DOCTYPE ", b"&#1;")
LONG = b"&#" + b"9" * 5000 + b";"


def read(content: bytes, suffix: str = "") -> list[dump.Page] | None:
    """Return the articles of a dump, or None if it is refused. Check that the counts add up."""
    with tempfile.TemporaryDirectory(prefix="dump") as folder:
        path = Path(folder) / f"dump.xml{suffix}"
        path.write_bytes(content)
        reader = dump.Reader(path, max_page=100_000)
        try:
            pages = list(reader.pages())
        except InputError as error:
            assert str(path) in str(error) and len(str(error)) < 1000
            return None
    counts = reader.counts
    assert counts["articles"] == len(pages) and counts["rejected"] == len(reader.rejected)
    assert counts["pages"] == sum(counts[kind] for kind in ("articles", "redirects", "other_namespace", "rejected"))
    for one in pages:
        assert one.content.startswith(dump.BEGIN) and one.content.endswith(dump.END)
        one.title.encode(), one.content.decode()
    return pages


def test_the_dumps_to_damage_are_good() -> None:
    assert [len(read(content) or []) for content in PLAIN] == [9, 1]
    assert [len(read(bz2.compress(content), ".bz2") or []) for content in PLAIN] == [9, 1]


@fuzz
@given(mutations.damaged(PLAIN, (*TAGS, LONG)))
@example(PLAIN[0].replace(b"<title>Blank", b"<title>" + LONG))
@example(PLAIN[0].replace(b"<id>23<", b"<id>" + b"2" * 5000 + b"<"))
def test_a_damaged_dump_is_read_or_refused(content: bytes) -> None:
    read(content)


@fuzz
@given(mutations.damaged([bz2.compress(content) for content in PLAIN]))
def test_a_damaged_compressed_dump_is_read_or_refused(content: bytes) -> None:
    read(content, ".bz2")


@fuzz
@given(st.data())
def test_the_pages_do_not_depend_on_where_the_blocks_end(data: st.DataObject) -> None:
    content = PLAIN[0]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=9)))
    reader = dump.Reader(Path("dump.xml"))
    pages = []
    for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        pages += list(reader.add(content[begin:end]))
    reader.finish()
    assert pages == read(content)
