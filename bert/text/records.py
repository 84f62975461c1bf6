"""TFRecord files with an index: written by the data stages, read by the trainer.

A dataset is a folder with a manifest and, for each split, files `<split>-*.tfrecord`. Beside each is `<name>.index`
with the byte offsets of its records, which are kept in memory. So any record can be read with one small read, and the
sample order can be a pure function of the position. The CRC of every record is checked when it is read: a damaged
record is an error that names it. (TensorFlow's own `ignore_errors()` silently drops the rest of the file.)
"""

import dataclasses
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from bert.core import manifest
from bert.core.errors import InputError, IntegrityError
from bert.core.manifest import File
from bert.core.random_access import RandomAccess, missing
from bert.core.rows import Rows
from bert.hardware import graphs
from bert.text import frames, vocabulary
from bert.text.instance_config import FeatureSpec, InstanceConfig, only_label

MADE: Rows[Callable[..., Any]] = Rows({"documents": "bert.text.dynamic_masking:DynamicMasking"})
"""what makes instances of records that are none, by the kind of the records"""
T = TypeVar("T")

LONGEST = 1 << 24  # values of a feature
LARGEST_VOCABULARY = 1 << 31
UNPARSED = (tf.errors.InvalidArgumentError, UnicodeDecodeError)  # the latter if its message has the record's bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """Shape and type of a feature. None is a size that differs between records."""

    shape: list[int | None]
    dtype: Literal["int64", "float32"]

    def __post_init__(self) -> None:
        if any(size is not None and not 0 < size <= LONGEST for size in self.shape):
            raise ValueError(f"the shape {self.shape} is not one of a record")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """What the manifest of a dataset says about its records."""

    features: dict[str, Feature]
    vocab_size: int
    vocab_sha256: str | None = None
    kind: Literal["instances", "documents", "tokens"] = "instances"
    instances: InstanceConfig | None = None
    """how instances of pretraining were made, or are made from the records"""

    def __post_init__(self) -> None:
        if not 0 < self.vocab_size <= LARGEST_VOCABULARY:
            raise ValueError(f"vocab_size {self.vocab_size} is not that of a vocabulary")


class Samples(Protocol):
    """Instances of pretraining by number: stored ones (`Dataset`), or instances that a row of `MADE` makes."""

    manifest: manifest.Manifest
    description: Description
    spec: FeatureSpec
    sources: tuple[str, ...]

    def __len__(self) -> int: ...

    def read(self, indices: np.ndarray, positions: np.ndarray) -> dict[str, tf.Tensor]:
        """Return samples `indices` [n]. Their randomness depends on their `positions` [n] in the run."""

    def source_of(self, indices: np.ndarray) -> np.ndarray:
        """Return for each sample the number of its source in `sources` [n]."""

    def only_label(self) -> int | None:
        """Return the label that all pairs have, if they have one."""


