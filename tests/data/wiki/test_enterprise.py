"""Snapshots of Wikimedia Enterprise: the newest version of each article counts, and damage is one line.

The form of the records and the rule for copies are those of enterprise.wikimedia.com/docs/snapshot and its data
dictionary.
"""

import bz2
import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core import rows
from data import wikipedia
from data.wiki import enterprise

PROSE = "The '''river''' of version {} & rises <ref>x</ref> in the [[hill]]s.\n[[Kategorie:Fluss]]"
SHOWN = "The river of version {} & rises in the hills."


def record(number: int, version: int, /, namespace: int = 0, text: str | None = PROSE, **more: Any) -> str:
    body = {"html": "<p>a</p>", **({} if text is None else {"wikitext": text.format(version)})}
    fields = {
        "name": f"River <{number}>",
        "identifier": number,
        "version": {"identifier": version, "comment": "a"},
        "url": f"https://de.wikipedia.org/wiki/River_{number}",
        "namespace": {"name": "", "identifier": namespace},
        "in_language": {"identifier": "de"},
        "is_part_of": {"identifier": "dewiki"},
        "categories": [{"name": "Kategorie:Fluss"}],
        "article_body": body,
    }
    return json.dumps(fields | more) + "\n"


RECORDS = [
    *(record(1, 10), record(7, 22), record(2, 20), record(7, 21), record(3, 30), record(2, 19), record(7, 23)),
    *(record(4, 1, namespace=14), record(5, 1, text="#WEITERLEITUNG [[River]]"), record(6, 1, text=None)),
    record(3, 30),
]
COUNTS = {
    **{"pages": 11, "articles": 4, "empty": 0, "redirects": 1, "other_namespace": 1, "rejected": 0},
    **{"older_versions": 4, "without_wikitext": 1},
}


def archive(members: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content.encode())
            tar.addfile(member, io.BytesIO(content.encode()))
    return packed.getvalue()


MEMBERS = {"dewiki_0.ndjson": "".join(RECORDS[:5]), "readme.txt": "x", "dewiki_1.ndjson": "".join(RECORDS[5:])}
FORMS = {
    "dewiki_namespace_0.tar.gz": gzip.compress(archive(MEMBERS)),
    "dewiki_0.ndjson": "".join(RECORDS).encode(),
    "dewiki.ndjson.bz2": bz2.compress("".join(RECORDS).encode()),
    "dewiki.tar": archive(MEMBERS),
}


@pytest.mark.parametrize("name", [*FORMS, "folder"])
def test_the_newest_version_of_each_article_is_read_and_the_others_are_counted(tmp_path, stage, read, name):
    source = tmp_path / name
    if name == "folder":
        source.mkdir()
        for number in (1, 2):
            chunk = {"a.ndjson": "".join(RECORDS[:5] if number == 1 else RECORDS[5:])}
            (source / f"dewiki_namespace_0_chunk_{number}.tar.gz").write_bytes(gzip.compress(archive(chunk)))
    else:
        source.write_bytes(FORMS[name])
    assert stage("wikipedia", "--source", source, "--output", tmp_path / "out", "--workers", 1)[0] == 0
    found = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert found["counts"] == COUNTS and found["extra"]["language"] == "de"
    versions = {1: 10, 2: 20, 3: 30, 7: 23}
    expected = [{"id": f"wikipedia:de.wikipedia.org:{n}", "text": SHOWN.format(v)} for n, v in versions.items()]
    assert sorted(read(tmp_path / "out"), key=lambda document: document["id"]) == expected


def damaged() -> dict[str, tuple[bytes, str]]:
    tar, packed = FORMS["dewiki.tar"], FORMS["dewiki_namespace_0.tar.gz"]
    second = 512 + -(-len(MEMBERS["dewiki_0.ndjson"].encode()) // 512) * 512  # where the header of the second begins
    flipped = bytearray(tar)
    flipped[second + 148] ^= 1  # its check sum
    lines = "".join(RECORDS).encode()
    return {
        "cut.tar.gz": (packed[:-20], "truncated or damaged"),
        "half.tar.gz": (gzip.compress(tar, 0)[: second - 600], "truncated or damaged"),
        "sum.tar.gz": (packed[:-5] + bytes([packed[-5] ^ 1]) + packed[-4:], "truncated or damaged"),
        "within.tar": (tar[: second - 512], "truncated or damaged"),
        "between.tar": (tar[:second], "truncated or damaged"),
        "header.tar": (tar[: second + 100], "truncated or damaged"),
        "flipped.tar": (bytes(flipped), "truncated or damaged"),
        "other.tar": (archive({"a.txt": "b"}), "no .ndjson in the archive"),
        "cut.ndjson": (lines[:-9], "line 11 is not JSON"),
        "text.ndjson": (b'{"id": 7, "text": "A river."}\n', "line 1 is not an article of Wikimedia Enterprise"),
        "fields.ndjson": (record(1, 1, version=None).encode(), "line 1 has no version.identifier"),
        "large.ndjson": (record(1 << 64, 1).encode(), "line 1 has no version.identifier"),
        "two.ndjson": ((record(1, 1) + record(2, 1, is_part_of={"identifier": "x"})).encode(), "two wikis, dewiki and"),
        "structured.ndjson": (record(1, 1, article_body=None, sections=[]).encode(), "Structured Contents"),
        "dump.xml.7z": (b"7z\xbc\xaf\x27\x1c\0\4", "a 7z archive; unpack it (7z x)"),
        "dump.zip": (b"PK\3\4\x14", "a zip archive; unpack it"),
        "article.json": (f"[{record(1, 1)}]".encode(), "a JSON array; write each of its elements on a line"),
        "page.sql": (b"-- MySQL dump 10.16", "an SQL dump of a table"),
        "train.parquet": (b"PAR1\x15", "Parquet; use python -m data.text"),
        "dump.xml": (gzip.compress(b"<mediawiki>"), "let its name end in .gz"),
    }


@pytest.mark.parametrize("name", list(damaged()))
def test_a_damaged_snapshot_or_another_format_is_one_line_and_leaves_nothing(tmp_path, stage, name):
    content, reason = damaged()[name]
    (tmp_path / name).write_bytes(content)
    code, lines = stage("wikipedia", "--source", tmp_path / name, "--output", tmp_path / "out", "--workers", 1)
    assert (code, len(lines)) == (3, 1) and lines[0].startswith(f"error: {tmp_path / name}: ") and reason in lines[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "remedy"), [("a.ndjson", "data.wikipedia"), ("a.tar.gz", "unpack an archive")])
def test_data_text_says_who_reads_a_snapshot(tmp_path, stage, name, remedy):
    (tmp_path / name).write_text(record(1, 1))
    code, lines = stage("text", "--source", tmp_path / name, "--output", tmp_path / "out")
    assert code == 3 and remedy in lines[0]


def test_the_highest_versions_are_those_of_a_table(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    table = [(int(number), int(version)) for number, version in draw.integers(1, (40, 10**12), size=(99, 2))]
    (tmp_path / "a.ndjson").write_text("".join(record(number, version, text="a") for number, version in table))
    ids = [number for number, _ in table]
    expected = {n: max(version for number, version in table if number == n) for n in ids if ids.count(n) > 1}
    assert enterprise.copies([tmp_path / "a.ndjson"]) == expected


def test_the_stage_names_what_reads_snapshots() -> None:
    assert rows.load(wikipedia.SNAPSHOT_READER) is enterprise.Reader
    assert rows.load(wikipedia.SNAPSHOT_LANGUAGE) is enterprise.language
