"""Files over HTTP, from a real server that misbehaves: right and whole in the end, or not there and said why."""

import email.utils
import gzip
import hashlib
import json
import shutil
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import requests

from bert.core.errors import IntegrityError, ResourceError, UserError
from data.fetch import connection, transfer
from data.fetch.connection import Unavailable
from tests import hostile
from tests.downloads import BODY, QUICK, SHA256, fetch, file, names, policy, whole
from tests.hostile import Handler, Site

CUT = int(len(BODY) * 0.37)
ETAG = hostile.etag(BODY)
REST = f"bytes={CUT}-"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client would have waited; it does not."""
    waited: list[float] = []
    monkeypatch.setattr(connection.Connections, "pause", lambda self, seconds: waited.append(seconds))
    return waited


def some(handler: Handler, body: bytes) -> None:
    """Sends less than the rest."""
    begin = int(handler.headers["Range"][len("bytes=") : -1])
    place = f"bytes {begin}-{begin + 9_999}/{len(body)}"
    handler.head(206, Content_Length=10_000, Content_Range=place, ETag=ETAG)
    handler.wfile.write(body[begin : begin + 10_000])


def from_an_earlier_place(handler: Handler, body: bytes) -> None:
    """Sends a range that begins at a block of its own, as some caches do."""
    place = f"bytes {CUT - 9}-{len(body) - 1}/{len(body)}"
    handler.head(206, Content_Length=len(body) - CUT + 9, Content_Range=place, ETag=ETAG)
    handler.wfile.write(body[CUT - 9 :])


def endless(code: int, **headers: object) -> hostile.Fault:
    """An answer whose body of a terabyte does not come."""

    def fault(handler: Handler, _: bytes) -> None:
        handler.head(code, Content_Length=1 << 40, **headers)
        time.sleep(20)
        handler.close_connection = True

    return fault


@pytest.mark.parametrize(
    ("faults", "ranges"),
    [
        ([], [None]),
        ([hostile.cut(0.37)], [None, REST]),
        ([hostile.cut(0.37), hostile.cut(0.6)], [None, REST, f"bytes={int(len(BODY) * 0.6)}-"]),
        ([hostile.cut(0.37), hostile.whole], [None, REST]),
        ([hostile.cut(0.37), some, some], [None, REST, f"bytes={CUT + 10_000}-", f"bytes={CUT + 20_000}-"]),
        ([hostile.cut(0.37), from_an_earlier_place], [None, REST, None]),
        ([hostile.cut(0.37), hostile.status(416)], [None, REST, None]),
        ([hostile.chunked(0.37), hostile.chunked()], [None, None]),
        ([hostile.status(503), hostile.status(429), hostile.status(500)], [None] * 4),
        ([hostile.status(302, Location="/a.bin")], [None] * 2),
        ([endless(503)], [None] * 2),
        ([hostile.status(503, Retry_After="soon")], [None] * 2),
    ],
)
def test_what_passes_ends_with_the_file(
    site: Site, tmp_path: Path, faults: list[hostile.Fault], ranges: list[str | None]
) -> None:
    site.faults["/a.bin"] = faults
    fetched = fetch(tmp_path, file(site, digests={}), policy(read=5))  # no checksum would have told
    assert whole(tmp_path) and fetched == transfer.FetchedFile(len(BODY), SHA256)
    assert site.asked("Range") == ranges
    assert site.asked("If-Range") == [range and ETAG for range in ranges]
    assert set(site.asked("User-Agent")) == {"test/1 (nobody@example.org)"}
    assert set(site.asked("Accept-Encoding")) == {"identity"}


def compressed(handler: Handler, body: bytes) -> None:
    """Compresses on the fly although this was not asked for."""
    packed = gzip.compress(body)
    if "Range" in handler.headers:
        place = f"bytes {CUT}-{len(packed) - 1}/{len(packed)}"
        handler.head(206, Content_Length=len(packed) - CUT, Content_Range=place, Content_Encoding="gzip", ETag=ETAG)
        handler.wfile.write(packed[CUT:])
    else:
        handler.head(200, Content_Length=len(packed), Content_Encoding="gzip")
        handler.wfile.write(packed)


def says(content: bytes) -> hostile.Fault:
    """Something else than the file, as networks of hotels send a page to log in for every address."""
    return lambda handler, _: hostile.whole(handler, content)


def declared(handler: Handler, body: bytes) -> None:
    """Declares a file that is compressed itself as Apache's `AddEncoding x-gzip .gz` does."""
    handler.head(200, Content_Length=len(body), Content_Encoding="x-gzip")
    handler.wfile.write(body)


