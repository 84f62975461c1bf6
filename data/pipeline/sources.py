"""What the sources of text share: files told apart, decoded, read in parallel, and long documents cut.

wikipedia, books and text are each a function of one group of files, which makes one task of `data.pipeline.tasks`.
Groups are made of the files' sizes alone, and their parts numbered in the order of the files.
"""

import codecs
import dataclasses
import functools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from bert.storage import manifest
from data.pipeline import parts, tasks
from data.pipeline.progress import Progress

GROUP_BYTES = parts.PART_BYTES  # of source files that make one task
MAX_DOCUMENT = 8_000_000  # characters; the longest novels have five million. A document is held in memory
CHUNK = 1 << 20

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # as a file begins
BINARY = bytes([*range(7), *range(14, 26), 28, 29, 30, 31])  # control characters that no text is made of
NOT_IN_CP1252 = b"\x81\x8d\x8f\x90\x9d"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(tasks.Options):
    """Flags of every source; each says itself what its source is."""

    source: Path
    """files to read"""
    output: Path
    """folder to write"""


class Task(NamedTuple):
    """Files to read into parts whose names begin with `target`'s."""

    target: Path
    files: tuple[Path, ...]
    options: Any


class Result(NamedTuple):
    """What became of a task's documents."""

    counts: Counter[str]
    records: dict[str, int]  # of the parts written
    refused: dict[str, str]  # by name, with the reason
    documents: int
    size: int  # bytes written


def find(folder: Path, wanted: Callable[[str], bool]) -> list[Path]:
    """The files at any depth whose names are `wanted`, in the order of their paths, in any locale."""
    found = (path for path in folder.rglob("*") if wanted(path.name) and path.is_file())
    return sorted(found, key=lambda path: [os.fsencode(part) for part in path.parts])


def name(path: Path, folder: Path) -> str:
    """A file's path below the source folder, as UTF-8 can hold it."""
    return os.fsencode(path.relative_to(folder) if path != folder else path.name).decode("utf-8", "replace")


def groups(files: Sequence[Path]) -> list[tuple[Path, ...]]:
    """The files in order, cut into groups of about `GROUP_BYTES`; a larger file is a group."""
    cut: list[list[Path]] = []
    left = 0
    for path in files:
        size = path.stat().st_size
        if not cut or size > left:
            cut.append([])
            left = GROUP_BYTES
        cut[-1].append(path)
        left -= size
    return [tuple(group) for group in cut]


def build(
    stage: str,
    options: Options,
    function: Callable[[Task], Result],
    work: Sequence[tuple[Path, ...]],
    finish: Callable[[manifest.StageResult], manifest.StageResult],
    given: Any = None,
) -> None:
    """Makes the stage's folder by calling `function` for each group of files.

    finish: completes what the manifest says; the documents refused are named in `extra["refused"]`. given: what the
    function finds in `task.options`, instead of all options.
    """
    progress = Progress(stage)
    tasks.build(
        options.output,
        stage=stage,
        parameters={},
        inputs=[options.source],
        options=options,
        prepare=lambda partial: [
            Task(partial / f"part-{number:05d}", group, given or options) for number, group in enumerate(work)
        ],
        function=functools.partial(_into_parts, function),
        finish=lambda done, results: finish(_total(results)),
        report=lambda task, result: progress.add(result["documents"], result["size"]),
    )


def _into_parts(function: Callable[[Task], Result], task: Task) -> dict[str, Any]:
    """Calls it with a folder of the task's own, whose parts it then gives their names beside those of others."""
    own = task.target.with_name(f".{task.target.name}")
    shutil.rmtree(own, ignore_errors=True)  # of a task that was killed
    own.mkdir()
    result = function(task._replace(target=own))
    records = {}
    for name, count in result.records.items():
        new = name.replace("part", task.target.name)  # part-00002.jsonl of task 7: part-00007-00002.jsonl
        os.replace(own / name, task.target.with_name(new))
        records[new] = count
    own.rmdir()
    return result._replace(records=records)._asdict()


