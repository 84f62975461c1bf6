"""Which samples make which update: a pure function of (seed, position), independent of the number of ranks.

The order of an epoch is computed, not stored: a Feistel network gives a pseudo-random permutation of 0..n-1 in constant
memory. To resume, only the number of the update is needed.
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

ROUNDS = 4  # of the Feistel network
# Trimmed batches are padded to a multiple of some tokens, since each length is compiled separately, for about a second
# on a CPU. By length of the batch, so that padding is at most an eighth or so of it:
LENGTH_MULTIPLES = {64: 8, 128: 16, 65_536: 32}
GPU_LENGTH_MULTIPLE = 128  # the same on a GPU, where XLA compiles the whole step for each length, for a minute or more
EVALUATION_KEY = 2**32 - 1  # of the permutation whose first images are evaluated; no epoch has it
PREFETCH = 2  # updates that are read in advance

Batch = dict[str, tf.Tensor]


class Source(Protocol):
    """Samples by number: stored (`records.Dataset`), or made while reading (`dynamic_masking.DynamicMasking`)."""

    def __len__(self) -> int: ...

    def read(self, indices: np.ndarray, positions: np.ndarray) -> Batch:
        """Return samples `indices` [n], which have `positions` [n] in the run, on which their randomness depends."""


class HeldOut(Source, Protocol):
    """Samples of one or several sources, such as Wikipedia and books."""

    sources: tuple[str, ...]

    def source_of(self, indices: np.ndarray) -> np.ndarray:
        """Return for each sample the number of its source in `sources` [n]."""


def permute(indices: np.ndarray, size: int, key: int) -> np.ndarray:
    """Return the images of `indices` [n] under the permutation of range(size) that `key` selects.

    A Feistel network permutes the next power of four; images outside range(size) are permuted again ("cycle walking"),
    so that the result is a permutation (Black and Rogaway 2002).
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


def sample_order(positions: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return the samples at `positions` [n] of consecutive epochs over `size` samples, each in its own order."""
    samples = np.empty_like(positions)
    for epoch in np.unique(positions // size):
        here = positions // size == epoch
        samples[here] = permute(positions[here] % size, size, seed * 2**32 + int(epoch))
    return samples


class BatchSampler:
    """The micro-batches of one rank."""

    def __init__(self, source: Source, batch: BatchConfig, seed: int, rank: int = 0, num_ranks: int = 1) -> None:
        if batch.bucket_by_length and not isinstance(source, Dataset):
            raise UsageError("batch.bucket_by_length needs stored instances, whose lengths are known; set it to 0")
        self.source, self.batch, self.seed = source, batch, seed
        self.rank, self.num_ranks = rank, num_ranks
        self.accumulation = batch.accumulation(num_ranks)
        self._pool_positions = functools.lru_cache(maxsize=2)(self._bucket_pool)  # neighbouring updates share a pool

    def read(self, update: int) -> list[Batch]:
        """Return the micro-batches of update `update` (from 0). Micro-batch k of rank r is number k * ranks + r.

        They are made on the CPU: on a GPU this thread would wait for the running step.
        """
        with tf.device("CPU:0"):
            return self._read(update)

    def _read(self, update: int) -> list[Batch]:
        size = self.batch.per_device
        positions = self._positions(update)
        firsts = (np.arange(self.accumulation) * self.num_ranks + self.rank) * size
        micro_batches = [positions[first : first + size] for first in firsts]
        batches = [self.source.read(sample_order(at, len(self.source), self.seed), at) for at in micro_batches]
        if self.batch.pack:
            return [pack(batch) for batch in batches]
        return [trim_padding(batch) for batch in batches] if self.batch.bucket_by_length else batches

    def _positions(self, update: int) -> np.ndarray:
        """Return the positions in the run whose samples make the update [total]."""
        total, group = self.batch.total, self.batch.bucket_by_length
        return self._pool_positions(update // group)[update % group] if group else update * total + np.arange(total)

    def _bucket_pool(self, pool: int) -> np.ndarray:
        """Return the positions of each update in a pool of `bucket_by_length` updates [group, total].

        The samples of the pool are sorted by size and distributed to its updates, whose order is then random. So a
        batch has samples of similar length, and the pool has the same samples as without bucketing.
        """
        assert isinstance(self.source, Dataset)
        total, group = self.batch.total, self.batch.bucket_by_length
        positions = pool * group * total + np.arange(group * total)
        by_size = np.argsort(self.source.sizes(sample_order(positions, len(self.source), self.seed)), kind="stable")
        turns = permute(np.arange(group), group, self.seed * 2**32 + 2**31 + pool)
        return positions[by_size].reshape(group, total)[turns]

    def iterate(self, first: int, last: int) -> Generator[list[Batch], None, None]:
        """Yield `read` for updates first..last-1, read in advance by a thread."""
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as reader:
            pending = [reader.submit(self.read, update) for update in range(first, min(first + PREFETCH, last))]
            for update in range(first, last):
                if update + PREFETCH < last:
                    pending.append(reader.submit(self.read, update + PREFETCH))
                yield pending.pop(0).result()


def padded_length(tokens: int, multiple: int, limit: int) -> int:
    """Return `tokens` rounded up to a multiple, but at most `limit`."""
    return min(-(-tokens // multiple) * multiple, limit)


def training_multiple(tokens: int) -> int:
    """Return the number of which the length of a batch in training is a multiple, if it has `tokens` at most."""
    if has_gpu():
        return GPU_LENGTH_MULTIPLE
    return next(multiple for longest, multiple in LENGTH_MULTIPLES.items() if tokens <= longest)


def trim_padding(batch: Batch, multiple: int | None = None) -> Batch:
    """Remove columns that are padding in every row; the remaining number is a multiple of `multiple`.

    None: the multiple of training. Rows are all axes but the last, which are several for multiple choice.
    """
    mask = batch["input_mask"]
    tokens = int(tf.reduce_max(tf.reduce_sum(mask, axis=-1)))
    columns = padded_length(tokens, multiple or training_multiple(tokens), mask.shape[-1])
    same = mask.shape[1:]
    return {name: value[..., :columns] if value.shape[1:] == same else value for name, value in batch.items()}


def pack(batch: Batch) -> Batch:
    """Pack the instances of a batch into fewer rows (`packing.pack`)."""
    rows = packing.pack({name: value.numpy() for name, value in batch.items()})
    return {name: tf.constant(value) for name, value in rows.items()}


def evaluated(size: int, limit: int) -> np.ndarray:
    """Return which `limit` of `size` samples a model is evaluated on, in ascending order; all, if there are no more.

    They are spread over the whole, and always the same ones.
    """
    return np.sort(permute(np.arange(limit), size, EVALUATION_KEY)) if limit < size else np.arange(size)


def evaluation(
    source: HeldOut, batch: BatchConfig, limit: int, rank: int = 0, num_ranks: int = 1
) -> Iterator[tuple[str, Batch]]:
    """Yield this rank's share of the `evaluated` samples in batches, each after the name of its source.

    The last batch of each source may be smaller.
    """
    samples = evaluated(len(source), limit)
    source_of, size = source.source_of(samples), batch.per_device
    number = 0  # of the batch, over all ranks
    for place, name in enumerate(source.sources):
        mine = samples[source_of == place]
        for start in range(0, len(mine), size):
            if number % num_ranks == rank:
                indices = mine[start : start + size]
                with tf.device("CPU:0"):
                    samples_read = source.read(indices, indices)
                yield name, samples_read
            number += 1
