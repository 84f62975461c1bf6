"""A partial file is continued only with bytes of the same version, and kept when the disk is full."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from bert.errors import ResourceError
from data.fetch.connection import Unavailable
from data.fetch.part_file import PartFile
from tests import hostile
from tests.downloads import BODY, QUICK, fetch, file, names, whole
from tests.hostile import Site


def test_a_new_process_resumes_what_an_old_one_left(site: Site, tmp_path: Path) -> None:
    site.faults["/a.bin"] = [hostile.cut(0.37)] * QUICK.tries
    site.faults["/a.bin"][1:] = [hostile.status(503)] * (QUICK.tries - 1)
    with pytest.raises(Unavailable, match=r"503.*6 times"):
        fetch(tmp_path, file(site))
    assert names(tmp_path) == ["a.bin.part", "a.bin.part.json"]
    fetch(tmp_path, file(site))
    assert whole(tmp_path) and site.asked("Range")[-1] == f"bytes={int(len(BODY) * 0.37)}-"


@pytest.mark.parametrize("faults", [[], [hostile.rest_of_any_version]], ids=["heeds If-Range", "ignores If-Range"])
def test_parts_of_two_versions_are_never_joined(site: Site, tmp_path: Path, faults: list[hostile.Fault]) -> None:
    def change() -> None:
        site.files["/a.bin"] = BODY

    old = site.files["/a.bin"] = bytes(len(BODY))
    site.faults["/a.bin"] = [hostile.cut(0.37, change), *faults]
    fetch(tmp_path, file(site, digests={}))  # no checksum would have told
    assert whole(tmp_path)
    assert site.asked("If-Range")[1] == hostile.etag(old)


@pytest.mark.parametrize("version", ["", 'W/"1"'])
def test_without_a_strong_word_on_the_version_only_a_checksum_allows_to_resume(
    site: Site, tmp_path: Path, version: str
) -> None:
    site.faults["/a.bin"] = [hostile.cut(0.37, version=version)]
    fetch(tmp_path / "unknown", file(site, digests={}))
    site.faults["/a.bin"] = [hostile.cut(0.37, version=version), hostile.rest_of_any_version]
    fetch(tmp_path / "known", file(site))
    assert whole(tmp_path / "unknown") and whole(tmp_path / "known")
    assert [bool(asked) for asked in site.asked("Range")][:2] == [False, False]


def test_a_part_longer_than_the_file_is_begun_anew(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(BODY + b"more")
    fetch(tmp_path, file(site))
    assert whole(tmp_path)


@pytest.mark.parametrize("note", ["", "[1]", '{"url": 3}', "\0"])
def test_a_damaged_note_beside_a_part_costs_a_new_beginning_at_most(site: Site, tmp_path: Path, note: str) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"wrong")
    (tmp_path / "a.bin.part.json").write_text(note)
    fetch(tmp_path, file(site, digests={}))
    assert whole(tmp_path)


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_keeps_the_part_for_later(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    append: Callable[[PartFile, bytes], None] = PartFile.append

    def full(part: PartFile, chunk: bytes) -> None:
        append(part, chunk[:100_003])
        raise OSError(reason, "full")

    with monkeypatch.context() as patch:
        patch.setattr(PartFile, "append", full)
        with pytest.raises(ResourceError, match="more bytes are needed"):
            fetch(tmp_path, file(site))
    assert "a.bin.part" in names(tmp_path)
    fetch(tmp_path, file(site))
    assert whole(tmp_path) and site.asked("Range")[1]