def no_ranges(handler: Handler, body: bytes) -> None:
    """Refuses to go on, and breaks after two megabytes of a new beginning."""
    if "Range" in handler.headers:
        return hostile.status(416)(handler, body)
    handler.head(200, Content_Length=len(body), ETag=ETAG)
    handler.wfile.write(body[: 2 << 20])
    handler.close_connection = True


def another_date(handler: Handler, body: bytes) -> None:
    """Goes on, but says of each answer that the file has just changed, and breaks after two megabytes."""
    begin = int(handler.headers.get("Range", "bytes=0-")[len("bytes=") : -1])
    place = {"Content_Range": f"bytes {begin}-{len(body) - 1}/{len(body)}"} if begin else {}
    date = email.utils.formatdate(1e9 + len(handler.site.requests), usegmt=True)
    handler.head(206 if begin else 200, Content_Length=len(body) - begin, Last_Modified=date, **place)
    handler.wfile.write(body[begin : begin + (2 << 20)])
    handler.close_connection = True


@pytest.mark.parametrize(
    ("faults", "error", "reason", "changes", "requests"),
    [
        ([hostile.status(503)] * 9, Unavailable, "503 Service Unavailable, 6 times; try later", {}, 6),
        *(([hostile.status(code)], Unavailable, f"the server answered {code}", {}, 1) for code in (400, 401, 404, 410)),
        ([hostile.status(403)], Unavailable, "403 Forbidden; give a contact address with --contact", {}, 1),
        ([hostile.status(206)] * 9, Unavailable, "another range than requested, 6 times", {}, 6),
        ([hostile.status(429, Retry_After=3600)], Unavailable, "asks to wait 3,600 s; try again after that", {}, 1),
        ([hostile.promise(len(BODY) + 9)] * 9, Unavailable, r"broke|ended", {}, 6),
        ([hostile.promise(len(BODY) - 9)], IntegrityError, "299,998 bytes, but 300,007 were", {"size": len(BODY)}, 1),
        ([], IntegrityError, "300,007 bytes, but at most 299,999 are expected", {"limit": 299_999}, 1),
        ([hostile.chunked()], IntegrityError, "sends more than 1,000 bytes", {"limit": 1000}, 1),
        ([lambda h, _: h.head(200, Connection="close")], Unavailable, "does not give the file's size", {}, 1),
        ([compressed], Unavailable, "compresses the file", {}, 1),
        ([hostile.cut(0.37), compressed], Unavailable, "compresses the file", {}, 2),
        *(
            ([says(content)], IntegrityError, r"a\.bin\.bad: an HTML page", {}, 1)
            for content in (
                b"\n<!-- hello -->\n<!DOCTYPE html>\n<html>Welcome",
                b"\xef\xbb\xbf<!doctype html>",
                b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN">',
                b'<script>top.location="http://10.0.0.1/"</script>',
                b'<META http-equiv="refresh" content="0;url=/login">',
            )
        ),
        *(
            ([fault], IntegrityError, r"\.bad: the server sent nothing", {}, 1)
            for fault in (says(b""), hostile.chunked(0))
        ),
        ([hostile.status(302, Location="/a.bin")] * 9, Unavailable, "more than 5 redirects", {}, 6),
        ([hostile.status(302, Location="file:///etc/passwd")], Unavailable, "unsafe address, 'file:///etc", {}, 1),
        ([hostile.status(302, Location="http://[")], Unavailable, "unsafe address", {}, 1),
        ([hostile.status(302, Location="http://a:99999/")], Unavailable, "unsafe address", {}, 1),
        ([hostile.trickle(0.01)] * 9, Unavailable, "bytes in .* is too slow", {}, 6),
        ([hostile.silent(9)] * 9, Unavailable, "timed out", {}, 6),
        ([], Unavailable, r"no connection .*efused.*, 2 times", {"url": "http://127.0.0.1:9/a.bin"}, 0),
        ([], Unavailable, "check the address", {"url": "gopher:a.bin"}, 0),
        ([], Unavailable, "password in the address is not Latin-1", {"url": "http://a:%E4%B8%AD@127.0.0.1:9/"}, 0),
    ],
)
def test_what_does_not_pass_is_one_error_and_no_file(
    site: Site,
    tmp_path: Path,
    faults: list[hostile.Fault],
    error: type[UserError],
    reason: str,
    changes: dict[str, object],
    requests: int,
) -> None:
    site.faults["/a.bin"] = faults
    slow = {"window": 0.2, "min_speed": 10_000}
    hasty: dict[str, Any] = {"timed out": {"read": 0.3}, "bytes in .* is too slow": slow}
    begin = time.monotonic()
    with pytest.raises(error, match=reason):
        fetch(tmp_path, file(site, digests={}, **changes), policy(**hasty.get(reason, {})))
    assert "a.bin" not in names(tmp_path) and len(site.requests) == requests
    assert time.monotonic() - begin < 30


