"""Heads against plain formulas; the others are compared in test_encoder.py."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.model.dropout import DropoutRng, micro_batch_seed
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.model.heads import Choice, Classifier, Tags

CLASSES = 3
Head = Classifier | Choice | Tags
MAKERS: dict[str, Callable[[ModelConfig], Head]] = {
    "classifier": lambda config: Classifier(config, 5, CLASSES),
    "choice": lambda config: Choice(config, 5),
    "tags": lambda config: Tags(config, 5, CLASSES),
}
STATES = {"classifier": (7, 20), "choice": (7, 20), "tags": (7, 13, 20)}


def training(step: int = 1) -> Mode:
    return Mode(tf.float32, DropoutRng(micro_batch_seed(5, tf.constant(step, tf.int64), tf.constant(0))))


@pytest.mark.parametrize("name", MAKERS)
def test_logits_are_a_product_with_the_states_and_a_bias(name: str, model_config: ModelConfig) -> None:
    head, x = MAKERS[name](model_config), np.random.default_rng(2).normal(size=STATES[name]).astype("f")
    outputs = 1 if name == "choice" else CLASSES
    bias = np.array([0.5, -2.0, 7.0], np.float32)[:outputs]
    head.output.bias.assign(bias)
    expected = x.astype(float) @ head.output.kernel.numpy().astype(float) + bias
    found = head(tf.constant(x))
    assert found.shape == (*STATES[name][:-1], outputs)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(head(tf.constant(x), Mode(tf.float32, DropoutRng(None))), found)
    assert [*variables(head)] == [f"{name}/bias", f"{name}/kernel"]


@pytest.mark.parametrize("name", MAKERS)
def test_training_drops_components_of_the_states_at_the_rate_of_the_hidden_states(
    name: str, model_config: ModelConfig
) -> None:
    config = dataclasses.replace(model_config, hidden_dropout_prob=0.25)
    head, x = MAKERS[name](config), tf.ones([*STATES[name][:-2], 997, 20])
    head.output.kernel.assign(tf.eye(20, head.output.kernel.shape[1]))  # shows the first components
    found = head(x, training()).numpy()
    assert set(np.unique(found)) == {0, np.float32(1 / 0.75)}
    assert np.mean(found == 0) == pytest.approx(0.25, abs=0.05)
    np.testing.assert_array_equal(head(x, training()), found)
    assert not np.array_equal(head(x, training(step=2)), found)


@pytest.mark.slow
def test_masks_of_a_head_are_its_own_wherever_it_is_called(model_config: ModelConfig) -> None:
    config = dataclasses.replace(model_config, hidden_dropout_prob=0.5)
    head, x, mode = Classifier(config, 5, 20), tf.ones([3, 20]), training()
    head.output.kernel.assign(tf.eye(20))
    alone = head(x, training()).numpy()
    Encoder(config, 5)(TokenBatch(tf.zeros([3, 7], tf.int32), None, tf.zeros([3, 7], tf.int32)), mode)
    np.testing.assert_array_equal(head(x, mode), alone)
    branches = [training().dropout.branch(number) for number in range(config.num_hidden_layers + 1)]
    for branch in [training().dropout, *branches]:  # of the embeddings and the layers
        (bits,) = branch.bits(tf.shape(x), 0.5)
        assert not np.array_equal(alone > 0, bits.numpy() >= 128)
