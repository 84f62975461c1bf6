"""The cross-entropy against its definition in NumPy, as it is compiled for CPUs and as for GPUs."""

import numpy as np
import pytest
import tensorflow as tf

from bert.model import losses

ROWS, CLASSES = 7, 11


@pytest.mark.slow
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
    again = tf.function(losses._classification.python_function, jit_compile=True)  # traced for this device
    monkeypatch.setattr(losses, "_classification", again)
    with tf.GradientTape() as tape:
        tape.watch([products, bias])
        found = losses.classification(products, bias, tf.constant(labels, tf.int32), tf.constant(weights, tf.float32))
    by_products, by_bias = tape.gradient(found.loss, [products, bias])

    scores = tf.cast(products, tf.float64).numpy() + bias.numpy()
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    slopes = (chances - np.eye(CLASSES)[labels]) * weights[:, None]
    np.testing.assert_allclose(found.loss, -(np.log(chances[np.arange(ROWS), labels]) * weights).sum(), rtol=1e-5)
    np.testing.assert_allclose(found.correct, weights[scores.argmax(1) == labels].sum(), rtol=1e-6)
    assert by_products.dtype == dtype
    np.testing.assert_allclose(tf.cast(by_products, tf.float32), slopes, atol=1e-5 if dtype == tf.float32 else 2**-8)
    np.testing.assert_allclose(by_bias, slopes.sum(0), atol=1e-5)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_the_first_of_equal_scores_is_the_prediction(
    dtype: tf.DType, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "has_gpu", lambda: gpu)
    random, rows = np.random.default_rng(5), 301
    products, bias = random.integers(-3, 3, (rows, CLASSES)), random.integers(0, 2, CLASSES)  # most rows have ties
    labels, weights = random.integers(0, CLASSES, rows), random.integers(1, 4, rows)
    again = tf.function(losses._classification.python_function, jit_compile=True)  # traced for this device
    monkeypatch.setattr(losses, "_classification", again)
    found = losses.classification(
        tf.cast(products, dtype),
        tf.constant(bias, tf.float32),
        tf.constant(labels, tf.int32),
        tf.constant(weights, tf.float32),
    )
    scores = products + bias
    is_highest = scores[np.arange(rows), labels] == scores.max(1)
    is_first = scores.argmax(1) == labels  # NumPy's argmax is the first one
    assert weights[is_first].sum() < 0.7 * weights[is_highest].sum()
    assert float(found.correct) == weights[is_first].sum()


@pytest.mark.slow
def test_its_gradient_compiles_in_a_loop_after_a_call_with_unknown_dimensions() -> None:
    labels, weights = tf.ones([ROWS], tf.int32), tf.ones([ROWS])

    @tf.function(input_signature=[tf.TensorSpec([None, CLASSES]), tf.TensorSpec([None], tf.int32)])
    def before(products: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return losses.classification(products, tf.zeros([CLASSES]), labels, tf.ones_like(labels, tf.float32)).loss

    @tf.function(jit_compile=True)
    def slopes(products: tf.Tensor) -> tf.Tensor:  # [A, ROWS, CLASSES] -> [ROWS, CLASSES]
        def add(number: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                scores = products[number] * 2.0
                tape.watch(scores)
                loss = losses.classification(scores, tf.zeros([CLASSES]), labels, weights).loss
            return number + 1, total + tape.gradient(loss, scores)

        return tf.while_loop(lambda number, _: number < 2, add, (0, tf.zeros([ROWS, CLASSES])))[1]

    before(tf.zeros([ROWS, CLASSES]), labels)
    uniform = (1 / CLASSES - np.eye(CLASSES)[np.ones(ROWS, int)]) * 2
    np.testing.assert_allclose(slopes(tf.zeros([2, ROWS, CLASSES])), uniform, rtol=1e-5)
