"""Divide documents into training shards and held-out shards.

    python -m data.shards --source workdir/corpus/documents --output workdir/corpus/shards --shards 8

A document is held out if a hash of the seed and its text is below --held_out_fraction of all hashes. So it depends on
the text alone: more documents never move one from one split to the other, and a text that is held out is never trained
on. A small corpus may have nothing held out, which is told. The other documents are ordered by that hash and divided
into training shards with equal numbers of documents. A held-out shard has documents of one source, which the manifest
names.

Without --shards there are --max_shards training shards, or as many as have eight documents each, because a random
second segment is from another document of the shard.

There are two passes. In the first one eight bytes per document are held in memory, in the second one twelve, and 67
between them, while the documents are divided.
"""

import dataclasses
import hashlib
import math
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from bert.core import cli, outputs, ranges
from bert.core.errors import InputError
from bert.core.ranges import Range, Seed
from data.pipeline import languages, losses, parts, tasks
from data.pipeline.duplicates import held_out_limit, is_held_out
from data.pipeline.parts import Part
from data.pipeline.progress import Progress

FEWEST = 8  # documents of a training shard, if there is a choice
FEWEST_HELD_OUT = 2  # a pair for next-sentence prediction needs two documents
# An accuracy of n predictions has a standard error of at most 0.5 / sqrt(n). For two of them to be a point (0.01), n is
# 10,000. With 15 % of the tokens predicted and 4.5 characters in a token, as in English, that is so much text.
MEANINGFUL = 300_000  # characters
BUFFER_BYTES = 64 * 1024 * 1024  # of all shards together; there may be more shards than a process may have open files


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.shards`."""

    source: Path
    """folder written by data.documents"""
    output: Path
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
        ranges.check(self)


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
    """Divide the documents. Those with equal keys get the same file, as the first of them does.

    keys: uint64 [documents]. sources: numbers of their sources [documents]. exactly: make so many shards, else fewer if
    they would have less than `FEWEST` documents. Raise InputError if there are fewer different documents to train on
    than shards.
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
    """Return why so many documents cannot be divided, and the remedy."""
    if not trained:
        return f"all {held_out:,} documents are held out; give more text or a smaller --held_out_fraction"
    return (
        f"{trained:,} different documents to train on, beside {held_out:,} held out, cannot fill {shards:,} training "
        "shards; give more text, fewer --shards (SHARDS of make), or leave that out for as many as can be filled"
    )


def make(options: Options, sources: Sequence[Part], partial: Path) -> outputs.StageResult:
    """Read the documents once for their keys, and again to copy their lines."""
    keys, documents = array("Q"), [0]  # number of documents up to the end of each part
    progress, characters = Progress("shards"), [0, 0]  # of the documents to train on, and of those held out
    limit = held_out_limit(options.held_out_fraction)
    for source in sources:
        for document in parts.read_records(source, "sentences"):
            text = "\n".join(document["sentences"])
            key = content_key(text, options.seed)
            keys.append(key)
            characters[key < limit] += len(text) - max(0, len(document["sentences"]) - 1)
        documents.append(len(keys))
        progress.add(0, source.path.stat().st_size)
    source_names = list(dict.fromkeys(source.source for source in sources))
    numbers = np.array([source_names.index(source.source) for source in sources], np.uint16)
    files, held_out_sources, shards = assign(
        np.frombuffer(keys, np.uint64),
        np.repeat(numbers, np.diff(documents)),
        options.shards or options.max_shards,
        options.held_out_fraction,
        exactly=options.shards is not None,
    )
    names = _names("heldout", len(held_out_sources)) + _names("train", shards)
    for shard, size in _copy(sources, files, [partial / name for name in names]):
        progress.add(int(shard >= 0), size)
    records = dict(zip(names, np.bincount(files, minlength=len(names)).tolist(), strict=True))
    source_of = {name: source_names[number] for name, number in zip(names, held_out_sources, strict=False)}
    held_out = sum(records[name] for name in source_of)
    counts = {
        "documents": len(keys),
        "characters": sum(characters),
        "train_documents": len(keys) - held_out,
        "train_characters": characters[0],
        "held_out_documents": held_out,
        "held_out_characters": characters[1],
    }
    lost = losses.Losses()
    lost.read(len(keys), sum(characters))
    for split in ("train", "held_out"):
        lost.wrote(counts[f"{split}_documents"], counts[f"{split}_characters"])
    losses.tell("shards", lost.report())
    summary = (
        f"{counts['train_documents']:,} with {characters[0]:,} characters in {shards:,} training shards, "
        f"{held_out:,} with {characters[1]:,} held out"
    )
    if len(source_names) > 1:
        each = {one: sum(records[name] for name in source_of if source_of[name] == one) for one in source_names}
        summary += f" ({', '.join(f'{count:,} of {one}' for one, count in each.items())})"
    progress.done(summary)
    if shards < (options.shards or options.max_shards):
        print(
            f"shards: {shards:,} training shards instead of {options.max_shards:,}: at least {FEWEST} documents in "
            "each, if there are so many, because a random second segment is from another document of its shard",
            file=sys.stderr,
        )
    if not held_out:
        print(f"shards: warning: {_nothing_held_out(np.frombuffer(keys, np.uint64))}", file=sys.stderr)
    elif held_out < FEWEST_HELD_OUT or characters[1] < MEANINGFUL:
        print(f"shards: warning: {_little_held_out(held_out, characters[1])}", file=sys.stderr)
    extra = {"losses": lost.report()} | languages.of(options.source)
    return outputs.StageResult(counts=counts, records=records, sources=source_of, extra=extra)


def _nothing_held_out(keys: np.ndarray) -> str:
    """Return that nothing is held out, and with which fraction something is."""
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
    """Return that what is held out is little, and how uncertain a figure is."""
    predictions = max(1, characters * 10_000 // MEANINGFUL)
    pairs = " and pairs need two documents" if documents < FEWEST_HELD_OUT else ""
    return (
        f"{documents:,} documents with {characters:,} characters are held out, too few for a meaningful figure: an "
        f"accuracy is uncertain by {min(100.0, 100 / math.sqrt(predictions)):.1f} points (two standard errors){pairs}; "
        "give more text or a larger --held_out_fraction (HELDOUT of make)"
    )


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
    wanted = options.shards or options.max_shards
    built = outputs.build(
        options.output,
        stage="shards",
        parameters=tasks.parameters(options, ["max_shards"]) | {"shards": wanted},  # as before there was --max_shards
        inputs=tasks.inputs(options),
        make=lambda partial: make(options, sources, partial),
    )
    if options.shards and sum(name.startswith("train-") for name in built.files) < wanted:  # made without --shards
        raise InputError(too_few(built.count("train_documents"), built.count("held_out_documents"), wanted))


if __name__ == "__main__":
    cli.main(main)