def test_the_body_of_a_redirect_is_not_waited_for(site: Site, tmp_path: Path) -> None:
    site.faults["/b"] = [endless(302, Location="/a.bin")]
    fetch(tmp_path, file(site, url=f"{site.url}/b"), policy(0, read=5))
    assert whole(tmp_path)


def test_the_pauses_are_what_the_server_asks_for_or_double(site: Site, tmp_path: Path, pauses: list[float]) -> None:
    date = email.utils.formatdate(time.time() + 29, usegmt=True)
    waits = [hostile.status(429, Retry_After=13), hostile.status(503, Retry_After=date)]
    site.faults["/a.bin"] = [*waits, *[hostile.status(503)] * 3]
    fetch(tmp_path, file(site))
    assert pauses[0] == 13 and 14 < pauses[1] < 30  # 28 at most, of a date in whole seconds
    assert pauses[2:] == pytest.approx([QUICK.retries.backoff_factor * 2**number for number in (2, 3, 4)])
    for text in ("", "soon", "-5", "\u00b2", "Sat, 99 Nov 2026", "Fri, 31 Dec 99999 00:00:00 GMT", "9" * 5000):
        assert connection.retry_after(text) == 0


def test_a_connection_that_brings_a_megabyte_is_no_failure_in_a_row(site: Site, tmp_path: Path) -> None:
    site.files["/a.bin"] = body = bytes(8 << 20)
    site.faults["/a.bin"] = [hostile.cut(0.1), *[_another_megabyte] * 6]
    fetch(tmp_path, file(site, limit=len(body), digests={"sha256": hashlib.sha256(body).hexdigest()}))
    assert len(site.requests) == 8


@pytest.mark.parametrize("fault", [no_ranges, another_date])
def test_a_file_that_must_begin_again_each_time_ends_in_an_error(
    site: Site, tmp_path: Path, fault: hostile.Fault
) -> None:
    site.files["/a.bin"] = bytes(5 << 20)
    site.faults["/a.bin"] = [fault] * 99
    with pytest.raises(Unavailable, match="6 times; try later"):
        fetch(tmp_path, file(site, limit=5 << 20, digests={}))
    assert len(site.requests) < 9


