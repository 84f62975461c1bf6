"""Sentences of documents: the same for any number of workers, and what is dropped is counted."""

import json

import pytest

from bert.core import manifest

TEXT = (
    "Mr. Ash keeps {n} bees. They fly far, and {n} bees come back to the mill.\nHe sells honey at no. {n} in the back."
)


@pytest.fixture
def sources(folder):
    articles = [{"id": f"wikipedia:{n}", "text": TEXT.format(n=n)} for n in range(120)]
    parts = {f"part-{p:05d}.jsonl": articles[40 * p : 40 * (p + 1)] for p in range(3)}
    odd = ["", " \n ", "* * *", "Too short.", TEXT.format(n=7) + "\u0000\ud83d"]
    books = {"part-00000.jsonl": [{"id": f"books:{n}", "text": text} for n, text in enumerate(odd)]}
    return [folder("wikipedia", "wikipedia", parts), folder("books", "books", books)]


def test_what_is_dropped_is_counted(tmp_path, stage, sources, read):
    assert stage("documents", "--source", *sources, "--output", tmp_path / "out", "--workers", 1)[0] == 0
    counts = json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]
    dropped = {"duplicates": 1, "without a sentence": 2, "too short": 1}  # the second empty one repeats the first
    assert {name: counts[name] for name in dropped} == dropped
    assert counts["documents"] == 121 and counts["read"] == 125
    found = read(tmp_path / "out")
    assert len(found) == 121 and all(set(document) == {"id", "sentences"} for document in found)
    assert found[0]["sentences"] == [
        "Mr. Ash keeps 0 bees.",
        "They fly far, and 0 bees come back to the mill.",
        "He sells honey at no. 0 in the back.",
    ]


def test_the_manifest_names_the_source_of_each_part(tmp_path, stage, sources, folder):
    assert stage("documents", "--source", *sources, "--output", tmp_path / "out", "--workers", 1)[0] == 0
    files = manifest.load(tmp_path / "out").files
    found = [files[f"part-{number:05d}.jsonl"].source for number in range(4)]
    assert found == ["wikipedia"] * 3 + ["books"]
    twin = folder("x/books", "text", {"part-00000.jsonl": [{"id": "t", "text": TEXT.format(n=200)}]})
    assert stage("documents", "--source", sources[1], twin, "--output", tmp_path / "two", "--workers", 1)[0] == 0
    files = manifest.load(tmp_path / "two").files
    assert [files[f"part-{number:05d}.jsonl"].source for number in range(2)] == ["0:books", "1:books"]


@pytest.mark.slow
def test_of_equal_texts_the_first_stays_whoever_meets_it_first(tmp_path, stage, folder, read, contents):
    same = "The caf\u00e9 of Mrs. Ash closes at seven in winter, and at nine in summer when the bees fly late."
    forms = [same, same.replace(" in ", "\n in  "), same.replace("\u00e9", "e\u0301"), same.upper()]
    texts = [TEXT.format(n=1), forms[1], TEXT.format(n=2), forms[0], TEXT.format(n=1), forms[3], forms[2], forms[1]]
    books = {f"part-0000{n}.jsonl": [{"id": f"b{n}", "text": text}] for n, text in enumerate(texts)}
    sources = [
        folder("books", "books", books),
        folder("text", "text", {"part-00000.jsonl": [{"id": "t", "text": same}]}),
    ]
    for workers in (1, 3):
        out = tmp_path / f"out{workers}"
        assert stage("documents", "--source", *sources, "--output", out, "--workers", workers)[0] == 0
    assert contents(tmp_path / "out1") == contents(tmp_path / "out3")
    assert [document["id"] for document in read(tmp_path / "out1")] == ["b0", "b1", "b2", "b5"]
    counts = json.loads((tmp_path / "out1" / "manifest.json").read_text())["counts"]
    assert (counts["read"], counts["documents"], counts["duplicates"]) == (9, 4, 5)


def test_of_two_extractions_of_one_article_the_first_stays(tmp_path, stage, folder, read):
    old, new = (
        [{"id": "wikipedia:7", "text": TEXT.format(n=n)}, {"id": f"b{n}", "text": TEXT.format(n=n + 5)}] for n in (1, 2)
    )
    sources = [folder(name, "wikipedia", {"part-00000.jsonl": made}) for name, made in (("old", old), ("new", new))]
    assert stage("documents", "--source", *sources, "--output", tmp_path / "out", "--workers", 1)[0] == 0
    assert [document["id"] for document in read(tmp_path / "out")] == ["wikipedia:7", "b1", "b2"]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["counts"]["repeated ids"] == 1


def test_given_punkt_parameters_are_used_and_kept(tmp_path, stage, sources, contents):
    first, second = tmp_path / "first", tmp_path / "second"
    assert stage("documents", "--source", *sources, "--output", first, "--workers", 1)[0] == 0
    arguments = ("--source", *sources, "--output", second, "--punkt", first / "punkt", "--workers", 1)
    assert stage("documents", *arguments)[0] == 0
    names = contents(first).keys() - {"manifest.json"}
    assert {name: contents(first)[name] for name in names} == {name: contents(second)[name] for name in names}


def test_wrong_sources_are_refused(tmp_path, stage, folder):
    assert stage("documents", "--source", tmp_path, "--output", tmp_path / "out")[0] == 3  # no manifest
    sentences = folder("documents", "documents", {"part-00000.jsonl": [{"id": "a", "sentences": ["A b."]}]})
    code, lines = stage("documents", "--source", sentences, "--output", tmp_path / "out", "--workers", 1)
    assert (code, len(lines)) == (4, 1) and "part-00000.jsonl: line 1 has no text" in lines[0]
    tiny = folder("tiny", "books", {"part-00000.jsonl": [{"id": "a", "text": "A b."}]})
    code, lines = stage("documents", "--source", tiny, "--output", tmp_path / "out", "--workers", 1)
    assert (code, len(lines)) == (3, 1) and not (tmp_path / "out").exists()
