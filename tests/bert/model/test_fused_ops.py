"""Compiled regions and attention against plain formulas: values, gradients, and the sums that bfloat16 would lose."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.model import attention, fused_ops
from bert.model.attention import attend, scale
from bert.model.dropout import apply_dropout
from bert.model.fused_ops import add_bias, converted_product, copies, product

RATE = 0.3
Function = Callable[..., Any]


def normal(*shape: int, scale: float = 1.0) -> tf.Tensor:
    return tf.constant(np.random.default_rng(sum(shape)).normal(0.5, scale, shape), tf.float32)


def bits(*shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(sum(shape)).integers(0, 256, shape), tf.uint8)


def gradients(function: Function, *given: tf.Tensor) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the function gives, and the gradients of a sum of it, unevenly weighted, by each argument that can vary."""
    varied = [tensor for tensor in given if tensor.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(varied)
        outputs = tf.nest.flatten(function(*given))
        weights = [tf.cos(tf.reshape(tf.range(tf.size(y), dtype=tf.float32), y.shape)) for y in outputs]
        total = tf.add_n([tf.reduce_sum(tf.cast(y, tf.float32) * w) for y, w in zip(outputs, weights, strict=True)])
    return [y.numpy() for y in outputs], [x.numpy() for x in tape.gradient(total, varied)]


def norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-12) * gamma + beta


