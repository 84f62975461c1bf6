"""Files are written whole or not at all; text is read from compressed files, and damage is reported."""

import io
from pathlib import Path

import pytest

from bert.errors import InputError
from bert.storage import files


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_json(path, {"b": 1, "a": "\u00e9"})
    before = path.read_bytes()
    with pytest.raises(RuntimeError), files.atomic_write(path) as stream:
        stream.write("half")
        raise RuntimeError
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".bz2", ".gz", ".xz", ""])
def test_text_is_read_from_compressed_files_and_damage_is_named(suffix: str, tmp_path: Path) -> None:
    path, text = tmp_path / f"text{suffix}", "caf\u00e9\n" * 5000
    with files.OPENERS.get(suffix, open)(path, "wt", encoding="utf-8") as stream:
        stream.write(text)
    with files.open_text(path) as stream:
        assert stream.read() == text
    assert files.read_text(path, len(text), "remedy") == text
    with pytest.raises(InputError, match="more than 24,999 characters of text; remedy"):
        files.read_text(path, len(text) - 1, "remedy")
    whole = path.read_bytes()
    path.write_bytes(b"\xff\xfe not this" + whole[3:])
    with pytest.raises(InputError, match=str(path)), files.open_text(path) as stream:
        stream.read()
    path.write_bytes(whole[: len(whole) // 2 + 1])
    if suffix:
        with pytest.raises(InputError, match=str(path)), files.open_text(path) as stream:
            stream.read()
    else:  # a cut plain file is only a shorter one
        with files.open_text(path) as stream:
            assert stream.read() == "caf\u00e9\n" * 2500 + "c"


def test_a_line_that_is_too_long_to_hold_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 5)
    stream = io.StringIO("1234\n\n12345\n")
    lines = files.read_lines(stream, tmp_path)
    assert (next(lines), next(lines)) == ("1234\n", "\n")
    with pytest.raises(InputError, match="line 3 has more than 5 characters"):
        next(lines)
