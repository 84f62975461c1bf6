"""The outputs of all samples come in order, whatever the batches and however many replicas compute them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import BatchConfig
from bert.text import sampler
from bert.text.records import Dataset
from bert.training import prediction


class Replicas:
    """Replica `rank` of `size`; the sum over all is taken later."""

    def __init__(self, size: int, rank: int) -> None:
        self.size, self.rank, self.sent = size, rank, list[np.ndarray]()

    def all_reduce(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        self.sent = [tensor.numpy() for tensor in tensors]
        return tensors


class Step:
    """A model whose outputs are the tokens that it was given, or of each sample their sum."""

    def __init__(self, replicas: Replicas, by_position: bool) -> None:
        self.replicas, self.by_position, self.batches = replicas, by_position, 0

    def predict(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids = tf.cast(batch["input_ids"], tf.float32)
        self.batches += 1
        if self.by_position:
            return {"pair": tf.stack([ids, -ids], axis=-1), "single": ids}
        return {"sum": tf.reduce_sum(ids, axis=1, keepdims=True)}


@pytest.mark.slow
@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize(("size", "batch"), [(1, 7), (1, 64), (2, 1), (3, 7), (3, 41)])
def test_each_sample_has_its_own_output(
    dataset: Path, batch: int, size: int, by_position: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "LENGTH_MULTIPLES", {64: 3})  # so that batches have several lengths
    data, config = Dataset(dataset, "train"), BatchConfig(total=batch, per_device=batch)
    every = data.read(np.arange(len(data)))
    ids, used = every["input_ids"].numpy().astype(np.float32), every["input_mask"].numpy().sum(axis=1)
    assert (np.diff(used) < 0).any()  # the batches have another order than the samples
    monkeypatch.setattr(data, "sizes", lambda rows: used[rows])
    steps: list[Any] = [Step(Replicas(size, rank), by_position) for rank in range(size)]
    alive = list[int]()
    for step in steps:
        found = prediction.predict(step, data, config, lambda: alive.append(1), by_position=by_position)
    assert len(alive) == size * -(-len(data) // batch)  # the watchdog hears of every batch
    if size > 1:
        summed = [np.sum(parts, axis=0) for parts in zip(*(step.replicas.sent for step in steps), strict=True)]
        found = dict(zip(sorted(found), summed, strict=True))
    if by_position:
        np.testing.assert_array_equal(found["single"], ids)
        np.testing.assert_array_equal(found["pair"], np.stack([ids, -ids], axis=-1))
    else:
        np.testing.assert_array_equal(found["sum"], ids.sum(axis=1, keepdims=True))
    share = -(-len(data) // batch) / size
    assert all(step.batches <= share + 2 for step in steps)  # all compute the first one
