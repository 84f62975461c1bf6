"""Many files are read at any place, with as many of them open as the process may have."""

import os
import resource
from pathlib import Path

import pytest

from bert.core import random_access
from bert.core.errors import IntegrityError
from bert.core.random_access import RandomAccess


def open_below(folder: Path) -> int:
    links = (os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return sum(link.startswith(str(folder)) for link in links)


def test_any_order_of_reads_with_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_access, "has_room", lambda count: count < 3)
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


def test_the_soft_limit_is_raised_to_the_hard_one_and_half_of_it_is_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [100, 370]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, new: limits.__setitem__(slice(None), new))
    assert [random_access.has_room(count) for count in (49, 50, 99)] == [True, True, True] and limits == [200, 370]
    assert [random_access.has_room(count) for count in (100, 184, 185)] == [True, True, False] and limits == [370, 370]

    def refuse(kind: int, new: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    limits[:] = [100, 370]
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert not random_access.has_room(50)


def test_files_are_closed_with_their_reader(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    disk = RandomAccess()
    assert disk.read(tmp_path / "a", 2, 1) == b"23" and open_below(tmp_path) == 1
    del disk
    assert open_below(tmp_path) == 0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="a: the file is missing; build the folder again, or copy it to every"):
        RandomAccess().read(tmp_path / "a", 3, 3)