CASES: dict[str, tuple[Function, Function, list[tf.Tensor]]] = {
    "layer_norm": (
        lambda *a: fused_ops.layer_norm(*a, rate=RATE),
        lambda x, g, b, r: apply_dropout(norm(x, g, b), (r,), RATE),
        [normal(7, 13), normal(13), normal(13), bits(7, 13)],
    ),
    "add_dropout": (
        lambda *a: fused_ops.add_dropout(*a, rate=RATE),
        lambda x, y, b, r: x + apply_dropout(y + b, (r,), RATE),
        [normal(7, 13), normal(7, 13, scale=2), normal(13), bits(7, 13)],
    ),
    "add_dropout_norm": (
        lambda *a: fused_ops.add_dropout_norm(*a, rate=RATE),
        lambda x, y, b, g, s, r: norm(x + apply_dropout(y + b, (r,), RATE), g, s),
        [normal(7, 13), normal(7, 13, scale=2), normal(13), normal(13), normal(13), bits(7, 13)],
    ),
    "gelu": (
        fused_ops.gelu,
        lambda y, b: (y + b) * 0.5 * (1 + tf.math.erf((y + b) / 2**0.5)),
        [normal(7, 13), normal(13)],
    ),
    "add_bias": (add_bias, lambda y, b: y + b, [normal(7, 13), normal(13)]),
    "product": (product, lambda x, w: tf.einsum("mi,io->mo", x, w), [normal(7, 13), normal(13, 5)]),
    "copies": (lambda x: copies(x, 3), lambda x: [x, x, x], [normal(7, 13)]),
}


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_regions_and_their_gradients_are_those_of_the_plain_formula(
    name: str, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_ops, "has_gpu", lambda: gpu)
    ours, plain, given = CASES[name]
    for mine, theirs in zip(gradients(ours, *given), gradients(plain, *given), strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_what_gpus_keep_of_a_norm_in_16_bits_costs_its_gradients_no_more_than_those_and_its_values_less(
    dtype: tf.DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_ops, "has_gpu", lambda: True)
    ours, plain, (x, y, *others) = CASES["add_dropout_norm"]
    y = tf.cast(tf.cast(y, dtype), tf.float32)
    (value,), slopes = gradients(lambda x, y, *rest: ours(x, tf.cast(y, dtype), *rest), x, y, *others)
    (expected,), exact = gradients(plain, x, y, *others)
    unit = 2**-8 if dtype == tf.bfloat16 else 2**-11
    np.testing.assert_allclose(value, expected, atol=unit, rtol=0)  # where one number of 16 bits is off by five
    for one, other in zip(slopes, exact, strict=True):
        np.testing.assert_allclose(one, other, atol=4 * unit * np.abs(other).max())


@pytest.mark.parametrize(("dtype", "unit"), [(tf.float32, 1e-6), (tf.bfloat16, 2**-7), (tf.float16, 2**-10)])
def test_a_product_that_is_converted_first_has_gradients_in_float32(dtype: tf.DType, unit: float) -> None:
    x, kernel = normal(7, 13), normal(13, 5)
    found = gradients(lambda x, w: converted_product(x, w, dtype), x, kernel)
    exact = gradients(lambda x, w: tf.einsum("mi,io->mo", x, w), x, kernel)
    for one, other in zip([*found[0], *found[1]], [*exact[0], *exact[1]], strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other, atol=4 * unit * np.abs(other).max())


SHUT = np.where(np.arange(11) < np.array([[11], [5]]), 0.0, -1e4)  # [2, 11]
MASKS = {
    "padding": SHUT[:, None, None],
    "instances": np.where((SHUT < 0)[:, :, None] == (SHUT < 0)[:, None, :], 0.0, -1e4)[:, None],
}


@pytest.mark.parametrize("rate", [0.0, RATE])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("way", ["eager", "graph", "region", "bfloat16", "float16"])
def test_attention_and_its_gradients_are_those_of_the_plain_formula(
    way: str, kind: str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a graph too, where TensorFlow puts other kernels in the place of what is written."""
    if way == "region":  # as on GPUs
        monkeypatch.setattr(attention, "exact_softmax", lambda dtype: False)
    mask = tf.constant(MASKS[kind], tf.float32)
    given = [normal(2, 3, 11, 5), normal(2, 3, 11, 5, scale=2), normal(2, 3, 11, 5, scale=3)]
    random = (bits(2, 3, 11, 11),) if rate else ()
    dtype = tf.as_dtype(way) if "float" in way else tf.float32

    def plain(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
        weights = tf.nn.softmax(tf.einsum("bnih,bnjh->bnij", q, k) * 5**-0.5 / scale(5) + mask)
        return tf.einsum("bnij,bnjh->bnih", apply_dropout(weights, random, rate), v)

    def ours(*tensors: tf.Tensor) -> tf.Tensor:
        return attend(*(tf.cast(x, dtype) for x in tensors), mask, *random, rate=rate)

    found = gradients(ours if way == "eager" else tf.function(ours), *given)
    for mine, theirs in zip(found, gradients(plain, *given), strict=True):
        for one, other in zip(mine, theirs, strict=True):
            close = 1e-4 if dtype == tf.float32 else 6 * np.abs(other).max() / (256 if way == "bfloat16" else 2048)
            np.testing.assert_allclose(one.astype(np.float32), other, rtol=1e-4, atol=close)


def test_a_softmax_that_is_not_computed_in_float32_is_found_out() -> None:
    find = "import tensorflow as tf; from bert.model import attention; print(attention.exact_softmax(tf.bfloat16))"
    without = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"}
    said = subprocess.run([sys.executable, "-c", find], env=without, capture_output=True, text=True, check=True).stdout
    assert said == "False\n"  # TensorFlow's own is off by a hundredth and more
    assert attention.exact_softmax(tf.float32)


def test_attention_holds_scores_beyond_the_range_of_exp() -> None:
    q, k = 40.0 * tf.ones([1, 1, 3, 4]), tf.constant([1.0, 1.0, -1.0])[None, None, :, None] * tf.ones([1, 1, 3, 4])
    found, slopes = gradients(lambda *a: attend(*a, tf.zeros([1, 1, 1, 3]), rate=0.0), q, k, normal(1, 1, 3, 4))
    np.testing.assert_allclose(found[0][0, 0], np.tile(normal(1, 1, 3, 4)[0, 0, :2].numpy().mean(0), [3, 1]), rtol=1e-5)
    assert all(np.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("name", ["add_dropout", "gelu", "add_bias"])
def test_gradients_of_biases_are_summed_in_float32_whatever_the_compute_type(name: str) -> None:
    # Of 3,001 ones a sum in bfloat16 stops at 256, where adding one no longer changes it.
    rows, width = 3001, 8
    y, bias = tf.zeros([rows, width], tf.bfloat16), tf.zeros([width])
    call: dict[str, Function] = {
        "add_dropout": lambda y, b: fused_ops.add_dropout(tf.zeros([rows, width]), y, b, rate=0.0),
        "gelu": fused_ops.gelu,
        "add_bias": add_bias,
    }
    with tf.GradientTape() as tape:
        tape.watch(bias)
        total = tf.reduce_sum(tf.cast(call[name](y, bias), tf.float32))
    slope = 0.5 if name == "gelu" else 1.0
    np.testing.assert_allclose(tape.gradient(total, bias), rows * slope, rtol=1e-6)
