"""What lies between the matrix products, in compiled regions: memory is read once and written once.

A region is a pure function of tensors that XLA compiles whole, on every device. Its backward pass is a region too,
which computes again what it needs from the arguments: nothing is kept in between. All arithmetic is in float32,
whatever the type of the matrix products, and so are the sums over rows that are the gradients of biases: TensorFlow's
own kernel adds those up in bfloat16, where 256 + 1 is 256.

Shapes as in model.py; M rows.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from bert.hardware.devices import has_gpu
from bert.model.dropout import apply_dropout

LAYER_NORM_EPSILON = 1e-12


def region(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors, whose keyword arguments are constants; integers have no gradient."""
    forward = tf.function(function, jit_compile=True)

    @tf.function(jit_compile=True)
    def backward(tensors: list[tf.Tensor], upstream: list[tf.Tensor], constants: dict[str, Any]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            learnt = [tensor for tensor in tensors if tensor.dtype.is_floating]
            tape.watch(learnt)
            outputs = function(*tensors, **constants)
        return tape.gradient(outputs, learnt, upstream[0] if tf.is_tensor(outputs) else upstream, "zero")

    @functools.wraps(function)
    def call(*tensors: tf.Tensor, **constants: Any) -> Any:
        @tf.custom_gradient
        def differentiable(*tensors: tf.Tensor) -> tuple[Any, Callable[..., list[tf.Tensor | None]]]:
            def gradients(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
                found = iter(backward(list(tensors), list(upstream), constants))
                return [next(found) if tensor.dtype.is_floating else None for tensor in tensors]

            return forward(*tensors, **constants), gradients

        # Tensors, since a compiled function that is given variables keeps to those of its first call.
        return differentiable(*map(tf.convert_to_tensor, tensors))

    return call


def _sums(x: tf.Tensor, share: float = 1.0) -> tf.Tensor:
    """Sum of each row of x [M, D] times a share, [M]."""
    if has_gpu():
        return tf.reduce_sum(x, axis=-1) * share
    # XLA's loops for CPUs add up a row's numbers one by one, but those of a product by eights.
    return tf.linalg.matvec(x, tf.fill([x.shape[-1]], share))


def squares(x: tf.Tensor) -> tf.Tensor:
    """Sum of the squares of x of any shape, for a region to compute.

    Not by products for vectors: XLA would add each number to the total of all of them so far, and float32 lose digits.
    """
    return tf.reduce_sum(_sums(tf.square(x)) if x.shape.rank == 2 else tf.square(x))


def norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """Layer norm, for a region to compute."""
    share = 1.0 / x.shape[-1]
    centred = x - _sums(x, share)[:, None]
    variance = _sums(tf.square(centred), share)[:, None]
    return centred * (tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * gamma) + beta


@region
def normed(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *bits: tf.Tensor, rate: float = 0.0) -> tf.Tensor:
    """x [M, D] with mean 0 and variance 1 in each row, times gamma [D], plus beta [D]; float32, then dropout."""
    return apply_dropout(norm(x, gamma, beta), bits, rate)


@region
def added(x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor, *bits: tf.Tensor, rate: float) -> tf.Tensor:
    """The residual sum x [M, D] float32 + dropout(product y [M, D] + bias [D]), float32."""
    return x + apply_dropout(tf.cast(y, tf.float32) + bias, bits, rate)


def normed_sum(
    x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *bits: tf.Tensor, rate: float
) -> tf.Tensor:
    """Layer norm of `added`, [M, D] float32."""
    form = _normed_sum_kept if has_gpu() else _normed_sum
    return form(x, y, bias, gamma, beta, *bits, rate=rate)


@region
def _normed_sum(
    x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *bits: tf.Tensor, rate: float
) -> tf.Tensor:
    return norm(x + apply_dropout(tf.cast(y, tf.float32) + bias, bits, rate), gamma, beta)


def _normed_sum_kept(
    x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *bits: tf.Tensor, rate: float
) -> tf.Tensor:
    """The same for GPUs, where memory traffic is all that counts: the gradient reads neither x nor y.

    It reads the sum less its mean, in y's type. What 16 bits lose of that is kept as a second number of 16 bits for who
    reads the norm: together they have 16 bits of mantissa in bfloat16, 22 in float16, at the size of one float32.
    """

    @tf.custom_gradient
    def differentiable(*tensors: tf.Tensor) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        # The barrier in it has no gradient, and TensorFlow would ask for one before it takes ours.
        output, centred, inverse = _norm_of_sum(*map(tf.stop_gradient, tensors), *bits, rate=rate)

        def gradients(upstream: tf.Tensor) -> list[tf.Tensor]:
            return _norm_of_sum_gradients(upstream, centred, inverse, tensors[3], *bits, rate=rate)

        return output, gradients

    return differentiable(*map(tf.convert_to_tensor, (x, y, bias, gamma, beta)))


@tf.function(jit_compile=True)
def _norm_of_sum(
    x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *bits: tf.Tensor, rate: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The norm [M, D] float32; the sum less its mean in y's type; the inverse of that one's deviation [M, 1] float32.

    XLA writes the sum less its mean to memory, where it would else compute it again wherever it is read.
    """
    share = 1.0 / x.shape[-1]
    total = x + apply_dropout(tf.cast(y, tf.float32) + bias, bits, rate)
    exact = total - _sums(total, share)[:, None]
    parts = [tf.cast(exact, y.dtype)]
    if y.dtype.size < exact.dtype.size:
        parts.append(tf.cast(exact - tf.cast(parts[0], tf.float32), y.dtype))
    parts = gen_xla_ops.xla_optimization_barrier(input=parts)
    inverse = tf.math.rsqrt(_sums(tf.square(tf.cast(parts[0], tf.float32)), share)[:, None] + LAYER_NORM_EPSILON)
    whole = tf.add_n([tf.cast(part, tf.float32) for part in parts])
    return whole * inverse * gamma + beta, parts[0], inverse


@tf.function(jit_compile=True)
def _norm_of_sum_gradients(
    upstream: tf.Tensor, centred: tf.Tensor, inverse: tf.Tensor, gamma: tf.Tensor, *bits: tf.Tensor, rate: float
) -> list[tf.Tensor]:
    """Gradients by x, y, bias, gamma and beta of `normed_sum`."""
    share = 1.0 / centred.shape[-1]
    normal = tf.cast(centred, tf.float32) * inverse
    slope = upstream * gamma
    slope -= _sums(slope, share)[:, None]
    by_sum = (slope - normal * _sums(slope * normal, share)[:, None]) * inverse
    by_product = tf.cast(apply_dropout(by_sum, bits, rate), centred.dtype)
    by_parameters = [tf.cast(by_product, tf.float32), upstream * normal, upstream]
    return [by_sum, by_product, *(tf.reduce_sum(each, axis=0) for each in by_parameters)]


@region
def gelu(y: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """x * Phi(x), with the normal distribution's Phi, of product y [M, F] + bias [F], in y's type.

    By erf, as published: the erfc of tf.nn.gelu, more precise where nothing is left of x, takes twice the time.
    """
    x = tf.cast(y, tf.float32) + bias
    return tf.cast(x * (0.5 + 0.5 * tf.math.erf(x * 0.5**0.5)), y.dtype)


@tf.function(jit_compile=True)
def softmax(scores: tf.Tensor, mask: tf.Tensor, factor: float) -> tf.Tensor:
    """Softmax over the last axis of factor * scores [B, N, T, T] + mask [B, 1, 1 or T, T] float32, in the scores' type;
    has no gradient."""
    return tf.cast(tf.nn.softmax(factor * tf.cast(scores, tf.float32) + mask), scores.dtype)


@tf.function(jit_compile=True)
def dropped(weights: tf.Tensor, *bits: tf.Tensor, rate: float) -> tf.Tensor:
    """Dropout of weights of any type and shape, in that type; has no gradient."""
    return tf.cast(apply_dropout(tf.cast(weights, tf.float32), bits, rate), weights.dtype)


@tf.function(jit_compile=True)
def softmax_gradient(
    weights: tf.Tensor, share: tf.Tensor, upstream: tf.Tensor, *bits: tf.Tensor, rate: float, factor: float
) -> tf.Tensor:
    """Gradient by the scores [B, N, T, T] of `dropped` of `softmax`, which gave `weights`; in their type.

    upstream: that by the dropped weights; share [B, N, T, 1]: the sum over a row of their products with these.
    """
    by_weights = apply_dropout(tf.cast(upstream, tf.float32), bits, rate)
    return tf.cast(factor * tf.cast(weights, tf.float32) * (by_weights - share), weights.dtype)


@tf.function(jit_compile=True)
def column_sums(y: tf.Tensor) -> tf.Tensor:
    """Sums of y [M, D] of any type over its rows, [D] float32."""
    return tf.reduce_sum(tf.cast(y, tf.float32), axis=0)


@tf.function(jit_compile=True)
def row_products(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Scalar products of the last axes of x and y [..., H] of any type, [..., 1] float32."""
    return tf.reduce_sum(tf.cast(x, tf.float32) * tf.cast(y, tf.float32), axis=-1, keepdims=True)


@tf.custom_gradient
def product(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
    """x [M, I] times kernel [I, O], of one type."""

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        by_kernel = tf.matmul(x, upstream, transpose_a=True)
        if x.dtype != tf.float32 or has_gpu():
            return tf.matmul(upstream, kernel, transpose_b=True), by_kernel
        # oneDNN's float32 products read a kernel across its rows a fifth slower and more; to turn it costs little. As
        # a batch of one, since TensorFlow's optimiser would make the turning of a matrix part of the product again.
        transposed = tf.squeeze(tf.transpose(kernel[None], [0, 2, 1]), 0)
        return tf.matmul(upstream, transposed), by_kernel

    return tf.matmul(x, kernel), gradients


@tf.custom_gradient
def add_bias(y: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
    """y [M, O] + bias [O], in y's type; unlike that of tf.nn.bias_add the gradient is summed in float32."""
    return tf.nn.bias_add(y, tf.cast(bias, y.dtype)), lambda upstream: (upstream, column_sums(upstream))


def converted_product(x: tf.Tensor, kernel: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """x [M, I] times kernel [I, O], both float32, in `dtype`; for GPUs, where the gradient by x needs no conversion.

    cuBLAS writes it in float32, and adds what else x's gradient has as it writes.
    """

    @tf.custom_gradient
    def differentiable(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
        left, right = tf.cast(x, dtype), tf.cast(kernel, dtype)

        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return _wide(upstream, right), tf.cast(tf.matmul(left, upstream, transpose_a=True), tf.float32)

        return tf.matmul(left, right), gradients

    return differentiable(x, kernel)


@tf.function(jit_compile=True)
def _wide(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """x [M, O] times the transpose of y [I, O], of 16 bits -> [M, I] float32."""
    return tf.raw_ops.BatchMatMulV3(x=x, y=y, adj_y=True, Tout=tf.float32)


def copies(x: tf.Tensor, count: int) -> list[tf.Tensor]:
    """x so many times. Its gradient is summed from the last copy's to the first's.

    TensorFlow chooses its own order. XLA makes a sum part of the product that is its first term, so the order decides
    how many passes over memory it takes.
    """

    @tf.custom_gradient
    def differentiable(x: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., tf.Tensor]]:
        def gradient(*upstream: tf.Tensor) -> tf.Tensor:
            total = upstream[-1]
            for more in reversed(upstream[:-1]):
                total = more + total
            return total

        return [tf.identity(x) for _ in range(count)], gradient

    return differentiable(x)
