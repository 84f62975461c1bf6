"""Parts are read as they were written, damage is named by line, and a sample is even."""

import json
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import pre_tokenizers

from bert.core import files
from bert.core.errors import IntegrityError
from data.pipeline import document_files


def part(path: Path) -> document_files.Part:
    return document_files.Part(path, files.sha256(path))


def test_records_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_files, "PART_BYTES", 100)
    records = [{"id": f"r:{number}", "text": "caf\u00e9\n" * number} for number in range(23)]
    with document_files.Writer(tmp_path) as writer:
        sizes = [writer.write(record) for record in records]
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == list(writer.records) and len(paths) > 9
    assert sum(sizes) == sum(path.stat().st_size for path in paths)
    written = [part(path) for path in paths]
    assert [record for path in written for record in document_files.read_records(path, "text")] == records
    assert [len(list(document_files.read_records(path, "text"))) for path in written] == list(writer.records.values())


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert document_files.encode({"text": "a\ud800b?"}) == '{"text": "a\ufffdb?"}\n'.encode()


@pytest.mark.parametrize("line", [b"{", b"[1]", b"\xff", b"[" * 9999])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "part").write_bytes(b'{"text": ""}\n' + line + b"\n")
    with pytest.raises(IntegrityError, match=r"part: line 2 is not"):
        list(document_files.read_records(part(tmp_path / "part"), "text"))


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[list[document_files.Part], list[bytes]]:
    """Seven parts, one of them empty, with a hundred lines each of very different lengths, and all lines."""
    draw, found, rows = random.Random(3), [], []
    for number in range(7):
        lines = [
            document_files.encode({"text": f"{number}-{n}" + "x" * draw.choice([1, 30, 2000])})
            for n in range(100 * (number != 3))
        ]
        (tmp_path / f"{number}").write_bytes(b"".join(lines))
        found.append(part(tmp_path / f"{number}"))
        rows += lines
    return found, rows


def names(records: Iterable[dict[str, Any]]) -> list[str]:
    return [record["text"].rstrip("x") for record in records]


def test_what_is_not_larger_than_a_sample_is_read_whole_and_verified(
    corpus: tuple[list[document_files.Part], list[bytes]],
) -> None:
    found, rows = corpus
    size = sum(map(len, rows))
    assert names(document_files.sample(found, size, "text")) == names(map(json.loads, rows))
    content = found[2].path.read_bytes()
    found[2].path.write_bytes(content.replace(b"xx", b"xy", 1))
    with pytest.raises(IntegrityError):
        list(document_files.sample(found, size, "text"))


@pytest.mark.parametrize("share", [0.9, 0.3, 0.05])
def test_a_sample_has_the_documents_that_begin_in_windows_at_equal_distances(
    corpus: tuple[list[document_files.Part], list[bytes]], share: float
) -> None:
    """The oracle knows where each line begins in all parts together."""
    found, rows = corpus
    size = sum(map(len, rows))
    limit = int(share * size)
    window = max(1, min(1 << 14, limit // 64))
    count = limit * 9 // 10 // window
    begins = [number * size // count for number in range(count)]
    expected, place, left = [], 0, limit
    for row in rows:
        if any(begin <= place < begin + window for begin in begins):
            if len(row) > left:
                break
            expected.append(row)
            left -= len(row)
        place += len(row)
    chosen = names(document_files.sample(found, limit, "text"))
    assert chosen == names(map(json.loads, expected)) and chosen[0] == "0-0"
    assert 0.6 * limit < sum(map(len, expected)) <= limit
    assert {name[0] for name in chosen} >= set("01245")


def test_a_first_document_that_is_larger_than_the_sample_is_its_only_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(document_files.encode({"text": "x" * 999}) + document_files.encode({"text": "y"}) * 99)
    assert [len(record["text"]) for record in document_files.sample([part(tmp_path / "a")], 100, "text")] == [999]


def test_the_cost_of_a_sample_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    def read() -> int:
        return int(re.findall(r"rchar: (\d+)", Path("/proc/self/io").read_text())[0])

    costs = []
    for copies in (2, 20):
        (tmp_path / "a").write_bytes(document_files.encode({"text": "x" * 2000}) * 200 * copies)
        found, before = [part(tmp_path / "a")], read()
        assert list(document_files.sample(found, 100_000, "text"))
        costs.append(read() - before)
    assert costs[1] < 2 * costs[0] < 4_000_000 < (tmp_path / "a").stat().st_size


def test_a_damaged_line_of_a_sample_is_named(tmp_path: Path) -> None:
    lines = [document_files.encode({"text": "x" * 99})] * 500
    lines[300] = b"{" + lines[300]
    (tmp_path / "a").write_bytes(b"".join(lines))
    with pytest.raises(IntegrityError, match="a: line 301 is not JSON"):
        list(document_files.sample([part(tmp_path / "a")], 50_000, "text"))


def test_pieces_for_a_trainer_have_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_files, "TRAINING_PIECE", 11)
    words = "a  b \n\n c's\tday 17 days\n\u00e9t\u00e9, x\r\ny... end  "
    texts = [words, "", "\u96e8\u3002" * 37, "w " * 99, "\x1c q" * 9]
    pieces = list(document_files.training_pieces(texts))
    assert "".join(pieces) == "".join(texts) and len(pieces) > 20
    for split in (pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.WhitespaceSplit()):
        of_texts, of_pieces = (
            [word for one in some for word in split.pre_tokenize_str(one)] for some in (texts, pieces)
        )
        assert [word for word, _ in of_texts] == [word for word, _ in of_pieces]
