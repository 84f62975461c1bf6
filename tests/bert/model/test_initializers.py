"""Initial values of the weights."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, TokenBatch, variables
from bert.pretraining import PretrainingModel

QUIET = DropoutRng(None)


def test_initial_weights_depend_on_seed_and_name_only(model_config: ModelConfig) -> None:
    one, two, other = (variables(PretrainingModel(model_config, seed)) for seed in (3, 3, 4))
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name])
    assert not np.array_equal(one["pooler/kernel"], other["pooler/kernel"])
    kernels = np.concatenate([value.numpy().ravel() for name, value in one.items() if name.endswith("kernel")])
    assert np.abs(kernels).max() <= 2 * model_config.initializer_range
    assert kernels.std() == pytest.approx(
        0.88 * model_config.initializer_range, rel=0.05
    )  # truncated at two deviations


def test_kernels_into_the_residual_stream_start_smaller_in_deep_models_with_the_norm_before(
    model_config: ModelConfig,
) -> None:
    deep = dataclasses.replace(model_config, norm_placement="pre", num_hidden_layers=8)
    weights = variables(PretrainingModel(deep, seed=3))
    for name in ("attention/output", "mlp/outer"):
        ratio = np.std(weights[f"layer_5/{name}/kernel"]) / np.std(weights["layer_5/mlp/inner/kernel"])
        assert ratio == pytest.approx(16**-0.5, rel=0.15)


def test_first_heads_begin_by_looking_at_their_neighbours_wherever_they_stand() -> None:
    config = ModelConfig(
        vocab_size=997,
        hidden_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=28,
        position_initializer="sinusoidal",
        initializer_range=0.04,
        max_position_embeddings=300,
    )
    encoder = Encoder(config, seed=3)
    ids = tf.constant(np.random.default_rng(1).integers(0, 997, (3, 300)), tf.int32)
    x = encoder.embeddings(TokenBatch(ids, tf.ones_like(ids), tf.zeros_like(ids)), QUIET)
    first = encoder.layers[0].attention
    q, k = (tf.reshape(part(x), [3, 300, 4, 64]) for part in (first.query, first.key))
    weights = tf.nn.softmax(tf.einsum("bqnh,bknh->bnqk", q, k) / 8).numpy()
    for head, offset in enumerate((-1, 1, -2, 2)):
        at = np.arange(5, 295)
        assert weights[:, head, at, at + offset].mean() > 0.6  # the words' noise is in the other waves
