"""Damaged files of PubMed: each is read or refused with one line, and every citation is listed before it is read."""

import gzip
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import example, given

from bert.core.errors import InputError
from data.citations.reader import Citation, Reader
from data.pubmed import Settings, SurveyTask, _document, survey
from tests.properties import mutations
from tests.properties.fuzz import fuzz
from tests.pubmed_xml import deletion, record, xml

PLAIN = (
    xml(record(1), record(2, None), record(3, "<AbstractText>A <i>b</i> &#8211;</AbstractText>"), deletion(4)).encode(),
    xml(record(5, '<AbstractText Label="AIM">Caf\u00e9 \U0001f41d.</AbstractText>', title="[Two].")).encode(),
)
TAGS = (b"<PubmedArticle>", b"</PubmedArticle>", b"<PMID Version='1'>", b"</PMID>", b"<DeleteCitation>", b"<![CDATA[")
MORE = (
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    b"&b;",
    b"</PubmedArticleSet>",
    b"<a xmlns:b=''>",
    b"<AbstractText Label=''>",
)
DEEP = b"<i>" * 200_000


def read(content: bytes, suffix: str = "") -> list[Citation] | None:
    """Return the citations of a file, or None if it is refused. Parse each of them."""
    with tempfile.TemporaryDirectory(prefix="pubmed") as folder:
        path = Path(folder) / f"pubmed.xml{suffix}"
        path.write_bytes(content)
        try:
            reader = Reader(path)
            found = list(reader.citations())
            for one in found:
                if one.content is not None:
                    _document(one, Settings(True, True, "all", b""), Counter(), path).encode()
        except InputError as error:
            assert str(path) in str(error) and len(str(error)) < 1000
            return None
        assert len(survey(SurveyTask(path, None))) == 8 * len(found)
    return found


def test_the_files_to_damage_are_good() -> None:
    assert [len(read(content) or []) for content in PLAIN] == [4, 1]
    assert [len(read(gzip.compress(content), ".gz") or []) for content in PLAIN] == [4, 1]


@fuzz
@given(mutations.damaged(PLAIN, (*TAGS, *MORE)))
@example(PLAIN[0].replace(b"Moss", DEEP))
@example(PLAIN[0].replace(b"Moss", DEEP + b"Moss" + b"</i>" * 200_000))
@example(PLAIN[0].replace(b"Moss", b"&amp;#" + b"9" * 5000 + b";"))
def test_a_damaged_file_is_read_or_refused(content: bytes) -> None:
    read(content)


@fuzz
@given(mutations.damaged([gzip.compress(content) for content in PLAIN]))
def test_a_damaged_compressed_file_is_read_or_refused(content: bytes) -> None:
    read(content, ".gz")