class Dataset:
    """Random access to the records of one split.

    sources: names of the sources of its records, such as "books"; a single one, "", if the manifest does not name them.
    skip_bad: number of damaged records that are tolerated. Each is reported and replaced by the next good record.
    described: the manifest, if the files are `checked` already; they are then opened when their records are read.

    An index is read once, and takes 4 bytes for each record; 8 in a file of 4 GiB or more.

    Raises InputError if the folder has no such split, IntegrityError if a file is missing, if an index or the
    vocabulary is not as the manifest says, or if a record is damaged.
    """

    def __init__(self, folder: Path, split: str, skip_bad: int = 0, described: manifest.Manifest | None = None) -> None:
        self.split, self.skip_bad, self.skipped = split, skip_bad, set[int]()
        self.manifest = described or checked(folder)
        listed = self.manifest.files
        names = sorted(name for name in listed if name.startswith(f"{split}-") and name.endswith(".tfrecord"))
        if not names or not self.manifest.extra.get("features"):
            raise InputError(f"{folder}: no TFRecords of split {split!r}; make them with python -m data.tfrecords")
        self.description = self.manifest.extra_as(Description)
        self.spec: FeatureSpec = {name: vars(feature) for name, feature in self.description.features.items()}
        self.paths = [folder / name for name in names]
        sources = [listed[name].source or "" for name in names]
        self.sources = tuple(dict.fromkeys(sources))
        self._source_of_shard = np.array([self.sources.index(source) for source in sources])
        counts = [_count(folder / name, listed[name]) for name in names]
        _check_vocabulary(self.manifest, self.description)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._limits = _limits(self.description)
        self._disk = RandomAccess()
        self._indices: dict[int, np.ndarray] = {}  # by the number of the file
        self._parse = graphs.function(self._parse_batch, input_signature=[tf.TensorSpec([None], tf.string)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: np.ndarray, positions: np.ndarray | None = None) -> dict[str, tf.Tensor]:
        """Return the records at `indices` [n] as tensors [n, ...] of the dataset's features (integers as int32).

        `positions` in the run do not matter here: other kinds of sources need the parameter. Raise IntegrityError,
        naming the record, for a number that is outside its limits (ids, positions, labels): on GPUs a look-up of it
        would not fail.
        """
        batch, outside = self.parse(indices, self._parse)
        for name, rows in outside.items():
            if (rows := rows.numpy()).any():
                place = self.place(int(indices[rows.argmax()]))
                raise IntegrityError(
                    f"{place} has a number in {name} that is not one of 0 to {self._limits[name] - 1}; build it again"
                )
        return batch

    def parse(self, indices: np.ndarray, parser: Callable[[tf.Tensor], T]) -> T:
        """Return the result of `parser` for the payloads of the records at `indices` [n].

        Raise IntegrityError, naming the record, if it cannot parse one: such records were written by other programs.
        """
        payloads = [self.payload(int(index)) for index in indices]
        try:
            return parser(tf.constant(payloads, tf.string))
        except UNPARSED:
            for index, payload in zip(indices, payloads, strict=True):
                try:
                    parser(tf.constant([payload], tf.string))
                except UNPARSED as error:
                    raise IntegrityError(
                        f"{self.place(int(index))} does not have the features in the manifest; build it again"
                    ) from error
            raise

    def place(self, index: int) -> str:
        """Return the file of record `index` and its number there, for messages."""
        shard = int(self.shard_of(np.asarray(index)))
        return f"{self.paths[shard]}: record {index - int(self._starts[shard])}"

    def shard_of(self, indices: np.ndarray) -> np.ndarray:
        """Return the number of each record's file [n]."""
        return np.searchsorted(self._starts, indices, side="right") - 1

    def source_of(self, indices: np.ndarray) -> np.ndarray:
        """Return for each record the number of its source in `sources` [n]."""
        return self._source_of_shard[self.shard_of(indices)]

    def only_label(self) -> int | None:
        """Return the label that all pairs have (`only_label`), by the manifest."""
        counts = self.manifest.counts.get(self.split)
        return only_label(counts) if isinstance(counts, dict) else None

    def sizes(self, indices: np.ndarray) -> np.ndarray:
        """Return the size in bytes of each record [n]. Of padded records, those with more tokens are larger."""
        sizes, shards = np.zeros(len(indices), np.int64), self.shard_of(indices)
        for shard in np.unique(shards):
            offsets = self._offsets(int(shard))
            rows = indices[shards == shard] - self._starts[shard]
            sizes[shards == shard] = offsets[rows + 1].astype(np.int64) - offsets[rows].astype(np.int64)
        return sizes

    def _offsets(self, shard: int) -> np.ndarray:
        """Return the byte offsets of a file's records, and of its end [records + 1]."""
        if shard not in self._indices:
            path = self.paths[shard]
            self._indices[shard] = _read_index(path, self.manifest.files[path.name])
        return self._indices[shard]

    def payload(self, index: int) -> bytes:
        """Return the payload of record `index` after checking it; of the next good record, if damage is tolerated."""
        for candidate in range(index, index + len(self)):
            record = candidate % len(self)
            try:
                return self._payload(record)
            except IntegrityError as error:
                if record in self.skipped:
                    continue
                if len(self.skipped) == self.skip_bad:
                    raise
                self.skipped.add(record)
                print(f"warning: {error}; skipped ({len(self.skipped)} of at most {self.skip_bad})", file=sys.stderr)
        raise IntegrityError(f"{self.manifest.path}: every record is damaged; build it again")

    def _payload(self, index: int) -> bytes:
        shard = int(self.shard_of(np.asarray(index)))
        path, row = self.paths[shard], index - int(self._starts[shard])
        begin, end = self._offsets(shard)[row : row + 2].tolist()
        if not begin + frames.HEADER + frames.FOOTER <= end <= self.manifest.files[path.name].bytes:
            raise IntegrityError(
                f"{frames.index_path(path)}: entry {row} is damaged (no record at this offset); build it again"
            )
        frame = self._disk.read(path, end - begin, begin)
        payload = frame[frames.HEADER : -frames.FOOTER]
        if frames.encode(payload) != frame:
            raise IntegrityError(f"{path}: record {row} at byte {begin} is damaged (checksum differs); build it again")
        return payload

    def _parse_batch(self, serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Return the features [n, ...]; and for each feature with a limit, which records [n] are outside it."""
        spec = {k: tf.io.FixedLenFeature(v["shape"], tf.as_dtype(v["dtype"])) for k, v in self.spec.items()}
        parsed = tf.io.parse_example(serialized, spec)
        features = {k: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for k, v in parsed.items()}
        rows = {name: tf.reshape(parsed[name], [tf.size(serialized), -1]) for name in self._limits}
        outside = {name: (values < 0) | (values >= self._limits[name]) for name, values in rows.items()}
        return features, {name: tf.reduce_any(values, axis=1) for name, values in outside.items()}


def checked(folder: Path) -> manifest.Manifest:
    """Return the manifest of a folder after a look at all its files and at the ends of their indices.

    With several ranks, one rank does this for all. Raise as `manifest.load` does, and IntegrityError if an index and
    the manifest differ.
    """
    described = manifest.load(folder)
    for name, listed in described.files.items():
        if name.endswith(".tfrecord"):
            _check_index(folder / name, listed)
    return described


def samples(
    folder: Path,
    split: str,
    seed: int,
    skip_bad: int = 0,
    mask_shares: tuple[float, ...] = (),
    described: manifest.Manifest | None = None,
) -> Samples:
    """Return the samples of a folder of `python -m data.tfrecords`: its instances, or instances made of its documents.

    seed, mask_shares: for instances that are made while they are read; mask_shares (): the shares of the records.
    skip_bad, described: as in `Dataset`.
    """
    stored = Dataset(folder, split, skip_bad, described)
    kind = stored.description.kind
    made: Samples = MADE[kind](stored, seed, mask_shares) if kind in MADE else stored
    return made


def has_split(described: manifest.Manifest, split: str) -> bool:
    """Return whether a finished folder has a record of this split. A small corpus may have nothing held out."""
    listed = described.files.items()
    ours = [entry for name, entry in listed if name.startswith(f"{split}-") and name.endswith(".tfrecord")]
    return any(entry.records != 0 for entry in ours)


def _limits(description: Description) -> dict[str, int]:
    """Return a limit for each integer feature that is an index: its values must be below it."""
    integers = {name: feature.shape for name, feature in description.features.items() if feature.dtype == "int64"}
    tokens = (integers.get("input_ids") or [None])[-1]
    limits = {
        "input_ids": description.vocab_size,
        "segment_ids": 2,
        "masked_lm_positions": tokens or LONGEST,
        "masked_lm_ids": description.vocab_size,
        "next_sentence_labels": 2,
    }
    return {name: limit for name, limit in limits.items() if name in integers}


def _count(path: Path, listed: File) -> int:
    if listed.records is None:
        raise IntegrityError(f"{path}: the manifest does not say how many records it has; build the folder again")
    return listed.records


def _check_index(path: Path, listed: File) -> None:
    """Raise IntegrityError if size, beginning or end of a file's index and the manifest differ."""
    try:
        with open(frames.index_path(path), "rb") as stream:
            first, size = stream.read(8), stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 8))
            _check_ends(path, listed, size, first + stream.read(8))
    except FileNotFoundError as error:
        raise missing(frames.index_path(path)) from error


