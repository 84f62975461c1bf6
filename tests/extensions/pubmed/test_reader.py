"""Records of PubMed, wherever the blocks of a file end, and however long they are."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core.errors import InputError
from extensions.pubmed import abstract
from extensions.pubmed.reader import Reader
from tests.pubmed_xml import deletion, record, xml

CONTENT = xml(record(3), record(4, None, version=12), deletion(5, 6), record(123456789)).encode()


@given(st.lists(st.integers(0, len(CONTENT)), max_size=9).map(sorted))
def test_the_records_do_not_depend_on_where_the_blocks_end(cuts: list[int]) -> None:
    reader = Reader(Path("a.xml"))
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(CONTENT)], strict=True):
        found += list(reader.add(CONTENT[begin:end]))
    reader.finish()
    assert [(one.pmid, one.version, one.content is None) for one in found] == [
        (3, 1, False),
        (4, 12, False),
        (5, 1, True),
        (6, 1, True),
        (123456789, 1, False),
    ]
    assert b"".join(one.content or b"" for one in found) in CONTENT.replace(deletion(5, 6).encode(), b"").replace(
        b"</PubmedArticle>\n", b"</PubmedArticle>"
    )
    assert reader.records == 4


SETS = xml(record(3)) + xml(record(4), record(5)) + "<!-- the end -->\n"


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_file_of_two_sets_that_is_cut_anywhere_is_an_error(size: int) -> None:
    def read(content: bytes) -> list[int]:
        reader = Reader(Path("a.xml"))
        found = [one.pmid for at in range(0, len(content), size) for one in reader.add(content[at : at + size])]
        reader.finish()
        return found

    assert read(SETS.encode()) == [3, 4, 5]
    first, whole = len(xml(record(3)).encode()), len(SETS.removesuffix("\n<!-- the end -->\n").encode())
    assert read(SETS.encode()[:first]) == [3]
    for end in range(first + 1, whole, 13):
        with pytest.raises(InputError, match=r"the file ends (between records|inside a record)"):
            read(SETS.encode()[:end])


@pytest.mark.parametrize(
    ("title", "expected"),
    [  # the first three as NLM describes translated titles in its page on MEDLINE/PubMed data elements
        ("[The biology of moss.]", "The biology of moss."),
        ("[The biology [of moss]].", "The biology [of moss]."),
        ("[Iron]", "Iron."),
        ("[18F]FDG in mice [corrected].", "[18F]FDG in mice [corrected]."),
        ("[18F]FDG [a].]", "[18F]FDG [a].]"),
        ("Moss [corrected].", "Moss [corrected]."),
    ],
)
def test_brackets_are_removed_that_are_around_a_whole_title(title: str, expected: str) -> None:
    article = abstract.parse(record(3, title=title).encode())
    assert article.title == expected


def test_memory_is_bounded_by_the_longest_record_that_is_accepted() -> None:
    reader = Reader(Path("a.xml"), max_record=5000)
    with pytest.raises(InputError, match="record 2 has more than 5,000 bytes"):
        for block in [
            xml(record(3)).removesuffix("</PubmedArticleSet>\n").encode(),
            b"<PubmedArticle>",
            *[b" " * 99] * 60,
        ]:
            list(reader.add(block))
