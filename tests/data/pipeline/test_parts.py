"""Parts are read as they were written, damage is named by line, and a sample is even."""

from pathlib import Path

import pytest
from tokenizers import pre_tokenizers

from bert.core import files
from bert.core.errors import IntegrityError
from data.pipeline import parts


def part(path: Path) -> parts.Part:
    return parts.Part(path, files.sha256(path))


def test_records_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 100)
    records = [{"id": f"r:{number}", "text": "caf\u00e9\n" * number} for number in range(23)]
    with parts.Writer(tmp_path) as writer:
        sizes = [writer.write(record) for record in records]
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == list(writer.records) and len(paths) > 9
    assert sum(sizes) == sum(path.stat().st_size for path in paths)
    written = [part(path) for path in paths]
    assert [record for path in written for record in parts.read_records(path, "text")] == records
    assert [len(list(parts.read_records(path, "text"))) for path in written] == list(writer.records.values())


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert parts.encode({"text": "a\ud800b"}) == b'{"text": "a?b"}\n'


@pytest.mark.parametrize("line", [b"{", b"[1]", b"\xff", b"[" * 9999])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "part").write_bytes(b'{"text": ""}\n' + line + b"\n")
    with pytest.raises(IntegrityError, match=r"part: line 2 is not"):
        list(parts.read_records(part(tmp_path / "part"), "text"))


def test_a_sample_is_spread_evenly_over_all_parts(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for first, path in zip((0, 50), paths, strict=True):
        path.write_bytes(b"".join(parts.encode({"text": str(n)}) for n in range(first + 100, first + 150)))
    size = sum(path.stat().st_size for path in paths)
    found = parts.sample([part(path) for path in paths], size // 7, "text")
    assert [record["text"] for record in found] == list(map(str, range(100, 200, 8)))
    assert len(list(parts.sample([part(path) for path in paths], 10 * size, "text"))) == 100


def test_pieces_for_a_trainer_have_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "TRAINING_PIECE", 11)
    words = "a  b \n\n c's\tday 17 days\n\u00e9t\u00e9, x\r\ny... end  "
    texts = [words, "", "\u96e8\u3002" * 37, "w " * 99, "\x1c q" * 9]
    pieces = list(parts.training_pieces(texts))
    assert "".join(pieces) == "".join(texts) and len(pieces) > 20
    for split in (pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.WhitespaceSplit()):
        of_texts, of_pieces = (
            [word for one in some for word in split.pre_tokenize_str(one)] for some in (texts, pieces)
        )
        assert [word for word, _ in of_texts] == [word for word, _ in of_pieces]
