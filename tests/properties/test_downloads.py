"""Whatever a server sends is refused, or is what it should be."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import downloads
from tests.hostile import Handler, Site
from tests.properties.fuzz import fuzz
from tests.properties.mutations import survives

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site().running() as running:
        yield running


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
