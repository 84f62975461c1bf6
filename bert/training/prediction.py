"""The model's outputs for all samples of a data set, on the ranks that train it."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import tensorflow as tf

from bert.core.config import BatchConfig
from bert.core.progress import Progress
from bert.text import sampler
from bert.text.records import FeatureSpec
from bert.training.step import Step


class Samples(Protocol):
    """Samples by number, in a data set (`bert.text.records.Dataset`) or in memory."""

    spec: FeatureSpec

    def __len__(self) -> int: ...

    def sizes(self, indices: np.ndarray) -> np.ndarray:
        """Return a number for each sample [n]: the more tokens a sample has, the larger is its number."""

    def read(self, indices: np.ndarray) -> sampler.Batch:
        """Return the features of these samples [n, ...]."""


def predict(
    step: Step, data: Samples, batch: BatchConfig, alive: Callable[[], None], *, by_position: bool = False
) -> dict[str, np.ndarray]:
    """Return the outputs of the task's `predict` for all samples, in order [n, ...], the same on all ranks.

    Each replica of the model computes its share, in batches of samples of similar length; padding that all samples of a
    batch have is removed. The outputs are then summed over the replicas: a replica has zeros for the samples of the
    others. All outputs are held in memory. by_position: the second axis of the outputs is the position; beyond the
    longest sample of a batch they are 0. alive: called for each batch, for the watchdog.
    """
    size, width = batch.per_device, data.spec["input_ids"]["shape"][-1]
    order = np.argsort(data.sizes(np.arange(len(data))), kind="stable")
    order = np.concatenate([np.repeat(order[:1], -len(order) % size), order])  # full batches: one shape for each length
    replicas, outputs = step.replicas, dict[str, np.ndarray]()
    batches = order.reshape(-1, size)
    with Progress("evaluate", "samples", len(order)) as progress:
        for number, rows in enumerate(progress.each(batches, size)):
            alive()
            if outputs and number % replicas.size != replicas.rank:  # all replicas compute the first, for the shapes
                continue
            with tf.device("CPU:0"):
                samples = sampler.trim_padding(data.read(rows))
            for name, values in step.predict(samples).items():
                shape = (width, *values.shape[2:]) if by_position else tuple(values.shape[1:])
                every = outputs.setdefault(name, np.zeros((len(data), *shape), np.float32))
                if number % replicas.size == replicas.rank:
                    every[rows if not by_position else (rows, slice(values.shape[1]))] = values.numpy()
    names = sorted(outputs)
    if replicas.size > 1:
        summed = replicas.all_reduce([tf.constant(outputs[name]) for name in names])
        return {name: total.numpy() for name, total in zip(names, summed, strict=True)}
    return outputs
