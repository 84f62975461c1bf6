"""The bytes fetched so far of one file, with their hashes and what is needed to go on: `NAME.part`, `NAME.part.json`.

Nothing here knows of connections; see `data.fetch.transfer`.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Self

CHUNK = 1 << 20


class Part:
    """Opened as a context manager, takes bytes; `finish` gives them their name, `reject` the name `NAME.bad`."""

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
            self._count(chunk)

    def _count(self, chunk: bytes) -> None:
        self.size += len(chunk)
        for sums in self._hashes.values():
            sums.update(chunk)

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

    def adopt(self) -> Path:
        """Hashes the file that already has the final name, fetched before or carried here by hand."""
        with open(self.path, "rb") as stream:
            self._hash(stream)
        return self.path

    def append(self, chunk: bytes) -> None:
        """Writes `chunk`; raises OSError, and counts what was written, when there is no room for all of it."""
        view = memoryview(chunk)
        while view:
            written = self._stream.write(view)
            self._count(bytes(view[:written]))
            view = view[written:]

    def restart(self) -> None:
        """Forgets all bytes."""
        self._stream.truncate(0)
        self._note.unlink(missing_ok=True)
        self._reset()

    def begin(self, url: str, headers: Mapping[str, str]) -> None:
        """Notes which version of the file the next bytes belong to."""
        note = {"url": url, "ETag": headers.get("ETag", ""), "Last-Modified": headers.get("Last-Modified", "")}
        self._note.write_text(json.dumps(note), encoding="utf-8")  # if damaged, we begin anew: no need to flush

    def _version(self, url: str) -> dict[str, str]:
        try:
            note: Any = json.loads(self._note.read_text(encoding="utf-8"))
            return note if note["url"] == url else {}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}

    def range_headers(self, url: str, *, judged: bool) -> dict[str, str]:
        """Headers of a request for the rest. Without a word on the version, only bytes that a checksum will judge
        (`judged`) are gone on with; others are forgotten."""
        self._expected = self._version(url)
        etag, modified = self._expected.get("ETag", ""), self._expected.get("Last-Modified", "")
        condition = etag if etag.startswith('"') else modified  # a weak ETag does not speak of bytes
        if self.size and not (condition or judged):
            self.restart()
        if not self.size:
            return {}
        return {"Range": f"bytes={self.size}-"} | ({"If-Range": condition} if condition else {})

    def resumed(self, headers: Mapping[str, str]) -> int | None:
        """The whole file's size by the headers of an answer of status 206; ValueError if it is not what we asked."""
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("Content-Range", "").strip())
        if not found or int(found[1]) != self.size:
            raise ValueError("the server sent another range than was asked for")
        for name in ("ETag", "Last-Modified"):
            before, now = self._expected.get(name), headers.get(name)
            if before and now and before != now:
                raise ValueError("the file changed on the server between two connections")
        return None if found[2] == "*" else int(found[2])

    def digests(self) -> dict[str, str]:
        """Hexadecimal, by algorithm."""
        return {name: sums.hexdigest() for name, sums in self._hashes.items()}

    def finish(self) -> None:
        """Flushes the bytes to the disk and gives them their final name."""
        if self.pending.exists() and not self.path.exists():
            descriptor = os.open(self.pending, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            os.replace(self.pending, self.path)
        self.pending.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def reject(self) -> Path:
        """Moves what was judged out of the way, to `NAME.bad`, which it returns."""
        bad = self.path.with_name(self.path.name + ".bad")
        os.replace(self.path if self.path.exists() else self.pending, bad)
        self._note.unlink(missing_ok=True)
        return bad
