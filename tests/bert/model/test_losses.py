"""The cross-entropy against its definition in NumPy, as it is compiled for CPUs and as for GPUs."""

import numpy as np
import pytest
import tensorflow as tf

from bert.model import losses

ROWS, CLASSES = 7, 11


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_cross_entropy_its_gradients_and_right_answers(
    dtype: tf.DType, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "has_gpu", lambda: gpu)
    random = np.random.default_rng(3)
    products = tf.cast(random.normal(0, 3, (ROWS, CLASSES)), dtype)
    bias = tf.constant(random.normal(0, 1, CLASSES), tf.float32)
    labels, weights = random.integers(0, CLASSES, ROWS), random.uniform(0, 2, ROWS)
    compiled = tf.function(losses.classification.python_function, jit_compile=True)  # traced for this device
    with tf.GradientTape() as tape:
        tape.watch([products, bias])
        found = compiled(products, bias, tf.constant(labels, tf.int32), tf.constant(weights, tf.float32))
    by_products, by_bias = tape.gradient(found.loss, [products, bias])

    scores = tf.cast(products, tf.float64).numpy() + bias.numpy()
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    slopes = (chances - np.eye(CLASSES)[labels]) * weights[:, None]
    np.testing.assert_allclose(found.loss, -(np.log(chances[np.arange(ROWS), labels]) * weights).sum(), rtol=1e-5)
    np.testing.assert_allclose(found.correct, weights[scores.argmax(1) == labels].sum(), rtol=1e-6)
    assert by_products.dtype == dtype
    np.testing.assert_allclose(tf.cast(by_products, tf.float32), slopes, atol=1e-5 if dtype == tf.float32 else 2**-8)
    np.testing.assert_allclose(by_bias, slopes.sum(0), atol=1e-5)
