"""Files over HTTP, from a real server that misbehaves: right and whole in the end, or not there and said why."""

import hashlib
import shutil
import time
from collections import namedtuple
from pathlib import Path

import pytest

from bert.errors import IntegrityError, ResourceError
from data.fetch import transfer
from data.fetch.connection import Unavailable
from tests import hostile
from tests.downloads import BODY, QUICK, SHA256, fetch, file, names, whole
from tests.hostile import Site


def test_a_file_arrives_with_its_hash_and_says_who_asked(site: Site, tmp_path: Path) -> None:
    assert fetch(tmp_path, file(site, size=len(BODY))) == transfer.FetchedFile(len(BODY), SHA256)
    assert whole(tmp_path)
    assert site.asked("User-Agent") == ["test/1 (nobody@example.org)"]


def test_a_cut_file_is_resumed_where_it_ended(site: Site, tmp_path: Path) -> None:
    site.faults["/a.bin"] = [hostile.cut(0.37)]
    fetch(tmp_path, file(site))
    assert whole(tmp_path)
    assert site.asked("Range") == [None, f"bytes={int(len(BODY) * 0.37)}-"]
    assert site.asked("If-Range") == [None, hostile.etag(BODY)]


def test_a_server_that_ignores_ranges_sends_all_of_it_again(site: Site, tmp_path: Path) -> None:
    site.faults["/a.bin"] = [hostile.cut(0.37), hostile.whole]
    fetch(tmp_path, file(site))
    assert whole(tmp_path) and site.asked("Range")[1]


def test_a_length_longer_than_the_body_never_makes_a_file(site: Site, tmp_path: Path) -> None:
    site.faults["/a.bin"] = [hostile.promise(len(BODY) + 10)] * 99
    with pytest.raises(Unavailable, match=r"broke|ended"):
        fetch(tmp_path, file(site, digests={}))
    assert "a.bin" not in names(tmp_path)


def test_a_length_that_was_not_published_is_another_file(site: Site, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="300,007 bytes, but 300,009 were published"):
        fetch(tmp_path, file(site, size=len(BODY) + 2))
    with pytest.raises(IntegrityError, match="at most 299,999"):
        fetch(tmp_path, file(site, limit=299_999))
    assert not names(tmp_path)


def test_bodies_without_a_length_need_marked_ends(site: Site, tmp_path: Path) -> None:
    site.faults["/a.bin"] = [hostile.chunked(0.37), hostile.chunked()]
    fetch(tmp_path, file(site, digests={}))
    assert whole(tmp_path)
    site.faults["/a.bin"] = [hostile.chunked()]
    with pytest.raises(IntegrityError, match="more than 1,000 bytes"):
        fetch(tmp_path / "b", file(site, digests={}, limit=1000))
    site.faults["/a.bin"] = [lambda handler, _: handler.head(200, Connection="close")]
    with pytest.raises(Unavailable, match="does not give the file's size"):
        fetch(tmp_path / "c", file(site, digests={}))
    site.faults["/a.bin"] = [lambda handler, _: handler.head(200, Content_Length=9, Content_Encoding="gzip")]
    with pytest.raises(Unavailable, match="compresses"):
        fetch(tmp_path / "c", file(site, digests={}))
    assert not names(tmp_path / "b") and not names(tmp_path / "c")


def test_a_server_that_sends_less_than_the_rest_is_asked_again(site: Site, tmp_path: Path) -> None:
    def some(handler: hostile.Handler, body: bytes) -> None:
        begin = int(handler.headers["Range"][len("bytes=") : -1])
        place = f"bytes {begin}-{begin + 9_999}/{len(body)}"
        handler.head(206, Content_Length=10_000, Content_Range=place, ETag=hostile.etag(body))
        handler.wfile.write(body[begin : begin + 10_000])

    site.faults["/a.bin"] = [hostile.cut(0.37), some, some]
    fetch(tmp_path, file(site, digests={}))
    assert whole(tmp_path) and site.asked("Range")[-1] == "bytes=131002-"


