"""What the stages that read source text share: groups of files, parallel reading, and cuts of long texts.

wikipedia, books, pubmed and text are each a `SourceStage`. Their source files are put into groups by size alone, or
each is a group; a group is one task, and the parts that it writes are numbered in the order of the files.
"""

import abc
import dataclasses
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

from bert.core import cli, files, manifest, outputs
from bert.core.workspace import Work
from data.pipeline import document_files, drop_counts, languages
from data.pipeline.tasks import Options as TaskOptions
from data.pipeline.tasks import Stage, TaskResult

GROUP_BYTES = document_files.PART_BYTES  # size of the source files that make one task
MAX_DOCUMENT = 8_000_000  # characters; a document is held in memory, and the longest novels have five million
HALF_PAIRS = "half surrogate pairs replaced"  # name of a count
SHOWN = 5  # names of files or documents in a line
SENTENCE_ENDS = (". ", "! ", "? ", "\u3002", "\uff01", "\uff1f", "\u0964", "\u061f", "\u06d4")
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]+")  # control characters that are not white space
CONTROL_ASCII = bytes([*range(9), *range(14, 28), 127])  # the same in UTF-8, in which they are found faster
CONTROL_OTHER = re.compile(rb"\xc2[\x80-\x84\x86-\x9f]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(TaskOptions):
    """Flags of every stage that reads source text. Each stage has its own help for `source`."""

    source: cli.Stored[Path]
    """files to read"""
    output: cli.Stored[Path]
    """folder to write"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """Flags of the stages whose texts may be in any language."""

    language: str | None = None
    """code of the language of the texts, such as de, which the manifest names for later stages"""

    def __post_init__(self) -> None:
        super().__post_init__()
        languages.check(self.language)


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
    lost: drop_counts.Report | None = None  # of the stages that count every character


class SourceStage(Stage[SourceTask]):
    """Base of the stages that read source text.

    A stage gives `name`, `read` and `check`. groups: the files of each task. settings: what `read` finds in the task;
    the default is all options. not_read: names of the other files of the folder; they are printed and in the manifest.
    """

    name: ClassVar[str]
    causes: ClassVar[dict[str, str]] = {}  # of large losses, for `losses.tell`
    language: str | None = None  # of the texts

    def __init__(
        self,
        options: Options,
        groups: Sequence[tuple[Path, ...]],
        settings: Any = None,
        not_read: Sequence[str] | None = None,
    ) -> None:
        self.options, self.groups, self.settings, self.not_read = options, groups, settings or options, not_read
        if isinstance(options, TextOptions):
            self.language = options.language

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
        """Verify the files and read them into a separate folder. Then move the parts to the parts of other tasks."""
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

    @classmethod
    def written(cls, task: SourceTask, result: TaskResult) -> Sequence[Path]:
        return [task.target.with_name(name) for name in result["records"]]

    def finish(self, tasks: Sequence[SourceTask], results: Sequence[TaskResult]) -> outputs.StageResult:
        result_of_all, extra = _total(results), dict[str, Any]()
        if reports := [report for result in results if (report := result.get("lost"))]:
            extra["losses"] = drop_counts.total(reports)
            if extra["losses"]["documents"][drop_counts.OUT]:
                drop_counts.tell(self.name, extra["losses"], self.causes)
        if self.language:
            extra["language"] = self.language
        if self.not_read is not None:
            extra["not_read"] = list(self.not_read)
        checked = self.check(result_of_all)
        if self.not_read:
            shown = ", ".join(self.not_read[:SHOWN]) + (", ..." if len(self.not_read) > SHOWN else "")
            told = f"not read, because of their names: {len(self.not_read):,} files ({shown})"
            print(f"{self.name}: {told}", file=sys.stderr)
        return dataclasses.replace(checked, extra=checked.extra | extra)

    def then(self, made: Path) -> Sequence[object]:
        return ("python", "-m", "data.documents", "--source", made, "--output", made.with_name("documents"))

    def size(self, task: SourceTask) -> int:
        return sum(path.stat().st_size for path in task.files)


def is_from_texts(described: manifest.Manifest) -> bool:
    """Return whether a stage that reads source text made a folder: only its manifest names what was refused."""
    return not described.extra.keys().isdisjoint(("refused", "rejected"))  # the latter of articles


def find_files(folder: Path, accepts: Callable[[str], bool]) -> list[Path]:
    """Return the files at any depth whose names `accepts` accepts, ordered by the bytes of their paths."""
    return divide_files(folder, accepts)[0]


def divide_files(folder: Path, accepts: Callable[[str], bool]) -> tuple[list[Path], list[str]]:
    """Return the files at any depth whose names `accepts` accepts, and the names of the others below the folder.

    Both are ordered by the bytes of their paths. Hidden files and the manifest of a stage are not among the others.
    """
    paths = sorted(files.below(folder), key=lambda path: [os.fsencode(part) for part in path.parts])
    accepted = [path for path in paths if accepts(path.name)]
    others = [path for path in paths if not accepts(path.name) and not path.name.startswith(".")]
    return accepted, [relative_name(path, folder) for path in others if path != folder / manifest.NAME]


def relative_name(path: Path, folder: Path) -> str:
    """Return a file's path below the source folder. Bytes that are not UTF-8 are replaced."""
    return os.fsencode(path.relative_to(folder) if path != folder else path.name).decode("utf-8", "replace")


def document_name(path: Path, folder: Path) -> str:
    """Return the name that a file has in the ids of its documents: below the source folder, and with its name."""
    name = relative_name(path, folder)
    return name if path == folder else f"{relative_name(folder.resolve(), folder.resolve())}/{name}"


def group_files(files: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Cut the files, in order, into groups of about `GROUP_BYTES`. A larger file is a group by itself."""
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
    return outputs.StageResult(counts=document_files.total(counts), records=records, extra={"refused": refused})


def summary(stage: str, result: outputs.StageResult) -> str:
    """Return one line with the counts and the first few refused documents."""
    refused = [f"{name}: {reason}" for name, reason in result.extra["refused"].items()]
    counts = ", ".join(f"{number:,} {key}" for key, number in result.counts.items())
    more = [f"and {len(refused) - SHOWN:,} more, listed in manifest.json"] if len(refused) > SHOWN else []
    return "; ".join([f"{stage}: {counts}", *refused[:SHOWN], *more])


def without_controls(text: str) -> tuple[str, int]:
    """Return a text without control characters other than white space, and the number of those removed."""
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded.translate(None, CONTROL_ASCII)) == len(encoded) and not CONTROL_OTHER.search(encoded):
        return text, 0
    clean = CONTROL.sub("", text)
    return clean, len(text) - len(clean)


def without_surrogates(text: str) -> tuple[str, int]:
    """Return a text with U+FFFD for each half of a surrogate pair, which JSON can hold, and the number of halves."""
    return files.SURROGATE.subn("\ufffd", text)


def stream_pieces(stream: IO[str], limit: int = MAX_DOCUMENT) -> Iterator[str]:
    """Yield the same pieces as `pieces`, from a stream, without holding the whole text in memory."""
    text = stream.read(limit + 1)
    while len(text) > limit:
        end = _cut_position(text, 0, limit)
        yield text[:end]
        text = text[end:] + stream.read(end)
    yield text


def pieces(text: str, limit: int = MAX_DOCUMENT) -> Iterator[str]:
    """Yield a text in pieces of at most `limit` characters.

    A cut is behind the last line end in the second half of the limit, else behind the last end of a sentence there,
    else behind the last space, else at the limit.
    """
    start = 0
    while len(text) - start > limit:
        end = _cut_position(text, start, limit)
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _cut_position(text: str, start: int, limit: int) -> int:
    middle, end = start + limit // 2, start + limit
    for marks in (("\n",), SENTENCE_ENDS, (" ",)):
        ends = [at + len(mark) for mark in marks if (at := text.rfind(mark, middle, end)) >= 0]
        if ends:
            return max(ends)
    return end


def piece_id(identifier: str, number: int) -> str:
    """Return the id of piece `number`, from 0, of a document: the document's id, then the same with "#2", "#3"."""
    return f"{identifier}#{number + 1}" if number else identifier
