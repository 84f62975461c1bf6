"""The optimizers against their equations in NumPy, step by step."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import OPTIMIZERS, OptimizerConfig
from bert.core.errors import Stopped
from bert.recipes import RECIPES
from bert.training import optimizer, schedule
from bert.training.optimizer import Optimizer
from tests.bert.training import sign_descent
from tests.training import same_bits, train_here, weights

SHAPES = {"a/bias": (5,), "a/kernel": (3, 5), "b/layer_norm/gamma": (7,), "c/kernel": (2, 2)}
DECAY, CLIP, B1, B2, EPS = 0.1, 2.0, 0.9, 0.999, 1e-6


def reference(name: str, w: dict, m: dict, v: dict, g: dict, rate: float, t: int) -> dict[str, Any]:
    """One update in place, in NumPy, of dictionaries by variable; returns by what each step was multiplied."""
    norm = np.sqrt(sum((x**2).sum() for x in g.values()))
    bound = {"nvlamb": 1.0, "stableadamw": np.inf}.get(name, CLIP)
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
        if name == "stableadamw":  # the learning rate of a tensor is divided by max(1, RMS_t)
            ratios[key] = 1 / max(1, np.sqrt(np.mean(g[key] ** 2 / np.maximum(second, EPS**2))))
        w[key] = w[key] - rate * ratios[key] * update
    return ratios


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "adamw", "stableadamw", "lamb", "nvlamb"])
def test_updates_follow_the_equations(name: Any) -> None:
    random = np.random.default_rng(1)
    w = {key: random.normal(size=shape) for key, shape in SHAPES.items()}
    w["c/kernel"][:] = 0  # a variable of no length has trust ratio 1
    weights = {key: tf.Variable(value.astype(np.float32), name=key) for key, value in w.items()}
    clip = 1.0 if name == "stableadamw" else CLIP
    optimizer = Optimizer(weights, OptimizerConfig(name=name, learning_rate=1.0, weight_decay=DECAY, clip_norm=clip))
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
        if name == "stableadamw":
            measured = [float(found[f"step_limit_{of}"]) for of in ("min", "mean")]
            assert measured == pytest.approx([min(ratios.values()), np.mean(list(ratios.values()))], rel=1e-4)
            assert (min(ratios.values()) < 0.9) == (t > 1)  # at first, v is the square of g
        for key in SHAPES:
            np.testing.assert_allclose(weights[key], w[key], rtol=3e-4, atol=1e-6)


@pytest.mark.slow
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


def test_a_tensor_without_gradients_is_not_limited_and_the_smallest_epsilon_divides_by_no_zero() -> None:
    weights = {name: tf.Variable([1.0, 2.0], name=name) for name in ("a/bias", "b/bias")}
    optimizer = Optimizer(weights, OptimizerConfig(name="stableadamw", learning_rate=1.0, epsilon=1e-30))
    gradients = [tf.constant([0.0, 0.0]), tf.constant([1e-12, 0.0])]
    measures = optimizer.apply(gradients, *map(tf.constant, (1.0, 0.5, True)))
    assert float(measures["step_limit_min"]) == 1
    np.testing.assert_allclose(weights["a/bias"], [1, 2])
    np.testing.assert_allclose(weights["b/bias"], [0.5, 2], rtol=1e-3)


@pytest.mark.slow
def test_the_moving_average_is_that_of_the_weights_after_each_update() -> None:
    random, decay = np.random.default_rng(2), 0.8
    weights = {key: tf.Variable(random.normal(size=shape), dtype=tf.float32, name=key) for key, shape in SHAPES.items()}
    plain = {key: tf.Variable(weight, name=key) for key, weight in weights.items()}
    config = OptimizerConfig(learning_rate=1.0)  # of adam, which does not count updates
    optimizers = Optimizer(weights, dataclasses.replace(config, ema=decay)), Optimizer(plain, config)
    applies = [tf.function(optimizer.apply, jit_compile=True) for optimizer in optimizers]
    after: list[dict[str, np.ndarray]] = []
    for update in range(6):
        g = [tf.constant(random.normal(size=shape), tf.float32) for shape in SHAPES.values()]
        for apply in applies:
            apply(g, tf.constant(1.0), tf.constant(0.1), tf.constant(update != 3))
        if update != 3:  # it was skipped
            after.append({key: weight.numpy() for key, weight in weights.items()})
    shares = [(1 - decay) * decay ** (len(after) - 1 - number) for number in range(len(after))]
    slots = optimizers[0].slots
    assert float(slots["ema_total"]) == pytest.approx(sum(shares), rel=1e-6)
    for key in SHAPES:
        expected = sum(share * state[key].astype(np.float64) for share, state in zip(shares, after, strict=True))
        np.testing.assert_allclose(slots[f"ema/{key}"], expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(weights[key], plain[key])  # which the average does not change


def test_layer_decay_multiplies_the_rate_once_per_layer() -> None:
    names = ["embeddings/word", "layer_0/mlp/kernel", "layer_1/attention/query/bias", "answer_span/kernel"]
    assert list(optimizer.shares(names, 0.5).values()) == [1 / 8, 1 / 4, 1 / 2, 1]
    assert set(optimizer.shares(names, 1.0).values()) == {1.0}
    config = OptimizerConfig(learning_rate=1.0, layer_decay=0.5, weight_decay=0.0)
    weights = {name: tf.Variable([[1.0]], name=name) for name in names if not name.endswith("bias")}
    Optimizer(weights, config).apply([tf.constant([[0.1]])] * 3, *map(tf.constant, (0.2, 0.01, True)))
    moved = [1 - float(weight[0, 0]) for weight in weights.values()]
    assert moved == pytest.approx([moved[2] / 4, moved[2] / 2, moved[2]], rel=1e-4) and moved[2] > 1e-3


@pytest.mark.slow
def test_a_row_and_a_class_are_one_more_optimizer(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIMIZERS, "sign_descent", sign_descent.ROW)
    assert OptimizerConfig(name="sign_descent", learning_rate=1.0).bytes_kept == 4
    flags = ["--optimizer.name", "sign_descent", "--run.steps", "4"]
    train_here(dataset, tmp_path / "one", *flags)
    with pytest.raises(Stopped):
        train_here(dataset, tmp_path / "two", *flags, "--run.stop_at", "2")
    train_here(dataset, tmp_path / "two", *flags)
    end = weights(tmp_path / "one", 4)
    same_bits(end, weights(tmp_path / "two", 4))
    assert {name.split("/")[0] for name in end if name.endswith("pooler/kernel")} == {"pooler", "sign_m"}
    assert end["sign_m/pooler/kernel"].any() and "applied" not in end