@pytest.mark.parametrize("trust, remedy", [("pinned", "fetch it again"), ("first use", "changed since")])
def test_a_wrong_checksum_never_gets_the_name(site: Site, tmp_path: Path, trust: str, remedy: str) -> None:
    with pytest.raises(IntegrityError, match=rf"a\.bin\.bad: sha1 is .*, not 00.* \({trust}\); .*{remedy}"):
        fetch(tmp_path, file(site, digests={"sha1": "00" * 20}, trust=trust))
    assert names(tmp_path) == ["a.bin.bad"]


def test_a_file_carried_here_by_hand_is_checked_and_not_fetched(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(BODY)
    assert fetch(tmp_path, file(site, size=len(BODY))).sha256 == SHA256
    (tmp_path / "a.bin").write_bytes(BODY[:-1])
    with pytest.raises(IntegrityError, match="bytes, but"):
        fetch(tmp_path, file(site, size=len(BODY), digests={}))
    assert not site.requests and names(tmp_path) == ["a.bin.bad"]


def test_the_next_mirror_takes_over_what_a_broken_one_left(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirrors = tuple(f"{site.url}/{name}/a.bin" for name in ("gone", "damaged", "dies", "good"))
    site.files |= {"/damaged/a.bin": b"x" * len(BODY), "/dies/a.bin": BODY, "/good/a.bin": BODY}
    site.faults["/dies/a.bin"] = [hostile.cut(0.37)] + [hostile.status(500)] * 99
    fetch(tmp_path, file(site, mirrors=mirrors, size=len(BODY)))
    assert (tmp_path / "a.bin").read_bytes() == BODY and names(tmp_path) == ["a.bin", "a.bin.bad"]
    assert site.requests[-1][1]["Range"] == f"bytes={int(len(BODY) * 0.37)}-"
    said = capsys.readouterr().err
    assert said.count("trying 127.0.0.1") == 3 and "404" in said and "sha256" in said
    site.files["/good/a.bin"] = b"y" * len(BODY)
    with pytest.raises(IntegrityError):
        fetch(tmp_path / "b", file(site, mirrors=mirrors, size=len(BODY)))


def test_two_connections_at_most_and_each_file_once(site: Site, tmp_path: Path) -> None:
    wanted = []
    for number in range(9):
        site.files[f"/{number}"] = body = bytes([number]) * 50_000
        site.faults[f"/{number}"] = [hostile.after(0.01)]
        wanted.append(
            file(
                site, name=f"deep/{number}", url=f"{site.url}/{number}", digests={"md5": hashlib.md5(body).hexdigest()}
            )
        )
    seen: list[str] = []
    transfer.Client("test", 2, QUICK).fetch_all(wanted, tmp_path, lambda file, got: seen.append(file.name))
    assert sorted(seen) == [f"deep/{number}" for number in range(9)] and len(site.requests) == 9
    assert site.most_open == 2


def test_the_first_failure_ends_the_others(site: Site, tmp_path: Path) -> None:
    site.files |= {f"/{number}": BODY for number in range(50)}
    wanted = [file(site, name="missing", url=f"{site.url}/missing")]
    wanted += [file(site, name=str(number), url=f"{site.url}/{number}") for number in range(50)]
    site.faults["/0"] = [hostile.status(503, Retry_After=29)]
    begin = time.monotonic()
    client = transfer.Client("test", 2, QUICK)
    with pytest.raises(Unavailable, match="404"):
        client.fetch_all(wanted, tmp_path, lambda file, got: None)
    assert len(site.requests) < 40 and time.monotonic() - begin < 28
    assert client.read(f"{site.url}/1", 1 << 20) == BODY  # and it is still of use


def test_pages_are_bounded_too(site: Site) -> None:
    client = transfer.Client("test", 2, QUICK)
    site.faults["/a.bin"] = [hostile.cut(0.37)]
    assert client.read(f"{site.url}/a.bin", len(BODY)) == BODY
    with pytest.raises(Unavailable, match="more than 1,000"):
        client.read(f"{site.url}/a.bin", 1000)


def test_too_small_a_disk_is_said_before_anything_is_fetched(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 1000))
    with pytest.raises(ResourceError, match=r"67,408,871 bytes are needed, 1,000 are free"):
        fetch(tmp_path, file(site))
    assert not names(tmp_path)