def _read_index(path: Path, listed: File) -> np.ndarray:
    """Return the offsets in the index of a file [records + 1]. Raise IntegrityError if the manifest differs."""
    try:
        content = frames.index_path(path).read_bytes()
    except FileNotFoundError as error:
        raise missing(frames.index_path(path)) from error
    _check_ends(path, listed, len(content), content[:8] + content[-8:])
    offsets = np.frombuffer(content, "<u8")
    return offsets.astype(np.uint32) if offsets.max() < 1 << 32 else offsets


def _check_ends(path: Path, listed: File, size: int, ends: bytes) -> None:
    """size: of the index in bytes. ends: its first and its last entry."""
    index, count = frames.index_path(path), _count(path, listed)
    if size != 8 * (count + 1):
        raise IntegrityError(
            f"{index}: has {size} bytes, but {8 * (count + 1)} are needed for {count} records; build the folder again"
        )
    begin, end = struct.unpack("<2Q", ends)
    if (begin, end) != (0, listed.bytes):
        raise IntegrityError(
            f"{index}: its records are bytes {begin} to {end}, but the file has {listed.bytes}; build the folder again"
        )


def _check_vocabulary(content: manifest.Manifest, description: Description) -> None:
    """Raise IntegrityError if the folder's vocabulary, where it has one, is not the one of the records."""
    path = vocabulary.path_in(content.path)
    if path.name not in content.files:
        return
    listed = content.files[path.name].sha256
    manifest.verify_file(path, listed)
    if rules := content.files.get(vocabulary.RULES):
        manifest.verify_file(content.path / vocabulary.RULES, rules.sha256)
    if description.vocab_sha256 not in (None, listed):
        raise IntegrityError(f"{path}: the records were made with another vocabulary; build the folder again")
