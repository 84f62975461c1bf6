"""A low-rank update is the published formula, and at its start nothing."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import LoraConfig, ModelConfig, ParallelConfig
from bert.model import added, cost
from bert.model.added import is_learnt
from bert.model.dense import Dense
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.model.initializers import Initializer
from extensions.lora.model import LowRankUpdate, adapt
from extensions.lora.preflight import parameters

EVERY: tuple[Any, ...] = ("query", "key", "value", "output", "inner", "gate", "outer")
GATED = ModelConfig(
    vocab_size=31, hidden_size=20, num_hidden_layers=3, num_attention_heads=5, intermediate_size=28, gated=True
)


def test_output_and_gradients_are_those_of_the_formula() -> None:
    dense = Dense(Initializer(ModelConfig(initializer_range=0.2), 3), "layer_0/mlp/inner", 11, 7)
    random = np.random.default_rng(1)
    dense.update = update = LowRankUpdate(3, "layer_0/mlp/inner", (11, 7), rank=2, alpha=6.0)
    x, upstream = random.normal(size=(5, 11)), random.normal(size=(5, 7))
    plain = dense(tf.constant(x, tf.float32)).numpy()
    np.testing.assert_allclose(plain, x @ dense.weight.numpy(), rtol=1e-5, atol=1e-6)
    update.b.assign(random.normal(size=(2, 7)))
    a, b, w = (each.numpy().astype(np.float64) for each in (update.a, update.b, dense.weight))
    with tf.GradientTape() as tape:
        y = dense(tf.constant(x, tf.float32))
        loss = tf.reduce_sum(y * tf.constant(upstream, tf.float32))
    by_a, by_b = tape.gradient(loss, [update.a, update.b])
    np.testing.assert_allclose(y, x @ w + 3.0 * (x @ a) @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_a, 3.0 * x.T @ (upstream @ b.T), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_b, 3.0 * (x @ a).T @ upstream, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_an_encoder_with_new_updates_has_the_bits_of_the_one_without(dtype: tf.DType) -> None:
    ids = tf.constant([[3, 5, 7, 11, 2], [4, 9, 1, 0, 0]])
    tokens = TokenBatch(ids, tf.cast(ids > 0, tf.int32), tf.zeros_like(ids))
    encoder, mode = Encoder(GATED, seed=5), Mode(dtype, DropoutRng(None))
    before = encoder(tokens, mode).numpy()
    lora = LoraConfig(rank=2, targets=EVERY)
    adapt(encoder, lora, seed=5, first_layer=1)
    assert before.tobytes() == encoder(tokens, mode).numpy().tobytes()
    learnt = {name: variable for name, variable in variables(encoder).items() if is_learnt(name)}
    assert {name.split("/")[0] for name in learnt} == {"layer_1", "layer_2"} and len(learnt) == 2 * 2 * len(EVERY)
    count = sum(variable.shape.num_elements() for variable in learnt.values())
    assert count == parameters(GATED, lora, 1)
    every, heads = cost.parameters(GATED), cost.parameters(GATED) - cost.encoder_parameters(GATED)
    weights, learning = 4 * (every + count), heads + count  # a gradient and two moments of what learns
    assert cost.state_bytes(GATED, 1, ParallelConfig(), in_encoder=count) == weights + 12 * learning


def test_a_checkpoint_adds_the_bits_that_the_layer_adds() -> None:
    update, random = LowRankUpdate(3, "layer_0/mlp/inner", (23, 17), rank=3, alpha=7.0), np.random.default_rng(4)
    update.b.assign(random.normal(size=(3, 17)))
    values = {name: variable.numpy() for name, variable in variables(update).items()}
    found = added.term(added.LOW_RANK, [values[f"layer_0/mlp/inner/lora_{part}"] for part in ("a", "b", "scale")])
    assert found.tobytes() == update().numpy().tobytes()
