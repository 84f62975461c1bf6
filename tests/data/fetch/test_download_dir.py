"""The folder of a download: what is recorded, reused, refused, listed and removed."""

from pathlib import Path

import pytest

from bert.core.errors import IntegrityError
from data.fetch.connection import Unavailable
from data.fetch.download_dir import RECORD, URL_LIST, DownloadDir
from data.fetch.transfer import Client
from tests.downloads import BODY, QUICK, SHA256, file, names
from tests.hostile import Site


def opened(tmp_path: Path) -> DownloadDir:
    return DownloadDir(tmp_path / "out", Client("test", policy=QUICK))


def test_a_file_without_a_published_hash_must_stay_what_it_was_first(site: Site, tmp_path: Path) -> None:
    unpublished = file(site, digests={})
    first = opened(tmp_path)
    first.fetch([unpublished])
    assert first.sources["a.bin"] == {"url": unpublished.url, "bytes": 300_007, "sha256": SHA256, "trust": "first use"}
    assert (first.folder / RECORD).read_text() == f'{{"name": "a.bin", "sha256": "{SHA256}"}}\n'
    (first.folder / "a.bin").unlink()
    site.files["/a.bin"] = BODY[::-1]
    with pytest.raises(IntegrityError, match="changed since"):
        opened(tmp_path).fetch([unpublished])
    site.files["/a.bin"] = BODY
    again = opened(tmp_path)
    again.fetch([unpublished])
    again.reject("a.bin")
    site.files["/a.bin"] = BODY[::-1]
    opened(tmp_path).fetch([unpublished])  # the record of a rejected file is gone


def test_what_is_missing_is_listed_with_address_and_target(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [file(site), *(file(site, name=f"b{n}", url=f"{site.url}/b{n}") for n in range(20))]
    download_dir = opened(tmp_path)
    with pytest.raises(Unavailable, match="404"):
        download_dir.fetch(wanted)
    lines = (download_dir.folder / URL_LIST).read_text().splitlines()
    assert lines[-1] == f"{site.url}/b19\t{download_dir.folder / 'b19'}" and len(lines) >= 20
    said = capsys.readouterr().err
    assert lines[0] in said and lines[-1] not in said and "more, all in" in said


def test_only_what_the_download_wrote_is_removed(site: Site, tmp_path: Path) -> None:
    download_dir = opened(tmp_path)
    download_dir.fetch([file(site, name="deep/a.bin")])
    (download_dir.folder / "mine.txt").touch()
    assert (download_dir.folder / RECORD).exists()
    download_dir.remove(download_dir.sources)
    assert names(download_dir.folder) == ["mine.txt"]
    (download_dir.folder / "mine.txt").unlink()
    download_dir.remove([])
    assert not download_dir.folder.exists()