def test_a_compressed_file_that_is_declared_as_encoded_is_taken_as_it_is(site: Site, tmp_path: Path) -> None:
    packed = gzip.compress(b"a line\n")
    site.files["/a.gz"], site.faults["/a.gz"] = packed, [declared] * 2
    wanted = file(site, name="a.gz", url=f"{site.url}/a.gz", digests={"sha256": hashlib.sha256(packed).hexdigest()})
    fetch(tmp_path, wanted)
    assert (tmp_path / "a.gz").read_bytes() == packed
    site.faults["/a.gz"] = [compressed]  # once more
    with pytest.raises(IntegrityError, match="sha256 is"):
        fetch(tmp_path / "again", wanted)


def _another_megabyte(handler: Handler, body: bytes) -> None:
    begin = int(handler.headers["Range"][len("bytes=") : -1])
    place = f"bytes {begin}-{len(body) - 1}/{len(body)}"
    handler.head(206, Content_Length=len(body) - begin, Content_Range=place, ETag=hostile.etag(body))
    handler.wfile.write(body[begin : begin + (1 << 20)])
    handler.close_connection = True


@pytest.mark.parametrize(
    ("url", "location", "safe"),
    [
        ("https://a/b", "/c", True),
        ("http://a/b", "https://c/d", True),
        ("https://a/b", "http://a/b", False),
        ("https://a/b", "//c:0x/", False),
    ],
)
def test_a_redirect_never_leaves_a_secure_connection(url: str, location: str, safe: bool) -> None:
    response = requests.Response()
    response.status_code, response.url, response.headers["Location"] = 302, url, location
    response.raw = requests.packages.urllib3.HTTPResponse()  # type: ignore[attr-defined]
    session = connection._Session()
    if safe:
        assert session.get_redirect_target(response) == location
    else:
        with pytest.raises(Unavailable, match="unsafe"):
            session.get_redirect_target(response)


