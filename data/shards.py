"""Divide documents into training shards and held-out shards.

    python -m data.shards --source workdir/corpus/documents --output workdir/corpus/shards --shards 8

A document is held out if a hash of the seed and its text is below --held_out_fraction of all hashes. So it depends on
the text alone: more documents never move one from one split to the other, and a text that is held out is never trained
on. A small corpus may have nothing held out, which is told. The other documents are ordered by that hash and divided
into training shards with equal numbers of documents. A held-out shard has documents of one source, which the manifest
names.

Without --shards there are --max_shards training shards, or as many as have eight documents each, because a random
second segment is from another document of the shard.

There are two passes over the parts, each in parallel. The first one keeps the key and the size of each document in a
file for each part. So it is known where in its shard each line begins, and the second pass writes the lines there,
whatever the order in which the parts are done. Both go on where they were stopped. The shards are hashed in parallel,
too. In the first pass eight bytes per document are held in memory, in the second one twelve, and 67 between them, while
the documents are divided; beside that, `BUFFER_BYTES` in each worker. The second pass always runs on this machine:
several that write to one file through a shared file system could lose bytes of each other.
"""

import dataclasses
import hashlib
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from bert.core import checked_json, cli, files, manifest, outputs
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.progress import MB, Progress
from bert.core.ranges import Range, Seed
from bert.core.workspace import Work
from data.pipeline import document_files, drop_counts, languages, tasks, workers
from data.pipeline.document_files import Part
from data.pipeline.duplicates import held_out_limit, is_held_out
from data.pipeline.tasks import TaskResult

FEWEST = 8  # documents of a training shard, if there is a choice
FEWEST_HELD_OUT = 2  # a pair for next-sentence prediction needs two documents
# An accuracy of n predictions has a standard error of at most 0.5 / sqrt(n). For two of them to be a point (0.01), n is
# 10,000. With 15 % of the tokens predicted and 4.5 characters in a token, as in English, that is so much text.
MEANINGFUL = 300_000  # characters
BUFFER_BYTES = 64 * 1024 * 1024  # of all shards together; there may be more shards than a process may have open files
SAVED_BYTES = 4 * 1024 * 1024 * 1024  # are copied between two notes of what is on the disk: each flushes all shards
KEY_TYPE = np.dtype([("key", "<u8"), ("bytes", "<u8"), ("characters", "<u8")])  # what is kept of a document


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(tasks.Options):
    """Flags of `python -m data.shards`."""

    source: cli.Stored[Path]
    """folder written by data.documents"""
    output: cli.Stored[Path]
    """folder to write"""
    shards: Annotated[int, Range(1, 1_000_000)] | None = None
    """number of training shards, each of which becomes one TFRecord file; none: as --max_shards says"""
    max_shards: Annotated[int, Range(1, 1_000_000)] = 8
    """without --shards: number of training shards, or as many as have eight documents each, if those are fewer"""
    held_out_fraction: Annotated[float, Range(0, 1, above=True, below=True)] = 0.02
    """fraction of the documents to hold out from training, by the hash of their text"""
    seed: Seed = 12345
    """seed of the order of documents"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shards is not None and self.max_shards != Options.max_shards:
            raise UsageError("--max_shards has no effect with --shards; leave one of them out")


def content_key(text: str, seed: int) -> int:
    """Return a 64-bit hash of a document's text, a sentence a line, and the seed."""
    key = seed.to_bytes(8, "little", signed=True)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8, key=key).digest())


class Division(NamedTuple):
    """Which file each document goes to. Files 0 .. h-1 are held out, in the order of their sources."""

    files: np.ndarray  # [documents] int32
    source_of_file: list[int]  # [h]
    shards: int  # number of files for training, h .. h+shards-1


