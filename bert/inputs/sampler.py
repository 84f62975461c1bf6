"""Which samples make which update: a pure function of (seed, position), whatever the number of ranks.

The samples of an epoch are visited in a pseudo-random order that is computed, not stored: a permutation of 0..n-1 by a
Feistel network, in constant memory for any n. Resuming is therefore a matter of knowing one number.
"""

import functools
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import tensorflow as tf

from bert.config import BatchConfig
from bert.errors import UsageError
from bert.hardware.devices import has_gpu
from bert.inputs import packing
from bert.inputs.hashing import mix
from bert.inputs.records import Dataset

ROUNDS = 4
WIDTH = 32  # tokens: batches cut to their longest row have multiples of it, since every width is compiled for
GPU_WIDTH = 128  # the same on a GPU, where XLA compiles the whole step for each width, a minute or more
PREFETCH = 2  # updates whose samples are read while the current one computes

Batch = dict[str, tf.Tensor]


class Source(Protocol):
    """Samples by number: stored ones (`records.Dataset`), or made while reading (`chunks.DynamicMasking`)."""

    def __len__(self) -> int: ...

    def read(self, indices: np.ndarray, positions: np.ndarray) -> Batch:
        """Samples `indices` [n], which stand at `positions` [n] of the run: what is random about them follows these."""


def permute(indices: np.ndarray, size: int, key: int) -> np.ndarray:
    """The images of `indices` [n] under the permutation of range(size) that `key` selects.

    A Feistel network permutes the next power of four; images outside range(size) are sent through it again ("cycle
    walking"), which keeps it a permutation (Black and Rogaway 2002).
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    low = (np.uint64(1) << half) - np.uint64(1)
    images = indices.astype(np.uint64)
    outside = np.ones(len(images), bool)
    while outside.any():
        left, right = images[outside] >> half, images[outside] & low
        for number in range(ROUNDS):
            left, right = right, left ^ (mix(right, key * ROUNDS + number) & low)
        images[outside] = (left << half) | right
        outside = images >= size
    return images.astype(np.int64)


def order(positions: np.ndarray, size: int, seed: int) -> np.ndarray:
    """The samples at `positions` [n] of endless epochs over `size` samples, each epoch in its own order."""
    samples = np.empty_like(positions)
    for epoch in np.unique(positions // size):
        here = positions // size == epoch
        samples[here] = permute(positions[here] % size, size, seed * 2**32 + int(epoch))
    return samples


class BatchSampler:
    """This rank's micro-batches of every update."""

    def __init__(self, source: Source, batch: BatchConfig, seed: int, rank: int = 0, num_ranks: int = 1) -> None:
        if batch.bucket_by_length and not isinstance(source, Dataset):
            raise UsageError("batch.bucket_by_length needs records whose lengths are known in advance; leave it 0")
        self.source, self.batch, self.seed = source, batch, seed
        self.rank, self.num_ranks = rank, num_ranks
        self.accumulation = batch.accumulation(num_ranks)
        self._dealt = functools.lru_cache(maxsize=2)(self._deal)  # the updates of a pool follow each other

    def read(self, update: int) -> list[Batch]:
        """The micro-batches of update `update` (from 0): micro-batch k of rank r is its (k * ranks + r)-th.

        They are made on the CPU: on a GPU, this thread's work would wait behind the running step.
        """
        with tf.device("CPU:0"):
            return self._read(update)

    def _read(self, update: int) -> list[Batch]:
        size = self.batch.per_device
        positions = self._positions(update)
        firsts = (np.arange(self.accumulation) * self.num_ranks + self.rank) * size
        micro_batches = [positions[first : first + size] for first in firsts]
        found = [self.source.read(order(at, len(self.source), self.seed), at) for at in micro_batches]
        if self.batch.pack:
            return [packed(batch) for batch in found]
        multiple = GPU_WIDTH if has_gpu() else WIDTH
        return [trim(batch, multiple) for batch in found] if self.batch.bucket_by_length else found

    def _positions(self, update: int) -> np.ndarray:
        """The places in the run's order whose samples make the update [total]."""
        total, group = self.batch.total, self.batch.bucket_by_length
        return self._dealt(update // group)[update % group] if group else update * total + np.arange(total)

    def _deal(self, pool: int) -> np.ndarray:
        """The places that make each of the next `group` updates [group, total].

        Their samples are sorted by size and dealt out to them in a random order: a batch has like lengths, and every
        sample has its turn in the same updates as before.
        """
        assert isinstance(self.source, Dataset)
        total, group = self.batch.total, self.batch.bucket_by_length
        positions = pool * group * total + np.arange(group * total)
        by_size = np.argsort(self.source.sizes(order(positions, len(self.source), self.seed)), kind="stable")
        turns = permute(np.arange(group), group, self.seed * 2**32 + 2**31 + pool)
        return positions[by_size].reshape(group, total)[turns]

    def iterate(self, first: int, last: int) -> Generator[list[Batch], None, None]:
        """`read` for updates first..last-1, read ahead in a thread."""
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as reader:
            waiting = [reader.submit(self.read, update) for update in range(first, min(first + PREFETCH, last))]
            for update in range(first, last):
                if update + PREFETCH < last:
                    waiting.append(reader.submit(self.read, update + PREFETCH))
                yield waiting.pop(0).result()


def width(tokens: int, multiple: int, most: int) -> int:
    """Columns of a batch whose longest row has so many tokens: the next multiple, or `most`."""
    return min(-(-tokens // multiple) * multiple, most)


def trim(batch: Batch, multiple: int) -> Batch:
    """Without the columns that are padding in every row, up to a multiple of so many."""
    mask = batch["input_mask"]
    tokens = int(tf.reduce_max(tf.reduce_sum(mask, axis=1)))
    columns = width(tokens, multiple, mask.shape[1])
    return {name: value[:, :columns] if value.shape[1:] == mask.shape[1:] else value for name, value in batch.items()}


def packed(batch: Batch) -> Batch:
    """Its instances in as few rows as hold them (`packing.pack`)."""
    rows = packing.pack({name: value.numpy() for name, value in batch.items()})
    return {name: tf.constant(value) for name, value in rows.items()}


def evaluation(source: Source, batch: BatchConfig, limit: int, rank: int = 0, num_ranks: int = 1) -> Iterator[Batch]:
    """This rank's share of the first `limit` samples, in order, in batches of which the last may be smaller."""
    samples = np.arange(min(limit, len(source)))
    for start in range(rank * batch.per_device, len(samples), num_ranks * batch.per_device):
        some = samples[start : start + batch.per_device]
        with tf.device("CPU:0"):
            read = source.read(some, some)
        yield read
