"""An output has hidden files of its own, is written where a link points, and is refused if it cannot be renamed."""

import multiprocessing
import os
from pathlib import Path

import pytest

from bert.core import outputs
from bert.core.errors import UsageError
from bert.core.workspace import Workspace, target

NAMES = ["seq", "seq.cased", "wiki1", "wiki[1]", "wiki*", "a", "a.partial", "seq.0123456789ab", "\u00e9", "-", "lock"]


def build(folder: Path, text: str = "one", **parameters: int) -> None:
    def make(partial: Path) -> outputs.StageResult:
        (partial / "out.txt").write_text(text)
        return outputs.StageResult(counts={})

    outputs.build(folder, stage="test", parameters=parameters, inputs=[], make=make)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_no_output_touches_the_hidden_files_of_another(name: str, tmp_path: Path) -> None:
    works = {}
    for other in NAMES:
        with Workspace(tmp_path / other).locked(), Workspace(tmp_path / other).work("0123456789ab") as work:
            (work.output / "half").write_text(other)
            works[other] = work
    build(tmp_path / name)
    assert (tmp_path / name / "out.txt").exists() and not works[name].output.exists()
    assert all((work.output / "half").read_text() == other for other, work in works.items() if other != name)


def test_the_name_of_hidden_files_is_no_output(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unfinished outputs"):
        build(tmp_path / ".seq.partial")


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    for place in ("there", "not-yet"):
        link = tmp_path / f"to-{place}"
        link.symlink_to(f"disk/{place}")
        for text, size in (("one", 1), ("two", 2)):
            build(link, text, size=size)
            assert link.is_symlink() and (tmp_path / "disk" / place / "out.txt").read_text() == text
    assert names(tmp_path / "disk") == ["not-yet", "there"]
    assert names(tmp_path) == ["disk", "to-not-yet", "to-there"]


def test_a_loop_of_links_and_a_long_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("loop", "x" * 250, "x" * 300):
        with pytest.raises(UsageError, match="cannot be written"):
            build(tmp_path / name)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "sub/..", "../..", "sub/."])
def test_the_current_folder_and_those_above_it_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / ("sub" if name == "sub/." else ""))
    with pytest.raises(UsageError, match="is the current folder or above it"):
        target(Path(name) if name != "sub/." else Path("../sub/."))
    assert names(tmp_path) == ["here"]


def test_a_mounted_folder_is_refused() -> None:
    with pytest.raises(UsageError, match="a disk is mounted there"):
        build(Path("/proc"))


@pytest.mark.parametrize("parent", ["/proc", "/proc/self", "/dev/null", "file", "file/below"])
def test_a_parent_that_cannot_be_written_is_refused(parent: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match=r"cannot be written .*; choose another output folder"):
        build(tmp_path / parent / "out")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_cannot_be_renamed_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(source: Path, to: Path) -> None:
        raise OSError(16, "Device or resource busy", str(source))

    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os, "replace", busy)
    with pytest.raises(UsageError, match=r"cannot be replaced \(Device or resource busy\)"):
        outputs.build(tmp_path / "out", stage="test", parameters={}, inputs=[], make=lambda partial: 1 / 0)  # type: ignore
    assert names(tmp_path) == ["out"]


def test_links_in_place_of_hidden_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("mine")
    (tmp_path / ".out.partial").symlink_to("victim")
    with pytest.raises(UsageError, match="cannot be written"):
        build(tmp_path / "out")
    (tmp_path / ".out.partial").unlink()
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial" / "lock").symlink_to("../victim/file")
    with pytest.raises(UsageError, match="cannot be written"):
        build(tmp_path / "out")
    (tmp_path / ".out.partial" / "lock").unlink()
    (tmp_path / ".out.partial" / "0123456789ab").symlink_to("../victim")
    build(tmp_path / "out")
    assert (tmp_path / "victim" / "file").read_text() == "mine"
    assert names(tmp_path) == ["out", "victim"]


def test_an_output_whose_replacement_was_interrupted_comes_back(tmp_path: Path) -> None:
    build(tmp_path / "out", "one", size=1)
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / "out").rename(tmp_path / ".out.partial" / "previous")
    build(tmp_path / "out", "never written", size=1)  # is up to date again
    assert (tmp_path / "out" / "out.txt").read_text() == "one"
    assert names(tmp_path) == ["out"]


def test_live_work_for_other_parameters_is_not_removed(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "out")
    with space.locked():
        using = space.work("0123456789ab")
        work = using.__enter__()
    with pytest.raises(UsageError, match="another process makes it from other inputs"):
        build(tmp_path / "out")
    assert work.output.exists()
    using.__exit__(None, None, None)
    build(tmp_path / "out")
    assert names(tmp_path) == ["out"]


ROUNDS, PROCESSES = 60, 16


def _take_turns(folder: Path) -> None:
    """Hold the lock many times; fail if another process holds it at the same time."""
    for _ in range(ROUNDS):
        with Workspace(folder / "out").locked():
            os.close(os.open(folder / "held", os.O_CREAT | os.O_EXCL))
            os.unlink(folder / "held")


@pytest.mark.slow
def test_many_processes_take_the_lock_in_turn(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_take_turns, args=(tmp_path,)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert names(tmp_path) == []
