"""Heads against plain formulas; the others are compared in test_encoder.py."""

import numpy as np
import tensorflow as tf

from bert.config import ModelConfig
from bert.model.heads import Classifier

CLASSES = 3


def test_scores_are_a_product_with_the_summary_and_a_bias(model_config: ModelConfig) -> None:
    head, pooled = Classifier(model_config, 5, CLASSES), np.random.default_rng(2).normal(size=(7, 20)).astype("f")
    bias = np.array([0.5, -2.0, 7.0], np.float32)
    head.output.bias.assign(bias)
    expected = pooled.astype(float) @ head.output.kernel.numpy().astype(float) + bias
    np.testing.assert_allclose(head(tf.constant(pooled)), expected, atol=1e-5)
