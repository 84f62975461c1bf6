"""Read and write the files between the stages: parts of JSON lines, one document per line."""

import bisect
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from bert.core import files, manifest
from bert.core.errors import InputError, IntegrityError

PART_BYTES = 64 * 1024 * 1024
TEXT_BATCH = 1 << 20  # characters encoded at once
WINDOW = 1 << 14  # bytes read at each place of a sample, and the rest of the last document
FEWEST_WINDOWS = 64  # of a small sample
TRAINING_PIECE = 1 << 16  # characters; tokenizers holds 256 texts, and takes 60 bytes for a character of some of them
BETWEEN_WORDS = re.compile(r"(?<=\S)(?=[ \n]\S)")

T = TypeVar("T")


def encode(record: dict[str, Any]) -> bytes:
    """Return the line of a record. A lone surrogate, which JSON can hold and UTF-8 cannot, becomes U+FFFD."""
    line = json.dumps(record, ensure_ascii=False)
    try:
        return line.encode() + b"\n"
    except UnicodeEncodeError:
        return files.SURROGATE.sub("\ufffd", line).encode() + b"\n"


class Part(NamedTuple):
    """A part, the SHA-256 of its content when it was written, and the source of its documents, if all are of one."""

    path: Path
    sha256: str
    source: str | None = None

    def verify(self) -> None:
        """Raise IntegrityError if the content has changed."""
        manifest.verify_file(self.path, self.sha256)


def lines(parts: Iterable[Part]) -> Iterator[tuple[Path, int, bytes]]:
    """Yield the lines of the parts, each after the path of its part and its number, from 1.

    A thread hashes each part while it is read. Raise IntegrityError at its end if its content has changed.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="hash") as hasher:
        for part in parts:
            verified = hasher.submit(part.verify)
            with open(part.path, "rb") as stream:
                for number, line in enumerate(stream, start=1):
                    yield part.path, number, line
            verified.result()


def read_records(part: Part, field: str) -> Iterator[dict[str, Any]]:
    """Yield the records of one part. Raise IntegrityError if one is damaged, as `decode` and `lines` do."""
    for path, number, line in lines([part]):
        yield decode(line, path, number, field)


def decode(line: bytes, path: Path, number: int, field: str) -> dict[str, Any]:
    """Return the record of a line, which has the text in `field`: a string, or a list of them if it is "sentences".

    `path` and `number`, from 1, are for the message of the IntegrityError.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path}: line {number} is not JSON ({error}); build the folder again") from error
    if not isinstance(record, dict):
        raise IntegrityError(f"{path}: line {number} is not a JSON object; build the folder again")
    if not isinstance(record.get(field), list if field == "sentences" else str):
        raise IntegrityError(f"{path}: line {number} has no {field}; build the folder again, or give another folder")
    return record


def find(folder: Path, prefix: str, stage: str | None = None, *, may_lack: bool = False) -> list[Part]:
    """Return the parts `<prefix>-*.jsonl` of a finished folder, in order.

    Raise InputError if the folder is not finished, was written by another stage than `stage`, or has no such part,
    unless it may lack them.
    """
    listed = manifest.load(folder, stage).files
    names = sorted(name for name in listed if name.startswith(f"{prefix}-") and name.endswith(".jsonl"))
    if not names and not may_lack:
        raise InputError(f"{folder}: no {prefix}-*.jsonl in it; give the folder that the previous stage wrote")
    return [Part(folder / name, listed[name].sha256, listed[name].source) for name in names]


def sample(parts: Sequence[Part], max_bytes: int, field: str) -> Iterator[dict[str, Any]]:
    """Yield documents with at most `max_bytes` in all, spread evenly: all of them if their parts have no more.

    Otherwise only places at equal distances are read, so that the time does not grow with the corpus, and the content
    is not compared with its SHA-256. A document is in the sample if it begins in one of the windows at these places:
    long documents are as likely as short ones. The first document is always there.
    """
    sizes = [part.path.stat().st_size for part in parts]
    if sum(sizes) <= max_bytes:
        for path, number, line in lines(parts):
            yield decode(line, path, number, field)
        return
    left = max_bytes
    for part, begin, end in _windows(parts, sizes, max_bytes):
        for place, line in _lines_within(part.path, begin, end):
            if len(line) > left and left < max_bytes:
                return
            left -= len(line)
            try:
                yield decode(line, part.path, 0, field)
            except IntegrityError:
                decode(line, part.path, _line_number(part.path, place), field)
                raise


def sampled_size(parts: Sequence[Part], max_bytes: int) -> int:
    """Return about the bytes that `sample` yields."""
    return min(sum(part.path.stat().st_size for part in parts), max_bytes)


def _windows(parts: Sequence[Part], sizes: Sequence[int], max_bytes: int) -> Iterator[tuple[Part, int, int]]:
    """Yield ranges of bytes of the parts, in order. They are a tenth less than `max_bytes`, as documents are uneven."""
    window = max(1, min(WINDOW, max_bytes // FEWEST_WINDOWS))
    count, total = max(1, max_bytes * 9 // 10 // window), sum(sizes)
    ends = list(itertools.accumulate(sizes))
    for number in range(count):
        begin = number * total // count
        end = begin + window
        for index in range(bisect.bisect_right(ends, begin), len(parts)):  # a window may reach into the next parts
            first = ends[index] - sizes[index]
            if first >= end:
                break
            yield parts[index], max(0, begin - first), min(sizes[index], end - first)


def _lines_within(path: Path, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin in a range of bytes, each after its place."""
    with open(path, "rb") as stream:
        place = begin
        if begin:
            stream.seek(begin - 1)
            rest = stream.readline(end - begin)  # of the line before; one that begins at `end` is not wanted
            if not rest.endswith(b"\n"):
                return
            place = begin - 1 + len(rest)
        while place < end and (line := stream.readline()):
            yield place, line
            place += len(line)


def _line_number(path: Path, place: int) -> int:
    """Return the number, from 1, of the line that begins at a place."""
    number = 1
    with open(path, "rb") as stream:
        while place > 0 and (read := stream.read(min(place, WINDOW))):
            number, place = number + read.count(b"\n"), place - len(read)
    return number


def batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield texts, or lists of sentences, in batches of about `TEXT_BATCH` characters. size: the characters of one."""
    batch: list[T] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += size(item)
        if characters > TEXT_BATCH:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def training_pieces(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts in pieces of little more than `TRAINING_PIECE` characters, for a trainer of tokenizers.

    A cut is before a single space or line end between words, so that each pre-tokenizer finds the same words.
    """
    for text in texts:
        start = 0
        while len(text) - start > TRAINING_PIECE and (cut := BETWEEN_WORDS.search(text, start + TRAINING_PIECE)):
            yield text[start : cut.start()]
            start = cut.start()
        yield text[start:]


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


def by_split(tasks: Iterable[Any], results: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the results of the tasks that wrote files of the training split, and of the held-out one."""
    by_name: dict[str, list[dict[str, Any]]] = {"train": [], "heldout": []}
    for task, result in zip(tasks, results, strict=True):
        by_name[task.target.name.split("-")[0]].append(result)
    return by_name


def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the sums of several tasks' counts, key by key."""
    sums: dict[str, int] = {}
    for count in counts:
        for key, number in count.items():
            sums[key] = sums.get(key, 0) + number
    return sums
