"""The optimizer against its equations in NumPy, step by step."""

import numpy as np
import pytest
import tensorflow as tf

from bert import schedule
from bert.config import OptimizerConfig
from bert.optim import Adam


def test_adam_follows_the_original_bert_in_numpy() -> None:
    random = np.random.default_rng(1)
    shapes = {"a/kernel": (3, 5), "a/bias": (5,), "b/layer_norm/gamma": (7,)}
    start = {name: random.normal(size=shape) for name, shape in shapes.items()}
    weights = {name: tf.Variable(value.astype(np.float32), name=name) for name, value in start.items()}
    optimizer = Adam(weights, OptimizerConfig(learning_rate=1.0, weight_decay=0.1, clip_norm=2.0))
    w, m, v = start, dict.fromkeys(shapes, 0.0), dict.fromkeys(shapes, 0.0)
    for step in range(1, 6):
        g = {name: random.normal(size=shape) * step for name, shape in shapes.items()}
        rate = 0.01 * step
        norm = float(optimizer.apply([tf.constant(x, tf.float32) for x in g.values()], tf.constant(rate, tf.float32)))
        expected_norm = np.sqrt(sum((x**2).sum() for x in g.values()))
        assert norm == pytest.approx(expected_norm, rel=1e-5)
        for name in shapes:
            clipped = g[name] * min(1.0, 2.0 / expected_norm)
            m[name] = 0.9 * m[name] + 0.1 * clipped
            v[name] = 0.999 * v[name] + 0.001 * clipped**2
            update = m[name] / (np.sqrt(v[name]) + 1e-6)
            if name.endswith("kernel"):  # biases and layer-norm parameters do not decay
                update = update + 0.1 * w[name]
            w[name] = w[name] - rate * update
            np.testing.assert_allclose(weights[name], w[name], rtol=2e-4, atol=1e-6)


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    weights = {"a/kernel": tf.Variable([[1.0, 2.0, 3.0]], name="a/kernel")}
    optimizer = Adam(weights, OptimizerConfig(learning_rate=1.0))
    optimizer.apply([tf.constant([[0.1, np.nan, 0.1]])], tf.constant(0.1))
    np.testing.assert_array_equal(weights["a/kernel"], [[1.0, 2.0, 3.0]])
    assert all(float(tf.reduce_sum(slot)) == 0 for slot in optimizer.slots.values())


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 0.0), (3, 0.5), (4, 0.75), (5, 0.6), (6, 0.5), (10, 0.1), (11, 0.0), (15, 0.0)]
)
def test_schedule_warms_up_then_falls_on_a_line_to_zero(step: int, rate: float) -> None:
    assert schedule.linear(step, peak=1.0, warmup_steps=4, steps=10) == pytest.approx(rate)