def test_the_proxy_and_the_netrc_of_the_user_are_used(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine files.invalid login ada password secret")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("http_proxy", site.url)
    site.files["http://files.invalid/a.bin"] = BODY
    fetch(tmp_path / "a", file(site, url="http://files.invalid/a.bin"))
    assert whole(tmp_path / "a") and site.asked("Authorization") == ["Basic YWRhOnNlY3JldA=="]


def test_what_an_earlier_release_left_is_resumed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(BODY[:CUT])
    note = {"url": f"{site.url}/a.bin", "ETag": ETAG, "Last-Modified": hostile.MODIFIED}
    (tmp_path / "a.bin.part.json").write_text(json.dumps(note))
    fetch(tmp_path, file(site, digests={}))
    assert whole(tmp_path) and site.asked("Range") == [REST] and site.asked("If-Range") == [ETAG]


@pytest.mark.parametrize("faults", [[], [hostile.rest_of_any_version]], ids=["heeds If-Range", "ignores If-Range"])
def test_parts_of_two_versions_are_never_joined(site: Site, tmp_path: Path, faults: list[hostile.Fault]) -> None:
    def change() -> None:
        site.files["/a.bin"] = BODY

    old = site.files["/a.bin"] = bytes(len(BODY))
    site.faults["/a.bin"] = [hostile.cut(0.37, change), *faults]
    fetch(tmp_path, file(site, digests={}))
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
    assert site.asked("Range")[:4] == [None, None, None, REST] and set(site.asked("If-Range")) == {None}


@pytest.mark.parametrize("note", ["", "[1]", '{"url": 3}', "\0", None])
def test_a_damaged_part_or_note_costs_a_new_beginning_at_most(site: Site, tmp_path: Path, note: str | None) -> None:
    (tmp_path / "a.bin.part").write_bytes(BODY + b"more" if note is None else b"wrong")
    if note is not None:
        (tmp_path / "a.bin.part.json").write_text(note)
    fetch(tmp_path, file(site, digests={"sha256": SHA256} if note is None else {}))
    assert whole(tmp_path)


def test_a_corrupted_part_is_put_aside_and_the_next_try_begins_anew(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(bytes(CUT))
    with pytest.raises(IntegrityError, match=r"a\.bin\.bad: sha256 is"):
        fetch(tmp_path, file(site, size=len(BODY)))
    assert site.asked("Range") == [REST] and names(tmp_path) == ["a.bin.bad"]
    (tmp_path / "a.bin.bad").unlink()
    fetch(tmp_path, file(site, size=len(BODY)))
    assert whole(tmp_path)


def test_a_whole_part_is_only_checked(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(BODY)
    fetch(tmp_path, file(site, size=len(BODY)))
    assert whole(tmp_path) and not site.requests


def test_too_small_a_disk_is_said_before_anything_is_fetched(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 1000))
    with pytest.raises(ResourceError, match=r"67,408,871 bytes are needed, 1,000 are free"):
        fetch(tmp_path, file(site))
    assert not names(tmp_path)


@pytest.mark.parametrize("trust, remedy", [("pinned", "fetch it again"), ("first use", "changed since")])
def test_a_wrong_checksum_never_gets_the_name(site: Site, tmp_path: Path, trust: str, remedy: str) -> None:
    with pytest.raises(IntegrityError, match=rf"a\.bin\.bad: sha1 is .*, not 00.* \({trust}\); .*{remedy}"):
        fetch(tmp_path, file(site, digests={"sha1": "00" * 20}, trust=trust))
    assert names(tmp_path) == ["a.bin.bad"]


def test_a_file_carried_here_by_hand_is_checked_and_not_fetched(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(BODY)
    (tmp_path / "a.bin.part").write_bytes(BODY[:CUT])
    (tmp_path / "a.bin.part.json").touch()
    assert fetch(tmp_path, file(site, size=len(BODY))).sha256 == SHA256 and whole(tmp_path)
    (tmp_path / "a.bin").write_bytes(BODY[:-1])
    (tmp_path / "a.bin.part").write_bytes(BODY[:CUT])
    with pytest.raises(IntegrityError, match="bytes, but"):
        fetch(tmp_path, file(site, size=len(BODY), digests={}))
    assert not site.requests and names(tmp_path) == ["a.bin.bad", "a.bin.part"]


def test_the_next_mirror_takes_over_what_a_broken_one_left(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirrors = tuple(f"{site.url}/{name}/a.bin" for name in ("gone", "damaged", "dies", "good"))
    site.files |= {"/damaged/a.bin": b"x" * len(BODY), "/dies/a.bin": BODY, "/good/a.bin": BODY}
    site.faults["/dies/a.bin"] = [hostile.cut(0.37)] + [hostile.status(500)] * 99
    fetch(tmp_path, file(site, mirrors=mirrors, size=len(BODY)))
    assert (tmp_path / "a.bin").read_bytes() == BODY and names(tmp_path) == ["a.bin", "a.bin.bad"]
    assert site.requests[-1][1]["Range"] == REST and "If-Range" not in site.requests[-1][1]
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
        digests = {"md5": hashlib.md5(body).hexdigest().upper()}
        wanted.append(file(site, name=f"deep/{number}", url=f"{site.url}/{number}", digests=digests))
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


def test_pages_are_bounded_too_and_may_be_compressed(site: Site) -> None:
    client = transfer.Client("test", 2, QUICK)
    site.faults["/a.bin"] = [hostile.cut(0.37), compressed]
    assert client.read(f"{site.url}/a.bin", len(BODY)) == BODY
    with pytest.raises(Unavailable, match=r"/a\.bin: more than 1,000"):
        client.read(f"{site.url}/a.bin", 1000)
