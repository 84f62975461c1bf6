"""Files over HTTP, from a real server that misbehaves: right and whole in the end, or not there and said why."""

import errno
import hashlib
import random
import shutil
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bert.errors import IntegrityError, ResourceError
from data.fetch import connection, transfer
from data.fetch.connection import RetryPolicy, Unavailable
from data.fetch.part_file import PartFile
from tests import hostile
from tests.hostile import Site

BODY = random.Random(7).randbytes(300_007)
SHA256 = hashlib.sha256(BODY).hexdigest()
QUICK = RetryPolicy(backoff=0.002, max_retry_after=30)


@pytest.fixture
def site() -> Iterator[Site]:
    with Site().running() as running:
        running.files["/a.bin"] = BODY
        yield running


def file(site: Site, **changes: object) -> transfer.File:
    fields = {"name": "a.bin", "url": f"{site.url}/a.bin", "limit": 1 << 20, "digests": {"sha256": SHA256}} | changes
    return transfer.File(**fields)  # type: ignore[arg-type]


def fetch(folder: Path, wanted: transfer.File, policy: RetryPolicy = QUICK) -> transfer.FetchedFile:
    return transfer.Client("test/1 (nobody@example.org)", policy=policy).fetch(wanted, folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def whole(folder: Path) -> bool:
    """The file is there, and nothing beside it."""
    return names(folder) == ["a.bin"] and (folder / "a.bin").read_bytes() == BODY


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client would have waited; it does not."""
    waited: list[float] = []
    monkeypatch.setattr(connection.Connections, "pause", lambda self, seconds: waited.append(seconds))
    return waited


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


def test_a_new_process_resumes_what_an_old_one_left(site: Site, tmp_path: Path) -> None:
    site.faults["/a.bin"] = [hostile.cut(0.37)] * QUICK.tries
    site.faults["/a.bin"][1:] = [hostile.status(503)] * (QUICK.tries - 1)
    with pytest.raises(Unavailable, match=r"503.*6 times"):
        fetch(tmp_path, file(site))
    assert names(tmp_path) == ["a.bin.part", "a.bin.part.json"]
    fetch(tmp_path, file(site))
    assert whole(tmp_path) and site.asked("Range")[-1] == f"bytes={int(len(BODY) * 0.37)}-"


def test_a_server_that_ignores_ranges_sends_all_of_it_again(site: Site, tmp_path: Path) -> None:
    site.faults["/a.bin"] = [hostile.cut(0.37), hostile.whole]
    fetch(tmp_path, file(site))
    assert whole(tmp_path) and site.asked("Range")[1]


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


def test_retry_after_is_obeyed_in_both_spellings(site: Site, tmp_path: Path, pauses: list[float]) -> None:
    date = {"Date": "Sat, 21 Nov 2026 10:00:00 GMT", "Retry_After": "Sat, 21 Nov 2026 10:00:17 GMT"}
    site.faults["/a.bin"] = [hostile.status(429, Retry_After=13), lambda h, _: _with_date(h, **date)]
    fetch(tmp_path, file(site))
    assert whole(tmp_path) and pauses == [13, 17]


def _with_date(handler: hostile.Handler, **headers: str) -> None:
    handler.send_response_only(503)  # without the server's own Date
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@pytest.mark.parametrize("text", ["", "soon", "-5", "\u00b2", "Sat, 99 Nov 2026"])
def test_a_retry_after_without_sense_is_none(text: str) -> None:
    assert connection.retry_after({"Retry-After": text}) is None


def test_a_server_that_asks_for_an_hour_is_left(site: Site, tmp_path: Path, pauses: list[float]) -> None:
    site.faults["/a.bin"] = [hostile.status(429, Retry_After=3600)]
    with pytest.raises(Unavailable, match="asks to wait 3,600 s"):
        fetch(tmp_path, file(site))
    assert not pauses


def test_pauses_double_and_vary(site: Site, tmp_path: Path, pauses: list[float]) -> None:
    site.faults["/a.bin"] = [hostile.status(503)] * 3
    fetch(tmp_path, file(site))
    assert whole(tmp_path) and len(pauses) == 3
    for number, pause in enumerate(pauses):
        assert 0.5 <= pause / (QUICK.backoff * 2**number) <= 1


def test_tries_are_bounded(site: Site, tmp_path: Path) -> None:
    site.faults["/a.bin"] = [hostile.status(503)] * 99
    with pytest.raises(Unavailable, match="503 Service Unavailable, 6 times"):
        fetch(tmp_path, file(site))
    assert len(site.requests) == 6 and not names(tmp_path)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 451])
def test_a_refusal_is_final(site: Site, tmp_path: Path, code: int) -> None:
    site.faults["/a.bin"] = [hostile.status(code)]
    with pytest.raises(Unavailable, match=str(code)):
        fetch(tmp_path, file(site))
    assert len(site.requests) == 1 and not names(tmp_path)


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


@pytest.mark.parametrize(
    "fault, read, reason", [(hostile.trickle(0.01), 20, "too slow"), (hostile.silent(0.6), 0.3, "timed out")]
)
def test_a_slow_server_is_left_in_bounded_time(
    site: Site, tmp_path: Path, fault: hostile.Fault, read: float, reason: str
) -> None:
    site.faults["/a.bin"] = [fault] * 99
    begin = time.monotonic()
    with pytest.raises(Unavailable, match=reason):
        fetch(tmp_path, file(site), RetryPolicy(read=read, tries=2, backoff=0.01, window=0.3, min_speed=10_000))
    assert time.monotonic() - begin < 20


def test_a_server_that_sends_less_than_the_rest_is_asked_again(site: Site, tmp_path: Path) -> None:
    def some(handler: hostile.Handler, body: bytes) -> None:
        begin = int(handler.headers["Range"][len("bytes=") : -1])
        place = f"bytes {begin}-{begin + 9_999}/{len(body)}"
        handler.head(206, Content_Length=10_000, Content_Range=place, ETag=hostile.etag(body))
        handler.wfile.write(body[begin : begin + 10_000])

    site.faults["/a.bin"] = [hostile.cut(0.37), some, some]
    fetch(tmp_path, file(site, digests={}))
    assert whole(tmp_path) and site.asked("Range")[-1] == "bytes=131002-"


def test_a_redirect_is_followed_and_a_loop_is_not(site: Site, tmp_path: Path) -> None:
    site.faults["/b"] = [hostile.status(302, Location="/a.bin")]
    fetch(tmp_path, file(site, url=f"{site.url}/b"))
    assert whole(tmp_path)
    site.requests.clear()
    site.faults["/c"] = [hostile.status(302, Location="/c")] * 99
    with pytest.raises(Unavailable, match="more than 5 redirects"):
        fetch(tmp_path, file(site, name="c", url=f"{site.url}/c"))
    site.faults["/d"] = [hostile.status(302, Location="file:///etc/passwd")]
    with pytest.raises(Unavailable, match="unsafe"):
        fetch(tmp_path, file(site, name="d", url=f"{site.url}/d"))
    site.faults["/d"] = [hostile.status(302, Location="http://[")]
    with pytest.raises(Unavailable, match="unsafe"):
        fetch(tmp_path, file(site, name="d", url=f"{site.url}/d"))
    assert len(site.requests) == 8 and whole(tmp_path)


def test_the_body_of_a_redirect_is_not_waited_for(site: Site, tmp_path: Path) -> None:
    def endless(handler: hostile.Handler, _: bytes) -> None:
        handler.head(302, Location="/a.bin", Content_Length=1 << 40)
        time.sleep(0.5)
        handler.close_connection = True

    site.faults["/b"] = [endless]
    fetch(tmp_path, file(site, url=f"{site.url}/b"), RetryPolicy(read=0.3, tries=1))
    assert whole(tmp_path)


def test_a_redirect_never_leaves_a_secure_connection() -> None:
    assert connection._redirect_target("https://a/b", "/c") == "https://a/c"
    assert connection._redirect_target("http://a/b", "https://c/d") == "https://c/d"
    with pytest.raises(Unavailable, match="unsafe"):
        connection._redirect_target("https://a/b", "http://a/b")


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


def test_an_unreachable_server_is_soon_said(site: Site, tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(Unavailable, match=r"no connection .*efused.*, 2 times"):
        fetch(tmp_path, file(site, url="http://127.0.0.1:9/a.bin"))
    assert time.monotonic() - begin < 10
    with pytest.raises(Unavailable, match="address"):
        fetch(tmp_path, file(site, url="gopher:a.bin"))


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
    assert len(site.requests) < 40 and time.monotonic() - begin < 20
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
