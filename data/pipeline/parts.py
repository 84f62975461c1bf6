"""Read and write the files between the stages: parts of JSON lines, one document per line."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bert.errors import InputError, IntegrityError
from bert.storage import manifest

PART_BYTES = 64 * 1024 * 1024


def encode(record: dict[str, Any]) -> bytes:
    """Return the line of a record. A lone surrogate, which JSON can hold and UTF-8 cannot, becomes "?"."""
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of one part. Raise IntegrityError, with the line number, if one is not a JSON object."""
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            yield decode(line, path, number)


def decode(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """Return the record of a line. `path` and `number`, from 1, are for the error message."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise IntegrityError(f"{path}: line {number} is not JSON ({error}); build the folder again") from error
    if not isinstance(record, dict):
        raise IntegrityError(f"{path}: line {number} is not a JSON object; build the folder again")
    return record


def paths(folder: Path, prefix: str, stage: str | None = None) -> list[Path]:
    """Return the parts `<prefix>-*.jsonl` of a finished folder, in order.

    Raise InputError if the folder is not finished, was written by another stage than `stage`, or has no such part.
    """
    names = manifest.load(folder, stage).files
    part_paths = sorted(folder / name for name in names if name.startswith(f"{prefix}-") and name.endswith(".jsonl"))
    if not part_paths:
        raise InputError(f"{folder}: no {prefix}-*.jsonl in it; give the folder that the previous stage wrote")
    return part_paths


def sample(files: Sequence[Path], max_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield every n-th document, with n such that they have about `max_bytes` in all. The result is deterministic."""
    stride = -(-sum(path.stat().st_size for path in files) // max_bytes)
    index = 0
    for path in files:
        with open(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                if index % max(stride, 1) == 0:
                    yield decode(line, path, number)
                index += 1


class Writer:
    """Write `part-00000.jsonl`, ... of about `PART_BYTES` each into a folder. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, int] = {}  # file name -> number of its documents
        self._left = 0

    def __enter__(self) -> Self:
        return self

    def write(self, record: dict[str, Any]) -> int:
        """Append one document. Return its size in bytes."""
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
        """Close the part that is being written."""
        if self.records:
            self._stream.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the sums of several tasks' counts, key by key."""
    sums: dict[str, int] = {}
    for count in counts:
        for key, number in count.items():
            sums[key] = sums.get(key, 0) + number
    return sums
