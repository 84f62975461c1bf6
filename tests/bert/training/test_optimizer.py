"""The optimizers against their equations in NumPy, step by step."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig, OptimizerConfig
from bert.model.encoder import variables
from bert.pretraining import PretrainingModel
from bert.recipes import RECIPES
from bert.training import optimizer, schedule
from bert.training.optimizer import Optimizer
from tests.bert.model.test_encoder import NEO

SHAPES = {"a/bias": (5,), "a/kernel": (3, 5), "b/layer_norm/gamma": (7,), "c/kernel": (2, 2)}
DECAY, CLIP, B1, B2, EPS = 0.1, 2.0, 0.9, 0.999, 1e-6


def reference(name: str, w: dict, m: dict, v: dict, g: dict, rate: float, t: int) -> dict[str, Any]:
    """One update in place, in NumPy, of dictionaries by variable; returns the trust ratios."""
    norm = np.sqrt(sum((x**2).sum() for x in g.values()))
    bound = 1.0 if name == "nvlamb" else CLIP
    ratios = {}
    for key in g:
        clipped = g[key] * min(1.0, bound / norm)
        decay = DECAY if key.endswith("kernel") else 0.0  # biases and layer-norm parameters do not decay
        m[key] = B1 * m[key] + (1 - B1) * clipped
        v[key] = B2 * v[key] + (1 - B2) * clipped**2
        first, second = (m[key], v[key]) if name == "adam" else (m[key] / (1 - B1**t), v[key] / (1 - B2**t))
        update = first / (np.sqrt(second) + EPS) + decay * w[key]
        lengths = np.linalg.norm(w[key]), np.linalg.norm(update)
        adapted = name == "lamb" or (name == "nvlamb" and decay > 0)
        ratios[key] = lengths[0] / lengths[1] if adapted and all(lengths) else 1.0
        w[key] = w[key] - rate * ratios[key] * update
    return ratios


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb", "nvlamb"])
def test_updates_follow_the_equations(name: Any) -> None:
    random = np.random.default_rng(1)
    w = {key: random.normal(size=shape) for key, shape in SHAPES.items()}
    w["c/kernel"][:] = 0  # a variable of no length has trust ratio 1
    weights = {key: tf.Variable(value.astype(np.float32), name=key) for key, value in w.items()}
    config = OptimizerConfig(name=name, learning_rate=1.0, weight_decay=DECAY, clip_norm=CLIP)
    optimizer = Optimizer(weights, config)
    apply = tf.function(optimizer.apply, jit_compile=True)
    m, v = dict.fromkeys(SHAPES, 0.0), dict.fromkeys(SHAPES, 0.0)
    for t in range(1, 9):
        g = {key: random.normal(size=shape) * t / 4 for key, shape in SHAPES.items()}
        rate = 0.01 * t
        norm = np.sqrt(sum((x**2).sum() for x in g.values()))
        given = [[tf.constant(x, tf.float32) for x in g.values()], *(tf.constant(x, tf.float32) for x in (norm, rate))]
        found = apply(*given, tf.constant(True))
        ratios = reference(name, w, m, v, g, rate, t)
        if name in ("lamb", "nvlamb"):
            measured = [float(found[f"trust_ratio_{of}"]) for of in ("min", "max", "mean")]
            expected = [min(ratios.values()), max(ratios.values()), np.mean(list(ratios.values()))]
            assert measured == pytest.approx(expected, rel=1e-4)
            assert (ratios["a/bias"] == 1.0) == (name == "nvlamb")
        for key in SHAPES:
            np.testing.assert_allclose(weights[key], w[key], rtol=3e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("recipe", "moved"),
    [
        # The sum of the rates 3e-6, 6e-6, ... 5.997e-3 of updates 2 to 2,000; the first one has rate 0.
        ("bert_large_dgxa100_phase1", sum(3e-6 * done for done in range(2000))),
        # From 0 the first step is not scaled; each later one is as long as the bias times the rate.
        ("bert_large_phase1", 3e-6 * float(np.prod([1 + 3e-6 * done for done in range(2, 2000)]))),
    ],
)
def test_a_trust_ratio_keeps_a_bias_near_zero_through_the_warm_up(recipe: str, moved: float) -> None:
    config = RECIPES[recipe].phases[0].config
    bias = tf.Variable(tf.zeros(1), name="a/bias")
    optimizer, gradient = Optimizer({"a/bias": bias}, config.optimizer), tf.constant([0.5])  # the same in all updates

    @tf.function
    def update(rate: tf.Tensor) -> None:
        optimizer.apply([gradient], tf.norm(gradient), rate, tf.constant(True))

    for done in range(2000):
        update(tf.constant(schedule.learning_rate(done, config.optimizer, config.run.steps)))
    assert -float(bias[0]) == pytest.approx(moved, rel=2e-4)
    assert moved == pytest.approx(5.997 if "dgxa100" in recipe else 1.19e-3, rel=2e-3)


def test_layer_decay_multiplies_the_rate_once_per_layer() -> None:
    names = ["embeddings/word", "layer_0/mlp/kernel", "layer_1/attention/query/bias", "answer_span/kernel"]
    assert list(optimizer.shares(names, 0.5).values()) == [1 / 8, 1 / 4, 1 / 2, 1]
    assert set(optimizer.shares(names, 1.0).values()) == {1.0}
    config = OptimizerConfig(learning_rate=1.0, layer_decay=0.5, weight_decay=0.0)
    weights = {name: tf.Variable([[1.0]], name=name) for name in names if not name.endswith("bias")}
    Optimizer(weights, config).apply([tf.constant([[0.1]])] * 3, *map(tf.constant, (0.2, 0.01, True)))
    moved = [1 - float(weight[0, 0]) for weight in weights.values()]
    assert moved == pytest.approx([moved[2] / 4, moved[2] / 2, moved[2]], rel=1e-4) and moved[2] > 1e-3


def test_every_variable_of_the_model_matches_a_decay_rule() -> None:
    shape = ModelConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12)
    several: tuple[dict[str, Any], ...] = ({}, {"norm_placement": "pre"}, NEO)
    for changes in several:
        for name in variables(PretrainingModel(dataclasses.replace(shape, **changes), seed=1)):
            last = name.rsplit("/", 1)[-1]
            assert optimizer.decays(name) == (last not in ("gamma", "beta", "bias")), name
    with pytest.raises(ValueError, match="variable a/table: no rule"):
        optimizer.decays("a/table")
