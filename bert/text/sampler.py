"""Which samples make which update: a pure function of (seed, position), independent of the number of ranks.

The order of an epoch is computed, not stored: a Feistel network gives a pseudo-random permutation of 0..n-1 in constant
memory. To resume, only the number of the update is needed.
"""

import functools
import math
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import tensorflow as tf

from bert.core.config import BatchConfig
from bert.core.errors import UsageError
from bert.hardware.devices import has_gpu
from bert.text import packing
from bert.text.hashing import mix
from bert.text.records import Dataset

ROUNDS = 4  # of the Feistel network
# Trimmed batches are padded to a multiple of these tokens, since each length is compiled separately, for about a second
# on a CPU. The multiple grows with the length of the batch, so that padding is at most about an eighth of it:
LENGTH_MULTIPLES = {64: 8, 128: 16, 65_536: 32}
EVALUATION_MULTIPLE = 32  # the same in an evaluation, where each compilation serves fewer batches
GPU_LENGTH_MULTIPLE = 128  # the same on a GPU, where XLA compiles the whole step for each length, for a minute or more
EVALUATION_KEY = 2**32 - 1  # of the permutation whose first images are evaluated; no epoch has it
PREFETCH = 2  # updates that are read in advance
NEVER = 2**62  # the end of a run that has none

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


class SampleOrder:
    """The sample at each position of a run: epochs follow each other, and each epoch reads every sample once.

    Each epoch has another order. An update may begin in one epoch and end in the next. The next epoch then begins with
    samples that the update does not have yet. So no update has a sample twice, unless there are too few samples. After
    any update, the numbers of times that two samples were read differ by at most one.
    """

    def __init__(self, size: int, total: int, seed: int) -> None:
        """size: number of samples. total: samples of an update."""
        self.size, self.total, self.seed = size, total, seed
        self._heads: dict[int, np.ndarray] = {}  # of the last epochs
        # After this number of epochs an epoch begins with an update. In a set of fewer than two updates, each of these
        # epochs depends on the one before.
        self._cycle = total // math.gcd(size, total) if size < 2 * total else 1

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the samples at `positions` [n] of the run, [n]."""
        samples = np.empty_like(positions)
        for epoch in np.unique(positions // self.size).tolist():
            here = positions // self.size == epoch
            samples[here] = self._of_epoch(epoch, positions[here] % self.size)
        return samples

    def _of_epoch(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """Return the samples at `places` [n] of an epoch."""
        samples = permute(places, self.size, self.seed * 2**32 + epoch)
        at_head = places < self.total
        if epoch * self.size % self.total and at_head.any():
            samples[at_head] = self._head(epoch)[places[at_head]]
        return samples

    def _head(self, epoch: int) -> np.ndarray:
        """Return the first samples of an epoch, `total` of them or all if there are fewer."""
        if epoch not in self._heads:
            last = max(self._heads, default=-1)
            first = epoch - epoch % self._cycle
            if not first <= last < epoch:
                self._heads.clear()
                last = first - 1
            for number in range(last + 1, epoch + 1):  # not by recursion: a cycle may be thousands of epochs long
                self._heads[number] = self._arranged(number)
                self._heads.pop(number - self.total // self.size - 2, None)
        return self._heads[epoch]

    def _arranged(self, epoch: int) -> np.ndarray:
        """Return the head of an epoch: first the samples that the update has least often from earlier epochs."""
        begun = epoch * self.size % self.total
        room = min(self.total - begun, self.size)  # samples of this epoch that the update takes
        head = permute(np.arange(min(self.total, self.size)), self.size, self.seed * 2**32 + epoch)
        before = self(epoch * self.size - begun + np.arange(begun))
        _, place, times = np.unique(np.concatenate([head, before]), return_inverse=True, return_counts=True)
        order = np.argsort(times[place[: len(head)]], kind="stable")
        order[room:].sort()  # the others stay in the order of the permutation
        return head[order]


class BatchSampler:
    """The micro-batches of one rank."""

    def __init__(
        self,
        source: Source,
        batch: BatchConfig,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        if batch.bucket_by_length and not isinstance(source, Dataset):
            raise UsageError("batch.bucket_by_length needs stored instances, whose lengths are known; set it to 0")
        self.source, self.batch, self.seed = source, batch, seed
        self.rank, self.num_ranks = rank, num_ranks
        self.accumulation = batch.accumulation(num_ranks)
        self.order = SampleOrder(len(source), batch.total, seed)
        self.ends: list[int] = []  # earlier numbers of updates of a run that became longer
        self._pool_positions = functools.lru_cache(maxsize=2)(self._sorted_pool)  # neighbouring updates share a pool

    def read(self, update: int, end: int = NEVER) -> list[Batch]:
        """Return the micro-batches of update `update` (from 0). Micro-batch k of rank r is number k * ranks + r.

        end: number of updates of the run; no pool of `batch.bucket_by_length` goes beyond it. The micro-batches are
        made on the CPU: on a GPU this thread would wait for the running step.
        """
        with tf.device("CPU:0"):
            return self._read(update, end)

    def _read(self, update: int, end: int) -> list[Batch]:
        size = self.batch.per_device
        positions = self.positions(update, end)
        firsts = (np.arange(self.accumulation) * self.num_ranks + self.rank) * size
        micro_batches = [positions[first : first + size] for first in firsts]
        batches = [self.source.read(self.order(at), at) for at in micro_batches]
        if self.batch.pack:
            return [pack(batch) for batch in batches]
        return [trim_padding(batch) for batch in batches] if self.batch.bucket_by_length else batches

    def positions(self, update: int, end: int = NEVER) -> np.ndarray:
        """Return the positions in the run whose samples make an update [total]; end: as in `read`."""
        total = self.batch.total
        if not self.batch.bucket_by_length:
            return update * total + np.arange(total)
        first, last = self._pool(update, end)
        return self._pool_positions(first, last)[update - first]

    def _pool(self, update: int, end: int) -> tuple[int, int]:
        """Return the first update of the pool that `update` is in, and the first one after it.

        A pool has at most `bucket_by_length` updates and ends with the run. All its samples are of one epoch: copies of
        a sample have one length, and would stand side by side. So an update that has samples of two epochs is alone.
        """
        size, total, group = len(self.source), self.batch.total, self.batch.bucket_by_length
        epoch = update * total // size
        first, last = -(-epoch * size // total), (epoch + 1) * size // total  # the updates within the epoch
        if not first <= update < last:
            return update, update + 1
        first = update - (update - first) % group
        last = min(first + group, last, end)
        for former in self.ends:
            first, last = (first, min(last, former)) if update < former else (max(first, former), last)
        return first, last

    def _sorted_pool(self, first: int, last: int) -> np.ndarray:
        """Return the positions of each update in the pool of updates first..last-1, [updates, total].

        The samples of the pool are sorted by size and distributed to its updates, whose order is then random. So a
        batch has samples of similar length, and the pool has the same samples as without sorting.
        """
        assert isinstance(self.source, Dataset)
        positions = np.arange(first * self.batch.total, last * self.batch.total)
        by_size = np.argsort(self.source.sizes(self.order(positions)), kind="stable")
        turns = permute(np.arange(last - first), last - first, self.seed * 2**32 + 2**31 + first)
        return positions[by_size].reshape(last - first, -1)[turns]

    def iterate(self, first: int, last: int) -> Generator[list[Batch], None, None]:
        """Yield `read` for updates first..last-1, with which the run ends; they are read in advance by a thread."""
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as reader:
            pending = [reader.submit(self.read, update, last) for update in range(first, min(first + PREFETCH, last))]
            for update in range(first, last):
                if update + PREFETCH < last:
                    pending.append(reader.submit(self.read, update + PREFETCH, last))
                yield pending.pop(0).result()


def padded_length(tokens: int, multiple: int, limit: int) -> int:
    """Return `tokens` rounded up to a multiple, but at most `limit`."""
    return min(-(-tokens // multiple) * multiple, limit)


def training_multiple(tokens: int) -> int:
    """Return the multiple to which the length of a training batch is padded. tokens: of its longest row."""
    if has_gpu():
        return GPU_LENGTH_MULTIPLE
    return next(multiple for longest, multiple in LENGTH_MULTIPLES.items() if tokens <= longest)


def trim_padding(batch: Batch, multiple: int | None = None) -> Batch:
    """Remove columns that are padding in every row, but keep a multiple of `multiple`, or all columns.

    multiple: None means the multiple of training. The last axis has the columns, all other axes the rows: multiple
    choice has two axes of rows.
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


