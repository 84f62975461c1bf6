"""Documents to shards: which are trained on, which are held out, and in which file each stands.

    python -m data.shards --source workdir/corpus/documents --output workdir/corpus/shards --shards 8

Documents are ordered by a hash of the seed and their content. The first are held out, the rest cut into shards of
equal number of documents. So identical texts always land together, and never on both sides. Two passes; eight bytes a
document are kept.
"""

import dataclasses
import hashlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bert import cli
from bert.errors import InputError, UsageError
from bert.storage import manifest
from data.pipeline import parts
from data.pipeline.progress import Progress

BUFFER_BYTES = 64 * 1024 * 1024  # of all shards together: there may be more of them than a process may hold open


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.shards`."""

    source: Path
    """folder written by data.documents"""
    output: Path
    """folder to write"""
    shards: int = 8
    """training shards; each becomes one TFRecord file and one task of a worker"""
    held_out_fraction: float = 0.02
    """of the documents, at least one; never trained on"""
    seed: int = 12345
    """another seed, another split"""

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise UsageError(f"--shards {self.shards}: at least 1 is needed")
        if not 0 < self.held_out_fraction < 1:
            raise UsageError(f"--held_out_fraction {self.held_out_fraction}: must be between 0 and 1, as 0.02")


def content_key(sentences: Sequence[str], seed: int) -> int:
    """64 bits that depend on the text of a document and the seed only."""
    text = "\n".join(sentences).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest())


def assign(keys: np.ndarray, shards: int, held_out_fraction: float) -> tuple[np.ndarray, int]:
    """The file of each document, from its key: 0 .. h-1 are held out, h .. h+shards-1 are trained on; and h.

    Equal keys share a file. Raises InputError if there are fewer different documents than files.
    """
    distinct, place = np.unique(keys, return_inverse=True)
    held_out = max(1, round(len(distinct) * held_out_fraction))
    held_out_files = max(1, round(shards * held_out_fraction))
    if held_out < held_out_files or len(distinct) - held_out < shards:
        raise InputError(
            f"{len(distinct)} different documents, {held_out} of them held out, cannot fill {shards} training and "
            f"{held_out_files} held-out shards; give more text or fewer --shards"
        )
    train_place = (place - held_out) * shards // (len(distinct) - held_out)
    files = np.where(place < held_out, place * held_out_files // held_out, held_out_files + train_place)
    return files, held_out_files


def make(options: Options, sources: Sequence[Path], partial: Path) -> manifest.StageResult:
    """Reads the documents once for their keys, and once more to copy their lines."""
    keys = array("Q")
    progress = Progress("shards")
    for path in sources:
        for document in parts.read_records(path):
            keys.append(content_key(document["sentences"], options.seed))
        progress.add(0, path.stat().st_size)
    files, held_out_files = assign(np.frombuffer(keys, np.uint64), options.shards, options.held_out_fraction)
    names = _names("heldout", held_out_files) + _names("train", options.shards)
    for shard, size in _copy(sources, files, [partial / name for name in names]):
        progress.add(int(shard >= 0), size)
    records = dict(zip(names, np.bincount(files, minlength=len(names)).tolist(), strict=True))
    held_out = sum(records[name] for name in names[:held_out_files])
    counts = {"documents": len(keys), "held_out_documents": held_out, "train_documents": len(keys) - held_out}
    progress.done(f"{counts['train_documents']:,} in {options.shards} training shards, {held_out:,} held out")
    return manifest.StageResult(counts=counts, records=records)


def _names(split: str, count: int) -> list[str]:
    return [f"{split}-{number:05d}-of-{count:05d}.jsonl" for number in range(count)]


def _copy(sources: Sequence[Path], files: np.ndarray, targets: Sequence[Path]) -> Iterator[tuple[int, int]]:
    """Copies line n of the sources to target `files[n]`; yields the target's number and the size of each."""
    buffers = [bytearray() for _ in targets]
    held, number = 0, 0
    for path in sources:
        with open(path, "rb") as stream:
            for line in stream:
                file = int(files[number])
                buffers[file] += line
                number, held = number + 1, held + len(line)
                yield file, len(line)
                if held > BUFFER_BYTES:
                    _flush(buffers, targets)
                    held = 0
    _flush(buffers, targets)


def _flush(buffers: Sequence[bytearray], targets: Sequence[Path]) -> None:
    for buffer, target in zip(buffers, targets, strict=True):
        with open(target, "ab") as stream:
            stream.write(buffer)
        buffer.clear()


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.shards", description=__doc__)
    sources = parts.paths(options.source, "part", "documents")
    manifest.build(
        options.output,
        stage="shards",
        parameters={key: getattr(options, key) for key in ("shards", "held_out_fraction", "seed")},
        inputs=[options.source],
        make=lambda partial: make(options, sources, partial),
    )


if __name__ == "__main__":
    cli.main(main)
