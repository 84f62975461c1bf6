"""Divide documents into training shards and held-out shards.

    python -m data.shards --source workdir/corpus/documents --output workdir/corpus/shards --shards 8

Documents are ordered by a hash of the seed and their text. The first ones of each source are held out; the others are
divided into training shards with equal numbers of documents. A held-out shard has documents of one source, which the
manifest names. Identical texts always go to the same shard, so a held-out text is never trained on.

A source with few documents has at least two held out, the fewest with which a pair of two documents can be made; but no
more than a tenth of it, unless --held_out_fraction is larger. So a source of less than ten documents may have none.

There are two passes. In the first one eight bytes per document are held in memory, in the second one twelve, and about
sixty between them, while the documents are divided.
"""

import dataclasses
import hashlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from bert import cli, ranges
from bert.errors import InputError
from bert.ranges import Range, Seed
from bert.storage import outputs
from data.pipeline import parts, tasks
from data.pipeline.parts import Part
from data.pipeline.progress import Progress

FEWEST = 2  # held-out documents of a source ...
LARGEST_SHARE = 10  # ... if they are at most one in so many
BUFFER_BYTES = 64 * 1024 * 1024  # of all shards together; there may be more shards than a process may have open files


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.shards`."""

    source: Path
    """folder written by data.documents"""
    output: Path
    """folder to write"""
    shards: Annotated[int, Range(1, 1_000_000)] = 8
    """number of training shards; each becomes one TFRecord file, written by one task"""
    held_out_fraction: Annotated[float, Range(0, 1, above=True, below=True)] = 0.02
    """fraction of the documents of each source to hold out from training; at least one document is held out"""
    seed: Seed = 12345
    """seed of the order of documents"""

    def __post_init__(self) -> None:
        ranges.check(self)


def content_key(sentences: Sequence[str], seed: int) -> int:
    """Return a 64-bit hash of a document's text and the seed."""
    text = "\n".join(sentences).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest())


def held_out_counts(sizes: np.ndarray, fraction: float) -> np.ndarray:
    """Return how many documents of each source to hold out [sources]; sizes: its number of different documents.

    At least one document is held out of all.
    """
    counts = np.maximum(np.rint(sizes * fraction).astype(np.int64), np.minimum(FEWEST, sizes // LARGEST_SHARE))
    if not counts.any():
        counts[sizes.argmax()] = 1
    return counts


def assign(
    keys: np.ndarray, sources: np.ndarray, shards: int, held_out_fraction: float
) -> tuple[np.ndarray, list[int]]:
    """Return the file number of each document [documents], and the source of each held-out file [h].

    keys: uint64 [documents]. sources: numbers of their sources [documents]. Files 0 .. h-1 are held out, in the order
    of their sources; files h .. h+shards-1 are for training. Documents with equal keys get the same file, as the first
    of them does. Raise InputError if there are fewer different documents than files.
    """
    distinct, first, rank = np.unique(keys, return_index=True, return_inverse=True)
    source = sources[first]
    sizes = np.bincount(source, minlength=1)
    held_out = held_out_counts(sizes, held_out_fraction)
    trained = len(distinct) - int(held_out.sum())
    if trained < shards:
        raise InputError(
            f"{len(distinct)} different documents, {held_out.sum()} of them held out, cannot fill {shards} training "
            "shards; give more text or fewer --shards"
        )
    files = np.full(len(distinct), -1, np.int32)
    source_of_file: list[int] = []
    for number, (size, count) in enumerate(zip(sizes.tolist(), held_out.tolist(), strict=True)):
        file_count = max(1, round(shards * held_out_fraction * size / len(distinct))) if count else 0
        chosen = np.flatnonzero(source == number)[:count]
        files[chosen] = len(source_of_file) + np.arange(count) * file_count // max(count, 1)
        source_of_file += [number] * file_count
    files[files < 0] = len(source_of_file) + np.arange(trained) * shards // trained
    return files[rank], source_of_file


def make(options: Options, sources: Sequence[Part], partial: Path) -> outputs.StageResult:
    """Read the documents once for their keys, and again to copy their lines."""
    keys, documents = array("Q"), [0]  # number of documents up to the end of each part
    progress = Progress("shards")
    for source in sources:
        for document in parts.read_records(source, "sentences"):
            keys.append(content_key(document["sentences"], options.seed))
        documents.append(len(keys))
        progress.add(0, source.path.stat().st_size)
    source_names = list(dict.fromkeys(source.source for source in sources))
    numbers = np.array([source_names.index(source.source) for source in sources], np.uint16)
    files, held_out_sources = assign(
        np.frombuffer(keys, np.uint64),
        np.repeat(numbers, np.diff(documents)),
        options.shards,
        options.held_out_fraction,
    )
    names = _names("heldout", len(held_out_sources)) + _names("train", options.shards)
    for shard, size in _copy(sources, files, [partial / name for name in names]):
        progress.add(int(shard >= 0), size)
    records = dict(zip(names, np.bincount(files, minlength=len(names)).tolist(), strict=True))
    source_of = {name: source_names[number] for name, number in zip(names, held_out_sources, strict=False)}
    held_out = sum(records[name] for name in source_of)
    counts = {"documents": len(keys), "held_out_documents": held_out, "train_documents": len(keys) - held_out}
    summary = f"{counts['train_documents']:,} in {options.shards} training shards, {held_out:,} held out"
    if len(source_names) > 1:
        each = {one: sum(records[name] for name in source_of if source_of[name] == one) for one in source_names}
        summary += f" ({', '.join(f'{count:,} of {one}' for one, count in each.items())})"
    progress.done(summary)
    return outputs.StageResult(counts=counts, records=records, sources=source_of)


def _names(split: str, count: int) -> list[str]:
    return [f"{split}-{number:05d}-of-{count:05d}.jsonl" for number in range(count)]


def _copy(sources: Sequence[Part], files: np.ndarray, targets: Sequence[Path]) -> Iterator[tuple[int, int]]:
    """Copy line n of the sources to target `files[n]`. Yield the target's number and the size of each line."""
    buffers = [bytearray() for _ in targets]
    buffered, number = 0, 0
    for source in sources:
        with open(source.path, "rb") as stream:
            for line in stream:
                file = int(files[number])
                buffers[file] += line
                number, buffered = number + 1, buffered + len(line)
                yield file, len(line)
                if buffered > BUFFER_BYTES:
                    _flush(buffers, targets)
                    buffered = 0
    _flush(buffers, targets)


def _flush(buffers: Sequence[bytearray], targets: Sequence[Path]) -> None:
    for buffer, target in zip(buffers, targets, strict=True):
        with open(target, "ab") as stream:
            stream.write(buffer)
        buffer.clear()


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.shards", description=__doc__)
    sources = parts.find(options.source, "part", "documents")
    outputs.build(
        options.output,
        stage="shards",
        parameters=tasks.parameters(options),
        inputs=tasks.inputs(options),
        make=lambda partial: make(options, sources, partial),
    )


if __name__ == "__main__":
    cli.main(main)
