"""Ranks that have pieces of weights and moments update them like one rank; real ranks are in test_loop.py."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import OPTIMIZERS, OptimizerConfig, ParallelConfig
from bert.model.model_shard import share
from bert.model.weights import axis_of
from bert.training import distributed_optimizer
from bert.training.buckets import of_weights
from bert.training.distributed_optimizer import optimizer_for
from bert.training.division import DividedVariable
from bert.training.guard import UpdateGuard
from tests.bert.training import sign_descent
from tests.bert.training.ranks import Ranks, as_ranks

SHAPES = {
    "embeddings/word": (11, 3),
    "layer_0/attention/query/kernel": (3, 6),
    "layer_0/attention/query/bias": (6,),
    "layer_0/attention/output/kernel": (6, 3),
    "layer_0/mlp/layer_norm/gamma": (3,),
    "pooler/kernel": (7, 3),
}
UPDATES = 4


def gradients(update: int) -> dict[str, np.ndarray]:
    """Return gradients that become larger, so that StableAdamW limits all steps but the first."""
    random = np.random.default_rng(update)
    return {name: random.normal(size=shape).astype(np.float32) * 3**update for name, shape in SHAPES.items()}


def piece(whole: np.ndarray, name: str, comm: Ranks) -> np.ndarray:
    """Return this rank's part of a variable."""
    axis = axis_of(name)
    if axis is None or comm.group.size == 1:
        return whole
    first, last = share(whole.shape[axis], comm.group.rank, comm.group.size)
    return np.take(whole, range(first, last), axis)


def rows(slot: Any, part: np.ndarray) -> np.ndarray:
    """Return the rows that this rank has of a part, if ranks divide it."""
    return part[slot.first : slot.last] if isinstance(slot, DividedVariable) else part


def trained(comm: Ranks, config: OptimizerConfig) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """Update weights, where each rank has its pieces; return what this rank has at the end, and the measures."""
    random = np.random.default_rng(99)
    values = {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    parallel = ParallelConfig(shard_optimizer=True, tensor=comm.parts.count)
    if comm.parts.count > 1:
        comm.parts.whole_shapes = {name: tf.TensorShape(SHAPES[name]) for name in SHAPES if axis_of(name) is not None}
    weights = {name: tf.Variable(piece(value, name, comm), name=name) for name, value in values.items()}
    optimizer = optimizer_for(weights, config, parallel, comm)
    update = optimizer.updater(UpdateGuard(scaled=False), of_weights(weights, parallel))
    slots, measured = optimizer.slots, []
    for number in range(UPDATES):
        kind = config.kind.slots[0]
        own = [rows(slots[f"{kind}/{name}"], piece(whole, name, comm)) for name, whole in gradients(number).items()]
        found = update(list(map(tf.constant, own)), tf.constant(np.inf if number == 2 else 1.0), tf.constant(0.1))
        measured.append({name: float(value) for name, value in found.items()})
    return weights | slots, measured


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stableadamw", "sign_descent"])
def test_two_replicas_in_two_parts_update_like_one_rank(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMIZERS, "sign_descent", sign_descent.ROW)
    config = OptimizerConfig(name=name, learning_rate=1.0, weight_decay=0.1, ema=0.7)
    one, expected = trained(Ranks(0, 1), config)
    assert [line["skipped"] for line in expected] == [0, 0, 1, 1]
    for rank, (state, measured) in enumerate(as_ranks(4, 2, lambda comm: trained(comm, config))):
        assert measured == [pytest.approx(line, rel=1e-5) for line in expected]
        assert state.keys() == one.keys() and {"ema_total", "ema/pooler/kernel"} <= one.keys()
        for key, whole in one.items():
            first, _, rest = key.partition("/")
            weight = rest if first in (*config.kind.slots, "ema") else key
            part = piece(whole.numpy(), weight, Ranks(rank, 4, tensor=2))
            found = state[key].local if isinstance(state[key], DividedVariable) else state[key]
            np.testing.assert_allclose(found, rows(state[key], part), rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sums"), [("adamw", 0), ("lamb", 2), ("stableadamw", 1)])
def test_no_sum_of_squares_is_computed_that_the_optimizer_does_not_use(
    name: Any, sums: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    squared, real = list[tf.TensorShape](), distributed_optimizer.sum_of_squares

    def noted(x: tf.Tensor) -> tf.Tensor:
        squared.append(x.shape)
        return real(x)

    monkeypatch.setattr(distributed_optimizer, "sum_of_squares", noted)
    config = OptimizerConfig(name=name, learning_rate=1.0)
    as_ranks(2, 1, lambda comm: trained(comm, config))
    assert len(squared) == 2 * len(SHAPES) * (1 + sums)  # on each rank that of each gradient, and those of its step