def samples_in(batch: Batch) -> int:
    """Return the number of samples of a batch, which are more than its rows if it is packed."""
    return len(batch["first_tokens"] if "first_tokens" in batch else next(iter(batch.values())))


def evaluated(size: int, limit: int) -> np.ndarray:
    """Return which `limit` of `size` samples a model is evaluated on, in ascending order; all, if there are no more.

    They are spread over the whole, and always the same ones.
    """
    return np.sort(permute(np.arange(limit), size, EVALUATION_KEY)) if limit < size else np.arange(size)


def evaluation(
    source: HeldOut, batch: BatchConfig, limit: int, rank: int = 0, num_ranks: int = 1
) -> Iterator[tuple[str, Batch]]:
    """Yield this rank's share of the `evaluated` samples in batches, each after the name of its source.

    The last batch of each source may be smaller. With `batch.bucket_by_length` stored instances are sorted by length,
    and a batch is trimmed to its longest one. With `batch.pack` a batch is packed, but not on a GPU: there, each number
    of rows would be compiled, which takes longer than computing the padding.
    """
    samples = evaluated(len(source), limit)
    if grouped := batch.bucket_by_length > 0 and isinstance(source, Dataset):
        samples = samples[np.argsort(source.sizes(samples), kind="stable")]
    source_of, size = source.source_of(samples), batch.per_device
    number = 0  # of the batch, over all ranks
    for place, name in enumerate(source.sources):
        mine = samples[source_of == place]
        for start in range(0, len(mine), size):
            if number % num_ranks == rank:
                indices = mine[start : start + size]
                with tf.device("CPU:0"):
                    samples_read = source.read(indices, indices)
                    if grouped:
                        samples_read = trim_padding(samples_read, max(training_multiple(1), EVALUATION_MULTIPLE))
                    if batch.pack and not has_gpu():
                        samples_read = pack(samples_read)
                yield name, samples_read
            number += 1
