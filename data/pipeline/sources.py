"""What the stages that read source text share: encodings, groups of files, parallel reading, and cuts of long texts.

wikipedia, books, pubmed and text are each a `SourceStage`. Their source files are put into groups by size alone, or
each is a group; a group is one task, and the parts that it writes are numbered in the order of the files.
"""

import abc
import codecs
import dataclasses
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

from bert.storage import manifest, outputs
from bert.storage.workspace import Work
from data.pipeline import parts
from data.pipeline.tasks import Options as TaskOptions
from data.pipeline.tasks import Stage, TaskResult

GROUP_BYTES = parts.PART_BYTES  # size of the source files that make one task
MAX_DOCUMENT = 8_000_000  # characters; a document is held in memory, and the longest novels have five million
CHUNK = 1 << 20

MARKS = {  # byte order marks; that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
BINARY = bytes([*range(7), *range(14, 26), 28, 29, 30, 31])  # control characters that do not occur in text
NOT_IN_CP1252 = b"\x81\x8d\x8f\x90\x9d"
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]+")  # control characters that are not white space
CONTROL_ASCII = bytes([*range(9), *range(14, 28), 127])  # the same in UTF-8, in which they are found faster
CONTROL_OTHER = re.compile(rb"\xc2[\x80-\x84\x86-\x9f]")
MAX_BINARY = 0.02  # share of control characters from which a file is not text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(TaskOptions):
    """Flags of every stage that reads source text. Each stage has its own help for `source`."""

    source: Path
    """files to read"""
    output: Path
    """folder to write"""


class SourceTask(NamedTuple):
    """Files to read into parts. The names of the parts begin with the name of `target`."""

    target: Path
    files: tuple[Path, ...]
    settings: Any  # what the stage's `read` needs of its options
    hashes: tuple[str | None, ...] = ()  # SHA-256 of each file, if an earlier stage wrote it; otherwise None


class ReadResult(NamedTuple):
    """The outcome of reading the files of one task."""

    counts: Counter[str]
    records: dict[str, int]  # part name -> documents in it
    refused: dict[str, str]  # document or file name -> reason
    documents: int
    size: int  # bytes written


class SourceStage(Stage[SourceTask]):
    """Base of the stages that read source text.

    A stage gives `name`, `read` and `check`. groups: the files of each task. settings: what `read` finds in the task;
    the default is all options.
    """

    name: ClassVar[str]

    def __init__(self, options: Options, groups: Sequence[tuple[Path, ...]], settings: Any = None) -> None:
        self.options, self.groups, self.settings = options, groups, settings or options

    @classmethod
    @abc.abstractmethod
    def read(cls, task: SourceTask) -> ReadResult:
        """Write the documents of the task's files as parts into the folder `task.target`."""

    @abc.abstractmethod
    def check(self, result: outputs.StageResult) -> outputs.StageResult:
        """Raise InputError if no document was read. Print a summary, and return what the manifest says.

        The refused documents are in `result.extra["refused"]`, with the reasons.
        """

    def tasks(self, work: Work) -> list[SourceTask]:
        recorded = manifest.recorded_hashes(self.options.source)
        return [
            SourceTask(work.output / f"part-{number:05d}", group, self.settings, tuple(map(recorded.get, group)))
            for number, group in enumerate(self.groups)
        ]

    @classmethod
    def run(cls, task: SourceTask) -> TaskResult:
        """Verify the files, read into a folder of the task's own, then move the parts beside those of other tasks."""
        for path, sha256 in zip(task.files, task.hashes, strict=True):
            if sha256:
                manifest.verify_file(path, sha256)
        own = task.target.with_name(f".{task.target.name}")
        shutil.rmtree(own, ignore_errors=True)  # left by a task that was killed
        own.mkdir()
        result = cls.read(task._replace(target=own))
        records = {}
        for name, count in result.records.items():
            new = name.replace("part", task.target.name)  # part-00002.jsonl of task 7: part-00007-00002.jsonl
            os.replace(own / name, task.target.with_name(new))
            records[new] = count
        own.rmdir()
        return result._replace(records=records)._asdict()

    def finish(self, tasks: Sequence[SourceTask], results: Sequence[TaskResult]) -> outputs.StageResult:
        return self.check(_total(results))

    def processed(self, task: SourceTask, result: TaskResult) -> tuple[int, int]:
        return result["documents"], result["size"]


def find_files(folder: Path, accepts: Callable[[str], bool]) -> list[Path]:
    """Return the files at any depth whose names `accepts` accepts, ordered by the bytes of their paths."""
    paths = (path for path in folder.rglob("*") if accepts(path.name) and path.is_file())
    return sorted(paths, key=lambda path: [os.fsencode(part) for part in path.parts])


def relative_name(path: Path, folder: Path) -> str:
    """Return a file's path below the source folder. Bytes that are not UTF-8 are replaced."""
    return os.fsencode(path.relative_to(folder) if path != folder else path.name).decode("utf-8", "replace")


