"""One connection to a server that misbehaves: retries, pauses, redirects and refusals."""

import time
from pathlib import Path

import pytest

from data.fetch import connection
from data.fetch.connection import RetryPolicy, Unavailable
from tests import hostile
from tests.downloads import QUICK, fetch, file, names, whole
from tests.hostile import Site


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
    assert time.monotonic() - begin < 50


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


def test_an_unreachable_server_is_soon_said(site: Site, tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(Unavailable, match=r"no connection .*efused.*, 2 times"):
        fetch(tmp_path, file(site, url="http://127.0.0.1:9/a.bin"))
    assert time.monotonic() - begin < 50
    with pytest.raises(Unavailable, match="address"):
        fetch(tmp_path, file(site, url="gopher:a.bin"))
