"""Fused operations have the values and gradients of plain formulas, and sum in float32."""

import numpy as np
import pytest
import tensorflow as tf

from bert.model import fused_ops
from bert.model.dropout import apply_dropout
from bert.model.fused_ops import activation, add_bias, converted_product, copies, product
from tests.bert.model.random_tensors import Function, bits, gradients, normal

RATE, EPSILON = 0.3, 0.01


def norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + EPSILON) * gamma + beta


CASES: dict[str, tuple[Function, Function, list[tf.Tensor]]] = {
    "layer_norm": (
        lambda *a: fused_ops.layer_norm(*a, rate=RATE, epsilon=EPSILON),
        lambda x, g, b, r: apply_dropout(norm(x, g, b), (r,), RATE),
        [normal(7, 13), normal(13), normal(13), bits(7, 13)],
    ),
    "add_dropout": (
        lambda *a: fused_ops.add_dropout(*a, rate=RATE),
        lambda x, y, b, r: x + apply_dropout(y + b, (r,), RATE),
        [normal(7, 13), normal(7, 13, scale=2), normal(13), bits(7, 13)],
    ),
    "add_dropout_norm": (
        lambda *a: fused_ops.add_dropout_norm(*a, rate=RATE, epsilon=EPSILON),
        lambda x, y, b, g, s, r: norm(x + apply_dropout(y + b, (r,), RATE), g, s),
        [normal(7, 13), normal(7, 13, scale=2), normal(13), normal(13), normal(13), bits(7, 13)],
    ),
    "gelu": (
        activation("gelu"),
        lambda y, b: (y + b) * 0.5 * (1 + tf.math.erf((y + b) / 2**0.5)),
        [normal(7, 13), normal(13)],
    ),
    "gelu_tanh": (
        activation("gelu_tanh"),
        lambda y, b: tf.nn.gelu(y + b, approximate=True),
        [normal(7, 13, scale=2), normal(13)],
    ),
    "add_bias": (add_bias, lambda y, b: y + b, [normal(7, 13), normal(13)]),
    "product": (product, lambda x, w: tf.einsum("mi,io->mo", x, w), [normal(7, 13), normal(13, 5)]),
    "copies": (lambda x: copies(x, 3), lambda x: [x, x, x], [normal(7, 13)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_fused_operations_and_their_gradients_are_those_of_the_plain_formula(
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


def normalised(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)


def dropped(x: np.ndarray, bits: np.ndarray) -> np.ndarray:
    levels = round(RATE * 256)
    return np.where(bits >= levels, x * 256 / (256 - levels), 0.0)


NARROW: dict[str, tuple[Function, str]] = {  # the formula, and which of x, y, bias, gamma, shift, random bits it reads
    "layer_norm": (lambda x, g, s, r: dropped(normalised(x) * g + s, r), "xgsr"),
    "rms_norm": (lambda x, g, r: dropped(x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * g, r), "xgr"),
    "add_dropout": (lambda x, y, b, r: x + dropped(y + b, r), "xybr"),
    "add_dropout_norm": (lambda x, y, b, g, s, r: normalised(x + dropped(y + b, r)) * g + s, "xybgsr"),
}


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("name", NARROW)
def test_a_stream_in_bfloat16_is_rounded_once_where_it_is_stored(
    name: str, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against NumPy in float64: with a mean of 20, what is computed in bfloat16 would be off by far more."""
    monkeypatch.setattr(fused_ops, "has_gpu", lambda: gpu)
    formula, read = NARROW[name]
    epsilon = {} if name == "add_dropout" else {"epsilon": EPSILON}
    given = {"x": normal(17, 64) + 20, "y": normal(17, 64, scale=2), "b": normal(64), "g": normal(64), "s": normal(64)}
    given |= {wide: tf.cast(given[wide], tf.bfloat16) for wide in "xy"} | {"r": bits(17, 64)}
    found, exact = (
        gradients(lambda *a: getattr(fused_ops, name)(*a, rate=RATE, **epsilon), *(convert(given[n]) for n in read))
        for convert in (tf.identity, lambda x: x if x.dtype == tf.uint8 else tf.cast(x, tf.float32))
    )
    (value,), slopes = found
    assert value.dtype == slopes[0].dtype == tf.bfloat16.as_numpy_dtype
    expected = formula(*(given[n].numpy().astype(np.float64) for n in read))
    np.testing.assert_allclose(value.astype(np.float64), expected, rtol=2**-8 * 1.01, atol=2e-5)
    for one, other in zip(slopes, exact[1], strict=True):  # those in float32 are tested above
        np.testing.assert_allclose(one.astype(np.float32), other, atol=2**-6 * np.abs(other).max(), rtol=0)


@pytest.mark.parametrize(("dtype", "unit"), [(tf.float32, 1e-6), (tf.bfloat16, 2**-7), (tf.float16, 2**-10)])
def test_a_product_that_is_converted_first_has_gradients_in_float32(dtype: tf.DType, unit: float) -> None:
    x, kernel = normal(7, 13), normal(13, 5)
    found = gradients(lambda x, w: converted_product(x, w, dtype), x, kernel)
    exact = gradients(lambda x, w: tf.einsum("mi,io->mo", x, w), x, kernel)
    for one, other in zip([*found[0], *found[1]], [*exact[0], *exact[1]], strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other, atol=4 * unit * np.abs(other).max())


@pytest.mark.parametrize("name", ["add_dropout", "gelu", "add_bias"])
def test_gradients_of_biases_are_summed_in_float32_whatever_the_compute_type(name: str) -> None:
    # Of 3,001 ones a sum in bfloat16 stops at 256, where adding one no longer changes it.
    rows, width = 3001, 8
    y, bias = tf.zeros([rows, width], tf.bfloat16), tf.zeros([width])
    call: dict[str, Function] = {
        "add_dropout": lambda y, b: fused_ops.add_dropout(tf.zeros([rows, width]), y, b, rate=0.0),
        "gelu": activation("gelu"),
        "add_bias": add_bias,
    }
    with tf.GradientTape() as tape:
        tape.watch(bias)
        total = tf.reduce_sum(tf.cast(call[name](y, bias), tf.float32))
    slope = 0.5 if name == "gelu" else 1.0
    np.testing.assert_allclose(tape.gradient(total, bias), rows * slope, rtol=1e-6)
