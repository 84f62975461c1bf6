"""A partial download of one file: the bytes so far (`NAME.part`) and the version of the file (`NAME.part.json`).

This module opens no connections; see `data.fetch.transfer`.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Self

from bert.storage import files

CHUNK = 1 << 20


class PartFile:
    """The bytes received so far of `path`, and their hashes. As a context manager it is open for appending.

    `finish` renames the file to its final name, `reject` to `NAME.bad`.
    """

    def __init__(self, path: Path, algorithms: Iterable[str]) -> None:
        self.path = path
        self.pending = path.with_name(path.name + ".part")
        self._note = path.with_name(path.name + ".part.json")
        self._algorithms = sorted(algorithms)
        self._reset()

    def _reset(self) -> None:
        self.size = 0
        self._hashes = {name: hashlib.new(name) for name in self._algorithms}

    def _hash(self, stream: IO[bytes]) -> None:
        self._reset()
        while chunk := stream.read(CHUNK):
            self._update(chunk)

    def _update(self, chunk: bytes) -> None:
        self.size += len(chunk)
        for digest in self._hashes.values():
            digest.update(chunk)

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = open(self.pending, "a+b", buffering=0)
        self._stream.seek(0)
        self._hash(self._stream)
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self._stream.close()
        if kind and not self.size:
            self.pending.unlink()
            self._note.unlink(missing_ok=True)

    def hash_existing(self) -> Path:
        """Hash the file that already has its final name, from an earlier run or copied here by hand."""
        with open(self.path, "rb") as stream:
            self._hash(stream)
        return self.path

    def append(self, chunk: bytes) -> None:
        """Write `chunk`. If the disk is full, raise OSError; the bytes that were written are counted."""
        view = memoryview(chunk)
        while view:
            written = self._stream.write(view)
            self._update(bytes(view[:written]))
            view = view[written:]

    def restart(self) -> None:
        """Discard all bytes."""
        self._stream.truncate(0)
        self._note.unlink(missing_ok=True)
        self._reset()

    def record_version(self, url: str, headers: Mapping[str, str]) -> None:
        """Record which version of the file the next bytes belong to."""
        note = {"url": url, "ETag": headers.get("ETag", ""), "Last-Modified": headers.get("Last-Modified", "")}
        self._note.write_text(json.dumps(note), encoding="utf-8")  # not flushed: if damaged, the download starts again

    def _version(self, url: str) -> dict[str, str]:
        try:
            note: Any = files.read_json(self._note)
            return {key: value for key, value in note.items() if type(value) is str} if note["url"] == url else {}
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
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

        Raise ValueError if the response is not the requested range of the same version.
        """
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("Content-Range", "").strip())
        if not match or int(match[1]) != self.size:
            raise ValueError("the server sent another range than requested")
        for name in ("ETag", "Last-Modified"):
            before, now = self._expected.get(name), headers.get(name)
            if before and now and before != now:
                raise ValueError("the file changed on the server between two connections")
        return None if match[2] == "*" else int(match[2])

    def digests(self) -> dict[str, str]:
        """Return the hexadecimal digest of each algorithm."""
        return {name: digest.hexdigest() for name, digest in self._hashes.items()}

    def finish(self) -> None:
        """Flush the bytes to the disk and rename the file to its final name."""
        if self.pending.exists() and not self.path.exists():
            descriptor = os.open(self.pending, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            os.replace(self.pending, self.path)
        self.pending.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def reject(self) -> Path:
        """Rename a file that failed its checks to `NAME.bad`. Return the new path."""
        bad = self.path.with_name(self.path.name + ".bad")
        os.replace(self.path if self.path.exists() else self.pending, bad)
        self._note.unlink(missing_ok=True)
        return bad
