"""Many files are read at any place, with few of them open."""

import os
from pathlib import Path

import pytest

from bert.core import random_access
from bert.core.errors import IntegrityError
from bert.core.random_access import RandomAccess


def open_below(folder: Path) -> int:
    links = (os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return sum(link.startswith(str(folder)) for link in links)


def test_any_order_of_reads_with_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_access, "MAX_OPEN", 3)
    contents = {tmp_path / f"{number}": bytes(range(number, number + 50)) for number in range(7)}
    for path, content in contents.items():
        path.write_bytes(content)
    disk = RandomAccess()
    for turn in range(40):
        path = tmp_path / f"{turn * 5 % 7}"
        assert disk.read(path, turn % 11, turn) == contents[path][turn : turn + turn % 11]
        assert open_below(tmp_path) <= 3


def test_a_file_that_ends_too_early_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    with pytest.raises(IntegrityError, match="a: truncated at byte 5; build it again"):
        RandomAccess().read(tmp_path / "a", 3, 3)
