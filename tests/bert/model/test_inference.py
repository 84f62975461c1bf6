"""The encoder for answers gives what the one for training gives, in every form that its weights may have."""

from typing import Literal

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.model import inference
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch
from bert.model.inference import InferenceEncoder

QUIET = DropoutRng(None)


def encoder(placement: Literal["pre", "post"], gated: bool = False) -> Encoder:
    config = ModelConfig(
        vocab_size=97,
        hidden_size=20,
        num_hidden_layers=3,
        num_attention_heads=5,
        intermediate_size=28,
        norm_placement=placement,
        gated=gated,
    )
    made, random = Encoder(config, seed=3), np.random.default_rng(2)
    for variable in made.trainable_variables:
        variable.assign_add(random.normal(0, 0.1, variable.shape))
    return made


def batch() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    random = np.random.default_rng(1)
    mask = (np.arange(11) < np.array([[11], [5], [8]])).astype(np.int32)
    ids, segments = random.integers(0, 97, mask.shape, np.int32), random.integers(0, 2, mask.shape, np.int32)
    return tf.constant(ids), tf.constant(mask), tf.constant(segments * mask)


def compiled(answering: InferenceEncoder) -> tf.types.experimental.PolymorphicFunction:
    return tf.function(answering.states, input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3)


@pytest.mark.slow
@pytest.mark.parametrize(("placement", "most"), [("pre", inference.MAX_CONSTANT_BYTES), ("post", 0)])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
def test_all_states_are_those_of_the_encoder(
    placement: Literal["pre", "post"], dtype: tf.DType, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "MAX_CONSTANT_BYTES", most)
    made, given = encoder(placement), batch()
    exact = np.stack(made.states(TokenBatch(*given), Mode(tf.float32, QUIET)))
    rounded = np.stack(made.states(TokenBatch(*given), Mode(dtype, QUIET)))
    answering = InferenceEncoder(made, dtype)
    del made
    found = np.stack(compiled(answering)(*given))
    assert found.dtype == np.float32 and found.shape == (4, 3, 11, 20)
    there = given[1].numpy() > 0
    if dtype == tf.float32:
        np.testing.assert_allclose(found[:, there], exact[:, there], atol=2e-5)
        return
    error, usual = (np.abs(states - exact)[:, there] for states in (found, rounded))
    assert 0 < error.max() < 3 * usual.max() and error.mean() < 2 * usual.mean()


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_rows_that_are_read_are_those_of_all(placement: Literal["pre", "post"]) -> None:
    answering, given, rows = InferenceEncoder(encoder(placement), tf.float32), batch(), [2, 29, 2, 12]
    found = answering(*given, tf.constant(rows))
    np.testing.assert_allclose(found, answering(*given).numpy().reshape(33, 20)[rows], atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "most", "constant"),
    [
        (tf.bfloat16, inference.MAX_CONSTANT_BYTES, True),
        (tf.float16, inference.MAX_CONSTANT_BYTES, True),
        (tf.float32, inference.MAX_CONSTANT_BYTES, False),
        (tf.bfloat16, 1000, False),
    ],
)
def test_weights_are_constants_where_that_pays(
    dtype: tf.DType, most: int, constant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "MAX_CONSTANT_BYTES", most)
    answering = InferenceEncoder(encoder("post"), dtype)
    kernels = [
        node
        for node in compiled(answering).get_concrete_function().graph.get_operations()
        if node.type == "Const" and node.outputs[0].shape == [20, 60]
    ]
    assert len(kernels) == (3 if constant else 0)
    assert any(variable.shape == [20, 60] for variable in answering.variables) != constant


def test_training_on_changes_no_answer() -> None:
    made = encoder("post")
    answering = InferenceEncoder(made, tf.bfloat16)
    before = answering(*batch()).numpy()
    for variable in made.layers[1].trainable_variables:
        if "kernel" in variable.name:
            variable.assign(tf.zeros_like(variable))
    np.testing.assert_array_equal(answering(*batch()), before)