def assign(
    keys: np.ndarray, sources: np.ndarray, shards: int, held_out_fraction: float, *, exactly: bool = True
) -> Division:
    """Divide the documents between the files. Documents with equal keys get the file of the first of them.

    keys: uint64 [documents]. sources: number of each document's source [documents]. exactly: whether to make exactly
    `shards` training shards; otherwise make fewer if they would have less than `FEWEST` documents each. Raise
    InputError if there are fewer different documents to train on than shards.
    """
    distinct, first, rank = np.unique(keys, return_index=True, return_inverse=True)
    source, held_out = sources[first], is_held_out(distinct, held_out_fraction)
    trained = int((~held_out).sum())
    if not exactly:
        shards = min(shards, max(1, trained // FEWEST))
    if trained < shards:
        raise InputError(too_few(trained, int(held_out.sum()), shards))
    files = np.full(len(distinct), -1, np.int32)
    source_of_file: list[int] = []
    for number in np.unique(source[held_out]).tolist():
        chosen = np.flatnonzero(held_out & (source == number))
        size = np.count_nonzero(source == number)
        file_count = min(len(chosen), max(1, round(shards * held_out_fraction * size / len(distinct))))
        files[chosen] = len(source_of_file) + np.arange(len(chosen)) * file_count // len(chosen)
        source_of_file += [number] * file_count
    files[~held_out] = len(source_of_file) + np.arange(trained) * shards // max(trained, 1)
    return Division(files[rank], source_of_file, shards)


def too_few(trained: int, held_out: int, shards: int) -> str:
    """Return why `trained` documents cannot fill the training shards, and the remedy."""
    if not trained:
        return f"all {held_out:,} documents are held out; give more text or a smaller --held_out_fraction"
    return (
        f"{trained:,} different documents to train on, beside {held_out:,} held out, cannot fill {shards:,} training "
        "shards; give more text, fewer --shards (SHARDS of make), or leave that out for as many as can be filled"
    )


class KeyTask(NamedTuple):
    """A part whose documents' keys are to be found."""

    source: Part
    target: Path  # [documents] KEY_TYPE
    seed: int


def write_keys(task: KeyTask) -> int:
    """Write the key, the size of the line and the characters of each document of a part. Return their number."""
    rows: list[tuple[int, int, int]] = []
    for path, number, line in document_files.lines([task.source]):
        sentences = document_files.decode(line, path, number, "sentences")["sentences"]
        text = "\n".join(sentences)
        rows.append((content_key(text, task.seed), len(line), len(text) - max(0, len(sentences) - 1)))
    with files.atomic_write(task.target, "wb") as stream:
        np.save(stream, np.array(rows, KEY_TYPE))
    return len(rows)


class CopyTask(NamedTuple):
    """A part whose lines are to be copied to the shards."""

    source: Part
    files: np.ndarray  # [documents] int32: the shard of each line
    begins: np.ndarray  # [shards] int64: where the first of them is written
    ends: np.ndarray  # [shards] int64
    targets: Sequence[Path]  # they exist and have their sizes


def copy(task: CopyTask) -> int:
    """Copy each line of a part to its place. Return the number of bytes. Write again what an interrupted copy wrote.

    Raise IntegrityError if the part has changed since its keys were found.
    """
    buffers: dict[int, bytearray] = {}
    places, buffered, total, number = task.begins.copy(), 0, 0, 0
    for _, number, line in document_files.lines([task.source]):
        if number > len(task.files):
            break
        buffers.setdefault(int(task.files[number - 1]), bytearray()).extend(line)
        buffered, total = buffered + len(line), total + len(line)
        if buffered > BUFFER_BYTES:
            _write(buffers, places, task)
            buffered = 0
    _write(buffers, places, task)
    if number != len(task.files) or (places != task.ends).any():
        raise _changed(task.source)
    return total


def _changed(source: Part) -> IntegrityError:
    return IntegrityError(f"{source.path}: has changed while the stage was running; repeat the command")


def _write(buffers: dict[int, bytearray], places: np.ndarray, task: CopyTask) -> None:
    """Write each buffer to its place, move the place to the end of the buffer, and empty the buffers."""
    for file, buffer in buffers.items():
        if places[file] + len(buffer) > task.ends[file]:  # it would write over the lines of other parts
            raise _changed(task.source)
        with open(task.targets[file], "rb+", buffering=0) as stream, memoryview(buffer) as view:
            stream.seek(int(places[file]))
            left = view
            while left:
                left = left[stream.write(left) :]
        places[file] += len(buffer)
    buffers.clear()


class ShardTask(NamedTuple):
    """A shard that has all its lines, to be hashed."""

    target: Path
    documents: int
    bytes: int


class ShardsStage(tasks.Stage[ShardTask]):
    """Documents to shards. sources: all parts, in order."""

    name = "shards"
    not_parameters = ("max_shards",)

    def __init__(self, options: Options, sources: Sequence[Part]) -> None:
        self.options, self.sources = options, sources
        self.wanted = options.shards or options.max_shards

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"shards": self.wanted}  # as before there was --max_shards

    def tasks(self, work: Work) -> list[ShardTask]:
        """Find the keys, divide the documents and copy them, as far as no earlier run did. Return a task per shard."""
        key_files = self._find_keys(work)
        self.division = division = self._divide(work)
        self.names = _names("heldout", len(division.source_of_file)) + _names("train", division.shards)
        sizes = np.zeros(len(self.names), np.int64)
        for _, of_part in self._sizes(key_files):
            sizes += of_part
        targets = [work.output / name for name in self.names]
        self._copy(work, key_files, targets, sizes)
        documents = np.bincount(division.files, minlength=len(targets))
        return [ShardTask(*row) for row in zip(targets, documents.tolist(), sizes.tolist(), strict=True)]

    def _find_keys(self, work: Work) -> list[Path]:
        """Return the files with the keys of all parts. Set `keys`, `documents` and `characters` from them."""
        paths = [work.private / f"keys-{number:05d}.npy" for number in range(len(self.sources))]
        todo = [
            KeyTask(source, path, self.options.seed)
            for source, path in zip(self.sources, paths, strict=True)
            if not path.exists()
        ]
        sizes = [task.source.path.stat().st_size for task in todo]
        written = workers.run(write_keys, todo, self.options.workers, self.options.scheduler)
        with Progress("shards: first pass", MB, sum(sizes)) as progress:
            for size, _ in zip(sizes, written, strict=True):
                progress.add(size)
        keys, self.characters = [np.zeros(0, np.uint64)], [0, 0]  # to train on, and held out
        limit = np.uint64(held_out_limit(self.options.held_out_fraction))
        for path in paths:
            of_part = np.load(path)
            is_out = of_part["key"] < limit
            for split, chosen in enumerate((~is_out, is_out)):
                self.characters[split] += int(of_part["characters"][chosen].sum())
            keys.append(of_part["key"].copy())
        self.documents = [len(some) for some in keys[1:]]
        self.keys = np.concatenate(keys)
        return paths

    def _divide(self, work: Work) -> Division:
        """Return the shards of all documents. Keep them for a later run."""
        saved = work.private / "division.npz"
        if not saved.exists():
            names = list(dict.fromkeys(source.source for source in self.sources))
            numbers = np.array([names.index(source.source) for source in self.sources], np.uint16)
            made = assign(
                self.keys,
                np.repeat(numbers, self.documents),
                self.wanted,
                self.options.held_out_fraction,
                exactly=self.options.shards is not None,
            )
            with files.atomic_write(saved, "wb") as stream:
                np.savez(stream, files=made.files, sources=np.array(made.source_of_file, int), shards=made.shards)
        with np.load(saved) as arrays:
            return Division(arrays["files"], arrays["sources"].tolist(), int(arrays["shards"]))

    def _sizes(self, key_files: Sequence[Path]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield for each part the shards of its documents, and how many bytes go to each shard [shards]."""
        begin = 0
        for path in key_files:
            sizes = np.load(path)["bytes"].astype(np.float64)  # exact below 2 ** 53
            shard = self.division.files[begin : begin + len(sizes)]
            yield shard, np.bincount(shard, sizes, minlength=len(self.names)).astype(np.int64)
            begin += len(sizes)

    def _copy(self, work: Work, key_files: Sequence[Path], targets: Sequence[Path], sizes: np.ndarray) -> None:
        """Copy the lines of all parts that no earlier run has brought to the disk."""
        note = work.private / "copied.json"
        done = _read_note(note)
        if done == len(self.sources):
            return
        for target, size in zip(targets, sizes.tolist(), strict=True):
            with open(target, "ab") as stream:
                stream.truncate(size)
        if done:
            print(f"shards: {done:,} of {len(self.sources):,} parts are copied already", file=sys.stderr)
        copied, since = workers.run(copy, self._copies(key_files, targets, done), self.options.workers), 0
        left = sum(source.path.stat().st_size for source in self.sources[done:])
        with Progress("shards: second pass", MB, left) as progress:
            for number, count in enumerate(copied, start=done):
                progress.add(count)
                since += count
                if since >= SAVED_BYTES or number + 1 == len(self.sources):
                    for target in targets:  # all that is noted must outlive a loss of power
                        files.flush(target)
                    checked_json.write(note, {"parts": number + 1})
                    since = 0

    def _copies(self, key_files: Sequence[Path], targets: Sequence[Path], done: int) -> Iterator[CopyTask]:
        begins = np.zeros(len(targets), np.int64)
        for number, (shard, of_part) in enumerate(self._sizes(key_files)):
            ends = begins + of_part
            if number >= done:
                yield CopyTask(self.sources[number], shard, begins, ends, targets)
            begins = ends

    @classmethod
    def run(cls, task: ShardTask) -> TaskResult:
        return {"documents": task.documents}

    def then(self, made: Path) -> Sequence[object]:
        return ("python", "-m", "data.vocab", "--source", made, "--output", made.with_name("vocab"))

    def size(self, task: ShardTask) -> int:
        return task.bytes

    def finish(self, tasks: Sequence[ShardTask], results: Sequence[TaskResult]) -> outputs.StageResult:
        records = {task.target.name: task.documents for task in tasks}
        source_names = list(dict.fromkeys(source.source for source in self.sources))
        source_of = {
            name: source_names[number] for name, number in zip(self.names, self.division.source_of_file, strict=False)
        }
        held_out, documents = sum(records[name] for name in source_of), len(self.keys)
        characters = self.characters
        counts = {
            "documents": documents,
            "characters": sum(characters),
            "train_documents": documents - held_out,
            "train_characters": characters[0],
            "held_out_documents": held_out,
            "held_out_characters": characters[1],
        }
        lost = drop_counts.DropCounts()
        lost.read(documents, sum(characters))
        for split in ("train", "held_out"):
            lost.wrote(counts[f"{split}_documents"], counts[f"{split}_characters"])
        drop_counts.tell("shards", lost.report())
        each = {one: sum(records[name] for name in source_of if source_of[name] == one) for one in source_names}
        self._tell(counts, each)
        extra = {"losses": lost.report()} | languages.of(self.options.source)
        return outputs.StageResult(counts=counts, records=records, sources=source_of, extra=extra)

    def _tell(self, counts: dict[str, int], held_out_of: dict[str | None, int]) -> None:
        """Print how the documents were divided, and what is wrong with that."""
        shards, held_out, characters = self.division.shards, counts["held_out_documents"], self.characters
        summary = (
            f"shards: {counts['train_documents']:,} with {characters[0]:,} characters in {shards:,} training shards, "
            f"{held_out:,} with {characters[1]:,} held out"
        )
        if len(held_out_of) > 1:
            summary += f" ({', '.join(f'{count:,} of {one}' for one, count in held_out_of.items())})"
        print(summary, file=sys.stderr)
        if shards < self.wanted:
            print(
                f"shards: {shards:,} training shards instead of {self.wanted:,}: at least {FEWEST} documents in "
                "each, if there are so many, because a random second segment is from another document of its shard",
                file=sys.stderr,
            )
        if not held_out:
            print(f"shards: warning: {_nothing_held_out(self.keys)}", file=sys.stderr)
        elif held_out < FEWEST_HELD_OUT or characters[1] < MEANINGFUL:
            print(f"shards: warning: {_little_held_out(held_out, characters[1])}", file=sys.stderr)


def _nothing_held_out(keys: np.ndarray) -> str:
    """Return a message that nothing is held out, and with which fraction something would be."""
    distinct = np.unique(keys)
    why = f"nothing is held out of {len(distinct):,} different documents, so trainings have no held-out figures"
    if len(distinct) == 1:
        return f"{why}; a document is not cut: give it as several files, such as chapters"
    place = min(FEWEST_HELD_OUT, len(distinct) - 1) - 1
    fraction = (math.floor(int(distinct[place]) / 2**64 * 100) + 1) / 100
    number = int((distinct < min(held_out_limit(fraction), 2**64 - 1)).sum())
    if number == len(distinct):
        return f"{why}; give more text"
    return f"{why}; --held_out_fraction {fraction} (HELDOUT of make) holds out {number:,}"


def _little_held_out(documents: int, characters: int) -> str:
    """Return a message that little is held out, and how uncertain a figure is."""
    predictions = max(1, characters * 10_000 // MEANINGFUL)
    pairs = " and pairs need two documents" if documents < FEWEST_HELD_OUT else ""
    return (
        f"{documents:,} documents with {characters:,} characters are held out, too few for a meaningful figure: an "
        f"accuracy is uncertain by {min(100.0, 100 / math.sqrt(predictions)):.1f} points (two standard errors){pairs}; "
        "give more text or a larger --held_out_fraction (HELDOUT of make)"
    )


def _names(split: str, count: int) -> list[str]:
    return [f"{split}-{number:05d}-of-{count:05d}.jsonl" for number in range(count)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Note:
    """How many parts, from the first one on, are copied and on the disk."""

    parts: int


def _read_note(path: Path) -> int:
    if not path.exists():
        return 0
    return checked_json.read(
        path, _Note, what="the note of what is copied", remedy="remove this file, then repeat the command"
    ).parts


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.shards", description=__doc__)
    stage = ShardsStage(options, document_files.find(options.source, "part", "documents"))
    tasks.build(stage, options.output, options)
    if options.shards and manifest.is_finished(options.output):  # not so if other shares are missing
        built = manifest.load(options.output, "shards")
        if sum(name.startswith("train-") for name in built.files) < stage.wanted:  # made without --shards
            raise InputError(too_few(built.count("train_documents"), built.count("held_out_documents"), stage.wanted))


if __name__ == "__main__":
    from data import shards  # a worker can load a task of this module, not one of __main__

    cli.main(shards.main)
