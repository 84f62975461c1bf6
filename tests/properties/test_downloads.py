"""Whatever a server sends is refused, or is what it should be."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.fetch import catalog, connection, download_dir, transfer, wikimedia
from data.fetch.part_file import PartFile
from data.fetch.transfer import Client
from tests import downloads, hostile
from tests.hostile import Handler, Site
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, damaged_json, survives

pytestmark = pytest.mark.slow

PART = f"{WIKI}-{DAY}-pages-articles-multistream1.xml-p1p1000.bz2"
STATUS = {
    "version": "0.8",
    "jobs": {wikimedia.JOB: {"status": "done", "files": {PART: {"size": 20007, "sha1": "a" * 40, "url": "/x"}}}},
}
PAGE = b'<html><a href="20261101/">20261101/</a> <a href="./20261020/">x</a> <a href="latest/">latest</a></html>'
NOTE = {"url": "http://localhost/a.bin", "ETag": '"abc"', "Last-Modified": hostile.MODIFIED}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site().running() as running:
        yield running


def safe(files: list[transfer.File]) -> None:
    for file in files:
        assert re.fullmatch(r"[\w.-]+(/[\w.-]+)?", file.name) and ".." not in file.name
        assert file.size is None or file.size > 0


@given(content=damaged(PAGE) | st.binary(max_size=60), status=damaged_json(STATUS))
@fuzz
def test_pages_of_a_mirror_are_refused_or_give_a_dump(
    content: bytes, status: bytes, site: Site, tmp_path: Path
) -> None:
    site.files = {f"/{WIKI}/": content, f"/{WIKI}/{DAY}/{wikimedia.STATUS}": status}
    (tmp_path / wikimedia.STATUS).unlink(missing_ok=True)
    client = Client("test/1", policy=downloads.QUICK)
    found = survives(lambda: wikimedia.find_dump(client, site.url, WIKI, None, tmp_path))
    if found:
        assert re.fullmatch(wikimedia.DATE, found[0])


@given(content=damaged(b"train/10.txt\ntrain/7.txt\n123\n"))
@fuzz
def test_a_list_of_books_is_refused_or_names_books(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train_files.list"
    path.write_bytes(content)
    safe(survives(lambda: catalog.pg19_books("train", path, "http://localhost")) or [])


HEADERS = (
    "Content-Length",
    "Content-Range",
    "Content-Encoding",
    "Transfer-Encoding",
    "ETag",
    "Last-Modified",
    "Location",
    "Retry-After",
    "Date",
)
VALUES = st.sampled_from(
    (
        *(
            "",
            "0",
            "1",
            "-1",
            "9" * 30,
            "\u0663",
            "\u00b2",
            "1, 1",
            "1e3",
            "nan",
            "bytes 0-5/9",
            "bytes 3-2/*",
            "bytes",
        ),
        *("bytes 0-99999999999999999999/99999999999999999999", "gzip", "br", "identity", "chunked", '"x"', 'W/"x"'),
        *("/a.bin", "//[", "http://[::1", "ftp://x/", "file:///etc/passwd", "http://127.0.0.1:99999/", "http://", "?"),
        *(
            "Sun, 01 Nov 2026 10:20:30 GMT",
            "Sun, 99 Nov 2026 10:20:30 GMT",
            "Thu, 01 Jan 99999 00:00:00 -9999",
            "x" * 999,
        ),
    )
) | st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20)


@given(
    code=st.sampled_from((200, 206, 204, 301, 302, 307, 304, 403, 404, 416, 429, 500, 503, 600, 999)),
    headers=st.dictionaries(st.sampled_from(HEADERS), VALUES, max_size=4),
    body=st.binary(max_size=30),
    begun=st.booleans(),
)
@fuzz
def test_any_answer_is_refused_or_gives_the_file(
    code: int, headers: dict[str, str], body: bytes, begun: bool, site: Site, tmp_path: Path
) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    if begun:
        (folder / "a.bin.part").write_bytes(downloads.BODY[:1000])

    def answer(handler: Handler, _: bytes) -> None:
        handler.head(code, **{name.replace("-", "_"): value for name, value in headers.items()})
        handler.wfile.write(body)
        handler.close_connection = True

    site.files = {"/a.bin": downloads.BODY}
    site.faults["/a.bin"] = [answer]
    policy = downloads.policy(2, connect=1, read=0.5, longest_wait=0.01)
    fetched = survives(lambda: downloads.fetch(folder, downloads.file(site), policy))
    if fetched:
        assert (folder / "a.bin").read_bytes() == downloads.BODY
    else:
        assert not (folder / "a.bin").exists()


@given(note=damaged_json(NOTE), etag=VALUES, place=VALUES)
@fuzz
def test_a_note_of_a_partial_file_continues_it_or_is_ignored(
    note: bytes, etag: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"12345")
    (tmp_path / "a.bin.part.json").write_bytes(note)

    def ask() -> None:
        with PartFile(tmp_path / "a.bin") as part:
            for name, value in part.range_headers(NOTE["url"], has_digest=True).items():
                assert name in ("Range", "If-Range")
                value.encode("latin-1")  # as headers are sent
                assert "\n" not in value and "\r" not in value
            try:
                total = part.total_size({"Content-Range": place, "ETag": etag})
                assert total is None or total >= 0
            except connection.OutOfRange as error:
                assert "server" in str(error)  # it is reported as the server's fault

    survives(ask)


@given(content=damaged(b"".join(json.dumps({"name": name, "sha256": "0" * 64}).encode() + b"\n" for name in "ab")))
@fuzz
def test_the_record_of_hashes_gives_hashes_or_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "out.incoming").mkdir(exist_ok=True)
    (tmp_path / "out.incoming" / download_dir.RECORD).write_bytes(content)
    known = survives(lambda: download_dir._recorded(tmp_path / "out", tmp_path / "out.incoming"))
    for name, sha256 in (known or {}).items():
        assert type(name) is type(sha256) is str