def _total(results: Iterable[dict[str, Any]]) -> manifest.StageResult:
    records: dict[str, int] = {}
    refused: dict[str, str] = {}
    counts = []
    for result in results:
        counts.append(result["counts"])
        records |= result["records"]
        refused |= result["refused"]
    return manifest.StageResult(counts=parts.total(counts), records=records, extra={"refused": refused})


def summary(stage: str, made: manifest.StageResult) -> str:
    """The counts on one line, and the first few documents that were refused."""
    refused = [f"{name}: {reason}" for name, reason in made.extra["refused"].items()]
    counts = ", ".join(f"{number:,} {key}" for key, number in made.counts.items())
    more = [f"and {len(refused) - 5:,} more, named in manifest.json"] if len(refused) > 5 else []
    return "; ".join([f"{stage}: {counts}", *refused[:5], *more])


def encoding(path: Path) -> str:
    """How a text file is encoded. Raises ValueError, with the reason, if it is no text.

    utf-8 or utf-16 as its mark says; without one utf-8 if it is sound; "utf-8 with errors" if most of what is not
    ASCII is; else cp1252, or latin-1 if it has bytes that Windows knows no character for. Two passes in constant
    memory.
    """
    with open(path, "rb") as stream:
        head = stream.read(3)
    marked = next((found for mark, found in MARKS.items() if head.startswith(mark)), None)
    if marked == "utf-16":
        if not _is(marked, path):
            raise ValueError("not the UTF-16 that its first bytes announce")
        return marked
    size = binary = unknown = 0
    for chunk in _chunks(path):
        size += len(chunk)
        binary += len(chunk) - len(chunk.translate(None, BINARY))
        unknown += len(chunk) - len(chunk.translate(None, NOT_IN_CP1252))
    if binary * 50 > size:
        raise ValueError(f"binary ({binary:,} of {size:,} bytes are control characters)")
    if _is("utf-8", path):
        return "utf-8"
    good, bad = _characters(path)
    if marked or good > bad:
        return "utf-8 with errors"
    return "latin-1" if unknown else "cp1252"


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def _is(encoding: str, path: Path) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for chunk in _chunks(path):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _characters(path: Path) -> tuple[int, int]:
    """How many characters beyond ASCII are sound in UTF-8, and how many are not."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    beyond = bad = 0
    for chunk in _chunks(path):
        text = decoder.decode(chunk)
        beyond += len(text) - len(text.encode("ascii", "ignore"))
        bad += text.count("\ufffd")
    return beyond - bad, bad


def open_text(path: Path, found: str) -> IO[str]:
    """The text of a file whose `encoding` was found, with "\\n" at every end of line."""
    codec = "utf-8-sig" if found.startswith("utf-8") else found
    return open(path, encoding=codec, errors="replace" if found == "utf-8 with errors" else "strict")


def stream_pieces(stream: IO[str], limit: int = MAX_DOCUMENT) -> Iterator[str]:
    """A text of any length in pieces of at most `limit` characters, as `pieces` cuts it."""
    held = stream.read(limit + 1)
    while len(held) > limit:
        end = _end(held, 0, limit)
        yield held[:end]
        held = held[end:] + stream.read(end)
    yield held


def pieces(text: str, limit: int = MAX_DOCUMENT) -> Iterator[str]:
    """A text in pieces of at most `limit` characters: cut between lines, or words, in the second half of the limit."""
    start = 0
    while len(text) - start > limit:
        end = _end(text, start, limit)
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _end(text: str, start: int, limit: int) -> int:
    middle, end = start + limit // 2, start + limit
    for mark in ("\n", " "):
        if (found := text.rfind(mark, middle, end)) >= 0:
            return found + 1
    return end


def numbered(identifier: str, number: int) -> str:
    """The id of piece `number`, from 0, of a document: the document's own, then with "#2", "#3"."""
    return f"{identifier}#{number + 1}" if number else identifier
