"""PubMed's XML: the abstract of every citation once, in its last version, and every record is counted."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.pubmed import abstract, pubmed
from tests.pubmed_xml import HEAD, deletion, record, write, xml


def counts(folder: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((folder / "manifest.json").read_text())["counts"]
    return found


STRUCTURED = """
<AbstractText Label="BACKGROUND" NlmCategory="BACKGROUND">Iron (Fe<sup>2+</sup>) &lt; 5 &#181;g,
   in <i>E.
   coli</i>.</AbstractText>
<AbstractText Label="UNLABELLED"><![CDATA[If a < b & c.]]></AbstractText>
<AbstractText Label="EMPTY"> </AbstractText>
<AbstractText>P &amp;lt; 0.05, <mml:math><mml:mi>x</mml:mi></mml:math>\u0085.
   (ABSTRACT TRUNCATED AT 250 WORDS)</AbstractText>
"""


def test_an_abstract_is_a_paragraph_for_each_section_without_markup(tmp_path, stage, read):
    source = write(tmp_path / "pubmed26n0001.xml.gz", record(7, STRUCTURED, title="[On <i>iron</i>.]"))
    assert stage("pubmed", "--source", source, "--output", tmp_path / "a")[0] == 0
    iron = "Iron (Fe2+) < 5 \u00b5g, in E. coli."
    assert read(tmp_path / "a") == [{"id": "pubmed:7", "text": f"{iron}\nIf a < b & c.\nP < 0.05, x ."}]
    more = ("--title", "true", "--labels", "true")
    assert stage("pubmed", "--source", source, "--output", tmp_path / "b", *more)[0] == 0
    assert read(tmp_path / "b")[0]["text"] == f"On iron.\nBACKGROUND: {iron}\nIf a < b & c.\nP < 0.05, x ."


@pytest.mark.slow
def test_each_record_is_counted_and_the_last_version_counts_whatever_the_workers(tmp_path, stage, read, contents):
    folder = tmp_path / "in"
    book = "<PubmedBookArticle><BookDocument><PMID>1</PMID></BookDocument></PubmedBookArticle>"
    first = [record(n, f"<AbstractText>Old {n}.</AbstractText>") for n in (3, 5, 9, 11, 13)]
    write(folder / "z" / "pubmed26n0001.xml.gz", *first, record(2, None), record(4, language="fre"), book)
    newest = record(9, "<AbstractText>Version two.</AbstractText>", version=2)
    write(folder / "z" / "pubmed26n0002.xml", newest, record(11, "<AbstractText>New 11.</AbstractText>"))
    again = record(13, "<AbstractText>Back again.</AbstractText>")
    write(folder / "a" / "pubmed26n0003.xml.gz", record(9), deletion(5, 13, 77), again, record(3, None))
    for workers in (1, 3):
        code, said = stage("pubmed", "--source", folder, "--output", tmp_path / f"out{workers}", "--workers", workers)
        assert code == 0 and len(said) >= 1
    assert contents(tmp_path / "out1") == contents(tmp_path / "out3")
    texts = {document["id"]: document["text"] for document in read(tmp_path / "out1")}
    assert texts == {"pubmed:9": "Version two.", "pubmed:11": "New 11.", "pubmed:13": "Back again."}
    assert counts(tmp_path / "out1") == {
        "citations": 12,
        "articles": 3,
        "earlier versions": 5,
        "deleted": 1,
        "in another language": 1,
        "without an abstract": 2,
        "chapters of books": 1,
    }


def test_other_languages_are_kept_on_request(tmp_path, stage, read):
    source = write(tmp_path / "a.xml", record(4, language="fre"), record(5), record(6, language="FRE"))
    for language, pmids in (("fre", [4, 6]), ("all", [4, 5, 6]), ("eng", [5])):
        out = tmp_path / language
        assert stage("pubmed", "--source", source, "--output", out, "--language", language)[0] == 0
        assert [document["id"] for document in read(out)] == [f"pubmed:{pmid}" for pmid in pmids]
    assert stage("pubmed", "--source", source, "--output", tmp_path / "ger", "--language", "ger")[0] == 3
    assert stage("pubmed", "--source", source, "--output", tmp_path / "x", "--language", "english")[0] == 2


BOMB = '<!DOCTYPE PubmedArticleSet [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>'
GOOD = xml(record(1), record(2)).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (GOOD[: GOOD.rindex(b"</PubmedArticle>")], "inside a record"),
        (GOOD[: GOOD.rindex(b"</PubmedArticleSet>")], "between records"),
        (GOOD.replace(b"<PMID Version", b"<PM Version"), "no PMID"),
        (GOOD.replace(b"</ArticleTitle>", b""), "PMID 1 is not well-formed XML"),
        (GOOD.replace(b"stones", b"st\xffnes"), "PMID 1 is not well-formed XML"),
        (GOOD.replace(b"stones", b"&bomb;"), "PMID 1 is not well-formed XML"),
        (BOMB.encode() + GOOD[len(HEAD) :], "declares entities"),
        (b"<mediawiki>" + b" " * 3_000_000, "not XML of PubMed"),
        (GOOD.replace(b"PubmedArticleSet", b"MedlineCitationSet"), "not XML of PubMed"),
        (b"", "not XML of PubMed"),
        (xml().encode(), "no abstract"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, stage, content, reason):
    (tmp_path / "in.xml").write_bytes(content)
    code, said = stage("pubmed", "--source", tmp_path / "in.xml", "--output", tmp_path / "out")
    assert (code, len(said)) == (3, 1) and reason in said[0] and "in.xml" in said[0]
    assert not (tmp_path / "out").exists()


def test_a_folder_without_pubmed_is_refused(tmp_path, stage):
    (tmp_path / "in").mkdir()
    for source in ("in", "none"):
        code, said = stage("pubmed", "--source", tmp_path / source, "--output", tmp_path / "out")
        assert (code, len(said)) == (3, 1) and source in said[0]


EVENTS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3), st.booleans()), max_size=13)


@given(EVENTS)
def test_the_last_of_the_highest_version_decides(events):
    found = np.array([(pmid << 16) + (version << 1) + gone for pmid, version, gone in events], np.uint64)
    decides: dict[int, int] = {}
    for number, (pmid, version, _) in enumerate(events):
        if pmid not in decides or version >= events[decides[pmid]][1]:
            decides[pmid] = number
    expected = [
        pubmed.DELETED if events[decides[pmid]][2] else (pubmed.SUPERSEDED, pubmed.LAST)[decides[pmid] == number]
        for number, (pmid, _, _) in enumerate(events)
    ]
    assert pubmed.verdicts(found).tolist() == expected


def test_powers_and_bold_headings_are_told_from_the_words_before_them() -> None:
    text = (
        "We gave 10<sup>6</sup> cells in 2<sup>-3</sup> ml of H<sub>2</sub>O, Fe<sup>2+</sup>.<b>RESULTS</b>All lived."
    )
    content = (
        f"<PubmedArticle><MedlineCitation><Article><Abstract><AbstractText>{text}</AbstractText></Abstract></Article>"
    )
    article = abstract.parse(f"{content}</MedlineCitation></PubmedArticle>".encode())
    assert article.sections == [("", "We gave 10^6 cells in 2^-3 ml of H2O, Fe2+. RESULTS All lived.")]
