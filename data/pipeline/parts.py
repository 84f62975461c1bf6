"""The files between the stages: JSON lines, one document a line, in parts that a worker can hold or stream."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bert.errors import InputError, IntegrityError
from bert.storage import manifest

PART_BYTES = 64 * 1024 * 1024


def encode(record: dict[str, Any]) -> bytes:
    """One line. A lone surrogate, which JSON can hold and UTF-8 cannot, becomes "?"."""
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of one part. Raises IntegrityError, with the line, if one is not a JSON object."""
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            yield decode(line, path, number)


def decode(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """The record of one line, which is line `number` of `path`."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise IntegrityError(f"{path}: line {number} is not JSON ({error}); build the folder again") from error
    if not isinstance(record, dict):
        raise IntegrityError(f"{path}: line {number} is not a JSON object; build the folder again")
    return record


def paths(folder: Path, prefix: str, stage: str | None = None) -> list[Path]:
    """The finished parts `<prefix>-*.jsonl` of a folder, in order.

    Raises InputError if the folder was not finished, or not by `stage`, or holds no such part.
    """
    names = manifest.load(folder, stage).files
    found = sorted(folder / name for name in names if name.startswith(f"{prefix}-") and name.endswith(".jsonl"))
    if not found:
        raise InputError(f"{folder}: no {prefix}-*.jsonl in it; give the folder that the stage before wrote")
    return found


def sample(files: Sequence[Path], max_bytes: int) -> Iterator[dict[str, Any]]:
    """Every n-th document, n so that they have about `max_bytes`: spread evenly, and the same each time."""
    stride = -(-sum(path.stat().st_size for path in files) // max_bytes)
    index = 0
    for path in files:
        with open(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                if index % max(stride, 1) == 0:
                    yield decode(line, path, number)
                index += 1


class Writer:
    """Writes `part-00000.jsonl`, ... of about `PART_BYTES` each into a folder; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, int] = {}  # file name -> documents in it, as the manifest wants it
        self._left = 0

    def __enter__(self) -> Self:
        return self

    def write(self, record: dict[str, Any]) -> int:
        """Appends one document; returns its size in bytes."""
        line = encode(record)
        if self._left <= 0:
            self.close()
            self._name = f"part-{len(self.records):05d}.jsonl"
            self._stream = open(self.folder / self._name, "wb")  # noqa: SIM115
            self.records[self._name] = 0
            self._left = PART_BYTES
        self._stream.write(line)
        self.records[self._name] += 1
        self._left -= len(line)
        return len(line)

    def close(self) -> None:
        """Ends the part being written."""
        if self.records:
            self._stream.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Sums the counts of several tasks, key by key."""
    sums: dict[str, int] = {}
    for count in counts:
        for key, number in count.items():
            sums[key] = sums.get(key, 0) + number
    return sums
