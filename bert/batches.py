"""Which samples make which update: a pure function of (seed, position), whatever the number of ranks.

The samples of an epoch are visited in a pseudo-random order that is computed, not stored: a permutation of 0..n-1 by a
Feistel network, in constant memory for any n. Resuming is therefore a matter of knowing one number.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from bert.config import BatchConfig
from bert.records import Dataset
from bert.world import World

ROUNDS = 4
AHEAD = 2  # updates whose samples are read while the current one computes

Batch = dict[str, tf.Tensor]


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
            left, right = right, left ^ (_mix(right, key * ROUNDS + number) & low)
        images[outside] = (left << half) | right
        outside = images >= size
    return images.astype(np.int64)


def _mix(values: np.ndarray, key: int) -> np.ndarray:
    """SplitMix64's finaliser of (value, key)."""
    step = (key * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & (2**64 - 1)
    z = values + np.uint64(step)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def order(positions: np.ndarray, size: int, seed: int) -> np.ndarray:
    """The samples at `positions` [n] of endless epochs over `size` samples, each epoch in its own order."""
    samples = np.empty_like(positions)
    for epoch in np.unique(positions // size):
        here = positions // size == epoch
        samples[here] = permute(positions[here] % size, size, seed * 2**32 + int(epoch))
    return samples


class Batches:
    """This rank's micro-batches of every update."""

    def __init__(self, dataset: Dataset, batch: BatchConfig, world: World, seed: int) -> None:
        self.dataset, self.batch, self.world, self.seed = dataset, batch, world, seed
        self.accumulation = batch.accumulation(world.size)

    def read(self, update: int) -> list[Batch]:
        """The micro-batches of update `update` (from 0): micro-batch k of rank r is its (k * ranks + r)-th."""
        size, world = self.batch.per_device, self.world
        numbers = np.arange(self.accumulation) * world.size + world.rank
        first = update * self.batch.total + numbers * size
        return [self.dataset.read(order(at + np.arange(size), len(self.dataset), self.seed)) for at in first]

    def iterate(self, first: int, last: int) -> Iterator[list[Batch]]:
        """`read` for updates first..last-1, read ahead in a thread."""
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as reader:
            waiting = [reader.submit(self.read, update) for update in range(first, min(first + AHEAD, last))]
            for update in range(first, last):
                if update + AHEAD < last:
                    waiting.append(reader.submit(self.read, update + AHEAD))
                yield waiting.pop(0).result()


def evaluation(dataset: Dataset, batch: BatchConfig, world: World, limit: int) -> Iterator[Batch]:
    """This rank's share of the first `limit` samples, in order, in batches of which the last may be smaller."""
    starts = range(0, min(limit, len(dataset)), batch.per_device)
    for start in list(starts)[world.rank :: world.size]:
        yield dataset.read(np.arange(start, min(start + batch.per_device, limit, len(dataset))))