def group_files(files: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Cut the files, in order, into groups of about `GROUP_BYTES`. A larger file is a group of its own."""
    groups: list[list[Path]] = []
    left = 0
    for path in files:
        size = path.stat().st_size
        if not groups or size > left:
            groups.append([])
            left = GROUP_BYTES
        groups[-1].append(path)
        left -= size
    return [tuple(group) for group in groups]


def _total(results: Iterable[TaskResult]) -> outputs.StageResult:
    records: dict[str, int] = {}
    refused: dict[str, str] = {}
    counts = []
    for result in results:
        counts.append(result["counts"])
        records |= result["records"]
        refused |= result["refused"]
    return outputs.StageResult(counts=parts.total(counts), records=records, extra={"refused": refused})


def summary(stage: str, result: outputs.StageResult) -> str:
    """Return one line with the counts and the first few refused documents."""
    refused = [f"{name}: {reason}" for name, reason in result.extra["refused"].items()]
    counts = ", ".join(f"{number:,} {key}" for key, number in result.counts.items())
    more = [f"and {len(refused) - 5:,} more, listed in manifest.json"] if len(refused) > 5 else []
    return "; ".join([f"{stage}: {counts}", *refused[:5], *more])


def detect_encoding(path: Path) -> str:
    """Return the encoding of a text file. Raise ValueError, with the reason, if the file is not text.

    A byte order mark decides: utf-8, utf-16 or utf-32. Without one, the result is "utf-8" if the file is valid UTF-8;
    "utf-8 with errors" if most of its non-ASCII characters are; else "cp1252", or "latin-1" if the file has bytes that
    Windows-1252 does not define. Up to three passes in constant memory.
    """
    with open(path, "rb") as stream:
        head = stream.read(4)
    marked = next((encoding for mark, encoding in MARKS.items() if head.startswith(mark)), None)
    if marked in ("utf-16", "utf-32"):
        _check_wide(marked, path)
        return marked
    size = binary = undefined = 0
    for chunk in _chunks(path):
        size += len(chunk)
        binary += len(chunk) - len(chunk.translate(None, BINARY))
        undefined += len(chunk) - len(chunk.translate(None, NOT_IN_CP1252))
    if binary > size * MAX_BINARY:
        reason = f"binary ({binary:,} of {size:,} bytes are control characters)"
        raise ValueError(f"{reason}; UTF-16 and UTF-32 need a byte order mark")
    if _is_valid("utf-8", path):
        return "utf-8"
    valid, invalid = _non_ascii_characters(path)
    if marked or valid > invalid:
        return "utf-8 with errors"
    return "latin-1" if undefined else "cp1252"


def _check_wide(encoding: str, path: Path) -> None:
    """Raise ValueError if a file with a byte order mark of UTF-16 or UTF-32 is not text in this encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    characters = controls = 0
    try:
        for chunk in _chunks(path):
            text = decoder.decode(chunk)
            characters += len(text)
            controls += without_controls(text)[1]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise ValueError(f"not the {encoding.upper()} that its first bytes announce") from error
    if controls > characters * MAX_BINARY:
        raise ValueError(f"binary ({controls:,} of {characters:,} characters are control characters)")


def without_controls(text: str) -> tuple[str, int]:
    """Return a text without control characters other than white space, and the number of those removed."""
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded.translate(None, CONTROL_ASCII)) == len(encoded) and not CONTROL_OTHER.search(encoded):
        return text, 0
    clean = CONTROL.sub("", text)
    return clean, len(text) - len(clean)


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def _is_valid(encoding: str, path: Path) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for chunk in _chunks(path):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _non_ascii_characters(path: Path) -> tuple[int, int]:
    """Return the number of non-ASCII characters that are valid UTF-8, and of those that are not."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    non_ascii = invalid = 0
    for chunk in _chunks(path):
        text = decoder.decode(chunk)
        non_ascii += len(text) - len(text.encode("ascii", "ignore"))
        invalid += text.count("\ufffd")
    return non_ascii - invalid, invalid


def open_text(path: Path, encoding: str) -> IO[str]:
    """Open a file in the encoding that `detect_encoding` returned, with "\\n" at every end of line."""
    codec = "utf-8-sig" if encoding.startswith("utf-8") else encoding
    return open(path, encoding=codec, errors="replace" if encoding == "utf-8 with errors" else "strict")


def stream_pieces(stream: IO[str], limit: int = MAX_DOCUMENT) -> Iterator[str]:
    """Yield the same pieces as `pieces`, from a stream, without holding the whole text in memory."""
    held = stream.read(limit + 1)
    while len(held) > limit:
        end = _cut_position(held, 0, limit)
        yield held[:end]
        held = held[end:] + stream.read(end)
    yield held


def pieces(text: str, limit: int = MAX_DOCUMENT) -> Iterator[str]:
    """Yield a text in pieces of at most `limit` characters.

    A cut is behind the last line end in the second half of the limit, else behind the last space there, else at the
    limit.
    """
    start = 0
    while len(text) - start > limit:
        end = _cut_position(text, start, limit)
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _cut_position(text: str, start: int, limit: int) -> int:
    middle, end = start + limit // 2, start + limit
    for separator in ("\n", " "):
        if (position := text.rfind(separator, middle, end)) >= 0:
            return position + 1
    return end


def piece_id(identifier: str, number: int) -> str:
    """Return the id of piece `number`, from 0, of a document: the document's id, then the same with "#2", "#3"."""
    return f"{identifier}#{number + 1}" if number else identifier
