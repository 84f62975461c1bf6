"""StableAdamW is that of torch-optimi, whose author trained ModernBERT with it."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import OptimizerConfig
from bert.training.optimizer import Optimizer
from tests.parity.test_transformers import oracle

pytestmark = pytest.mark.parity

SHAPES = {"a/kernel": (5, 7), "b/bias": (3,), "c/kernel": (2, 3)}
SETTINGS = {"lr": 0.03, "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.02}
UPDATES = 20


def test_stable_adamw_is_that_of_optimi(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    size = 10.0 ** random.uniform(-3, 3, UPDATES)  # of the gradients: most steps after a larger one are limited
    given = {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    gradients = {
        f"gradient/{name}": (random.normal(size=(UPDATES, *shape)).T * size).T.astype(np.float32)
        for name, shape in SHAPES.items()
    }
    np.savez(tmp_path / "given.npz", allow_pickle=False, **given, **gradients)
    oracle(("stable_steps", SETTINGS, tmp_path / "given.npz", tmp_path / "found.npz"))
    expected = np.load(tmp_path / "found.npz")

    weights = {name: tf.Variable(value, name=name) for name, value in given.items()}
    config = OptimizerConfig(name="stableadamw", learning_rate=1.0, beta_2=0.98, epsilon=1e-6, weight_decay=0.02)
    optimizer, limits = Optimizer(weights, config), []
    apply = tf.function(lambda g, norm: optimizer.apply(g, norm, tf.constant(0.03), tf.constant(True)))
    for update in range(UPDATES):
        measures = apply([tf.constant(gradients[f"gradient/{name}"][update]) for name in weights], tf.constant(1.0))
        limits.append(float(measures["step_limit_min"]))
        for name, weight in weights.items():
            np.testing.assert_allclose(weight, expected[name][update], rtol=2e-5, atol=2e-6, err_msg=f"{name} {update}")
    assert min(limits) < 0.5 and max(limits) == 1
