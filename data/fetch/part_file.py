"""A partial download of one file: the bytes so far (`NAME.part`) and the version of the file (`NAME.part.json`).

This module opens no connections; see `data.fetch.transfer`.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from bert.core import files
from bert.core.errors import ResourceError
from data.fetch.connection import OutOfRange, shown

RANGE = re.compile(r"bytes (\d{1,19})-\d+/(\d{1,19}|\*)")


class PartFile:
    """The bytes received so far of a file, and the version they belong to. As a context manager, open for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.part")
        self._note = path.with_name(f"{path.name}.part.json")

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = open(self.path, "ab", buffering=0)
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self._stream.close()
        if kind and not self.path.stat().st_size:
            self.discard()

    @property
    def size(self) -> int:
        return self._stream.tell()

    def append(self, chunk: bytes, bound: int) -> None:
        """Write `chunk`, of a file of at most `bound` bytes. Raise ResourceError if the disk is full."""
        view = memoryview(chunk)
        try:
            while view:
                view = view[self._stream.write(view) :]
        except OSError as error:
            if not files.is_full(error):
                raise
            need = f"{bound - self.size:,} more bytes are needed, {files.free_bytes(self.path.parent):,} are free"
            raise ResourceError(f"{self.path}: {error.strerror}: {need}; make room, then repeat") from error

    def restart(self) -> None:
        """Discard all bytes."""
        self._stream.truncate(0)
        self._stream.seek(0)
        self._note.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove what is left of an unfinished download."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def record_version(self, url: str, headers: Mapping[str, str]) -> None:
        """Record which version of the file the next bytes belong to."""
        note = {"url": shown(url), "ETag": headers.get("ETag", ""), "Last-Modified": headers.get("Last-Modified", "")}
        self._note.write_text(json.dumps(note), encoding="utf-8")  # not flushed: if damaged, the download starts again

    def _version(self, url: str) -> dict[str, str]:
        try:
            note: Any = files.read_json(self._note)
            if note["url"] == shown(url):
                return {key: value for key, value in note.items() if type(value) is str}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass
        return {}

    def range_headers(self, url: str, *, has_digest: bool) -> dict[str, str]:
        """Return the headers of a request for the rest of the file.

        If the server gave neither an ETag nor a date, a partial file is continued only if a checksum of the whole file
        is known (`has_digest`); otherwise its bytes are discarded.
        """
        self._expected = self._version(url)
        etag, modified = self._expected.get("ETag", ""), self._expected.get("Last-Modified", "")
        condition = etag if etag.startswith('"') else modified  # a weak ETag does not guarantee equal bytes
        if self.size and not (condition or has_digest):
            self.restart()
        if not self.size:
            return {}
        return {"Range": f"bytes={self.size}-"} | ({"If-Range": condition} if condition else {})

    def total_size(self, headers: Mapping[str, str]) -> int | None:
        """Return the size of the whole file from the headers of a 206 response, or None if they do not give it.

        Raise OutOfRange if the response is not the requested range of the same version.
        """
        match = RANGE.fullmatch(headers.get("Content-Range", "").strip())
        if not match or int(match[1]) != self.size:
            raise OutOfRange("the server sent another range than requested")
        for name in ("ETag", "Last-Modified"):
            before, now = self._expected.get(name), headers.get(name)
            if before and now and before != now:
                raise OutOfRange("the file changed on the server between two connections")
        return None if match[2] == "*" else int(match[2])
