"""Files are written whole or not at all; text is read from compressed files, and damage is reported."""

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
