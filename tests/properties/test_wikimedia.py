"""Damaged lists of a dump's files: each gives files with sizes and checksums, or is refused with one line."""

import json
import tempfile
from pathlib import Path
from typing import Any, cast

from hypothesis import example, given

from bert.core.errors import UserError
from data.fetch import wikimedia
from data.fetch.transfer import Client
from tests.properties import mutations
from tests.properties.fuzz import fuzz

DAY = "20261101"
NAMES = [f"enwiki-{DAY}-pages-articles-multistream{part}.bz2" for part in (".xml", "1.xml-p1p9", "2.xml-p10p31")]
LISTED: dict[str, Any] = {name: {"size": 7 + len(name), "sha1": "ab" * 20} for name in NAMES}
STATUS = {"jobs": {wikimedia.JOB: {"status": "done", "files": LISTED}}}
HARD = (b"[", b"{", b"null", b"9" * 5000, b"\\ud800", b"true", b"-", b"\xff", b"1e9", b"/")


class Publisher:
    """Stands for the client: every address has the same content."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, url: str, limit: int) -> bytes:
        return self.content


def listed(content: bytes) -> int:
    """Return the number of files that a list of a dump names, or 0 if it is refused."""
    with tempfile.TemporaryDirectory(prefix="wikimedia") as folder:
        try:
            for _ in range(2):  # the second time from the folder
                client = cast(Client, Publisher(content))
                date, found = wikimedia.find_dump(client, "", "enwiki", DAY, Path(folder))
            files = wikimedia.article_files("enwiki", date, found, ())
        except UserError as error:
            assert len(str(error)) < 1000
            return 0
    for file in files:
        assert Path(file.name).name == file.name and file.size and len(file.digests["sha1"]) == 40
    return len(files)


def test_the_list_to_damage_is_good() -> None:
    assert listed(json.dumps(STATUS).encode()) == 2


@fuzz
@given(mutations.damaged([json.dumps(STATUS).encode()], HARD))
@example(b'{"jobs": ' + b"[" * 100_000)
@example(json.dumps(STATUS).encode().replace(b'"' + b"ab" * 20 + b'"', b"7"))
@example(json.dumps(STATUS).encode().replace(b"p10p31", b"p10p" + b"3" * 5000))
@example(json.dumps({"jobs": {wikimedia.JOB: {"status": "done", "files": 7}}}).encode())
def test_a_damaged_list_is_read_or_refused(content: bytes) -> None:
    listed(content)
