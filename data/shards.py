"""Divide documents into training shards and held-out shards.

    python -m data.shards --source workdir/corpus/documents --output workdir/corpus/shards --shards 8

Documents are ordered by a hash of the seed and their text. The first ones are held out; the others are divided into
training shards with equal numbers of documents. Identical texts always go to the same shard, so a held-out text is
never trained on. There are two passes; eight bytes per document are held in memory.
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
from data.pipeline import parts
from data.pipeline.parts import Part
from data.pipeline.progress import Progress

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
    """fraction of the documents to hold out from training; at least one document is held out"""
    seed: Seed = 12345
    """seed of the order of documents"""

    def __post_init__(self) -> None:
        ranges.check(self)


def content_key(sentences: Sequence[str], seed: int) -> int:
    """Return a 64-bit hash of a document's text and the seed."""
    text = "\n".join(sentences).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest())


def assign(keys: np.ndarray, shards: int, held_out_fraction: float) -> tuple[np.ndarray, int]:
    """Return the file number of each document, and the number h of held-out files.

    keys: uint64 [documents]. Files 0 .. h-1 are held out, files h .. h+shards-1 are for training. Documents with equal
    keys get the same file. Raise InputError if there are fewer different documents than files.
    """
    distinct, rank = np.unique(keys, return_inverse=True)
    held_out = max(1, round(len(distinct) * held_out_fraction))
    held_out_files = max(1, round(shards * held_out_fraction))
    if held_out < held_out_files or len(distinct) - held_out < shards:
        raise InputError(
            f"{len(distinct)} different documents, {held_out} of them held out, cannot fill {shards} training and "
            f"{held_out_files} held-out shards; give more text or fewer --shards"
        )
    train_file = held_out_files + (rank - held_out) * shards // (len(distinct) - held_out)
    files = np.where(rank < held_out, rank * held_out_files // held_out, train_file)
    return files, held_out_files


def make(options: Options, sources: Sequence[Part], partial: Path) -> outputs.StageResult:
    """Read the documents once for their keys, and again to copy their lines."""
    keys = array("Q")
    progress = Progress("shards")
    for source in sources:
        for document in parts.read_records(source, "sentences"):
            keys.append(content_key(document["sentences"], options.seed))
        progress.add(0, source.path.stat().st_size)
    files, held_out_files = assign(np.frombuffer(keys, np.uint64), options.shards, options.held_out_fraction)
    names = _names("heldout", held_out_files) + _names("train", options.shards)
    for shard, size in _copy(sources, files, [partial / name for name in names]):
        progress.add(int(shard >= 0), size)
    records = dict(zip(names, np.bincount(files, minlength=len(names)).tolist(), strict=True))
    held_out = sum(records[name] for name in names[:held_out_files])
    counts = {"documents": len(keys), "held_out_documents": held_out, "train_documents": len(keys) - held_out}
    progress.done(f"{counts['train_documents']:,} in {options.shards} training shards, {held_out:,} held out")
    return outputs.StageResult(counts=counts, records=records)


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
        parameters={key: getattr(options, key) for key in ("shards", "held_out_fraction", "seed")},
        inputs=[options.source],
        make=lambda partial: make(options, sources, partial),
    )


if __name__ == "__main__":
    cli.main(main)
