"""Operations between and around the matrix products, fused so that memory is read once and written once.

A fused operation is a pure function of tensors that XLA compiles as a whole, on every device. Its gradient is compiled
as well, and recomputes what it needs from the arguments, so that nothing is stored between the two. All arithmetic is
in float32, whatever the type of the matrix products. So are the sums over rows that are the gradients of biases:
TensorFlow's own kernel adds those in bfloat16, where 256 + 1 is 256.

Dense layers' products and biases are here too, each with a gradient that is faster or more precise than TensorFlow's.

Shapes: M rows, D width, F feed-forward, I inputs, O outputs, B batch, N heads, T tokens.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from bert.core.activations import ACTIVATIONS
from bert.hardware import graphs
from bert.hardware.devices import has_gpu
from bert.model.dropout import apply_dropout


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of tensors and its gradient. Keyword arguments are constants; integers have no gradient."""
    forward = graphs.function(function, jit_compile=True)

    @graphs.function(jit_compile=True)
    def backward(tensors: list[tf.Tensor], upstream: list[tf.Tensor], constants: dict[str, Any]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            sources = [tensor for tensor in tensors if tensor.dtype.is_floating]
            tape.watch(sources)
            outputs = function(*tensors, **constants)
        return tape.gradient(outputs, sources, upstream[0] if tf.is_tensor(outputs) else upstream, "zero")

    @functools.wraps(function)
    def call(*tensors: tf.Tensor, **constants: Any) -> Any:
        @tf.custom_gradient
        def differentiable(*tensors: tf.Tensor) -> tuple[Any, Callable[..., list[tf.Tensor | None]]]:
            def gradients(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
                by_floating = iter(backward(list(tensors), list(upstream), constants))
                return [next(by_floating) if tensor.dtype.is_floating else None for tensor in tensors]

            return forward(*tensors, **constants), gradients

        # Tensors instead of variables: a compiled function would always use the variables of its first call.
        return differentiable(*map(tf.convert_to_tensor, tensors))

    return call


def _row_sums(x: tf.Tensor, factor: float = 1.0) -> tf.Tensor:
    """Return the sum of each row of x [M, D] times `factor`, [M]."""
    if has_gpu():
        return tf.reduce_sum(x, axis=-1) * factor
    # XLA's loops for CPUs add a row's numbers one by one; a matrix-vector product adds eight at a time.
    return tf.linalg.matvec(x, tf.fill([x.shape[-1]], factor))


def sum_of_squares(x: tf.Tensor) -> tf.Tensor:
    """Return the sum of the squares of x of any shape. Call this within a compiled function.

    The sum of a vector does not use a matrix product: XLA would add each number to one running total, and float32 would
    lose digits.
    """
    return tf.reduce_sum(_row_sums(tf.square(x)) if x.shape.rank == 2 else tf.square(x))


def norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the layer norm of x [M, D] float32; `epsilon` is added to the variance.

    Call this within a compiled function.
    """
    per_component = 1.0 / x.shape[-1]
    centred = x - _row_sums(x, per_component)[:, None]
    variance = _row_sums(tf.square(centred), per_component)[:, None]
    return centred * (tf.math.rsqrt(variance + epsilon) * gamma) + beta


def _residual_sum(x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor, bits: tuple[tf.Tensor, ...], rate: float) -> tf.Tensor:
    """Return x + dropout(y + bias), [M, D] float32; call it within a compiled function."""
    return tf.cast(x, tf.float32) + apply_dropout(tf.cast(y, tf.float32) + bias, bits, rate)


@fused
def layer_norm(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *bits: tf.Tensor, epsilon: float, rate: float = 0.0
) -> tf.Tensor:
    """Return dropout(gamma * normalised x + beta), x [M, D], gamma and beta [D], in x's type."""
    return tf.cast(apply_dropout(norm(tf.cast(x, tf.float32), gamma, beta, epsilon), bits, rate), x.dtype)


@fused
def rms_norm(x: tf.Tensor, gamma: tf.Tensor, *bits: tf.Tensor, epsilon: float, rate: float = 0.0) -> tf.Tensor:
    """Return dropout(gamma * x / sqrt(mean of x^2 + epsilon)), x [M, D], gamma [D], in x's type."""
    wide = tf.cast(x, tf.float32)
    mean = _row_sums(tf.square(wide), 1.0 / x.shape[-1])[:, None]
    return tf.cast(apply_dropout(wide * (tf.math.rsqrt(mean + epsilon) * gamma), bits, rate), x.dtype)


@fused
def add_dropout(x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor, *bits: tf.Tensor, rate: float) -> tf.Tensor:
    """Return x + dropout(y + bias): x [M, D], product y [M, D] of any type, bias [D]; in x's type."""
    return tf.cast(_residual_sum(x, y, bias, bits, rate), x.dtype)


def add_dropout_norm(*tensors: tf.Tensor, rate: float, epsilon: float) -> tf.Tensor:
    """Return the layer norm of x + dropout(y + bias), [M, D] in x's type.

    tensors: x, y, bias, gamma, beta and, if there is dropout, its bits, as in `add_dropout` and `layer_norm`.
    """
    form = _add_dropout_norm_on_gpu if has_gpu() else _add_dropout_norm
    return form(*tensors, rate=rate, epsilon=epsilon)


@fused
def _add_dropout_norm(
    x: tf.Tensor,
    y: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    *bits: tf.Tensor,
    rate: float,
    epsilon: float,
) -> tf.Tensor:
    return tf.cast(norm(_residual_sum(x, y, bias, bits, rate), gamma, beta, epsilon), x.dtype)


def _add_dropout_norm_on_gpu(
    x: tf.Tensor,
    y: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    *bits: tf.Tensor,
    rate: float,
    epsilon: float,
) -> tf.Tensor:
    """Compute `add_dropout_norm` on a GPU with little memory traffic: the gradient reads neither x nor y.

    The gradient reads the centred sum (the sum minus its mean) in y's type. Where x is float32 and y has 16 bits, the
    rounding error is stored as a second 16-bit number, for the reader of the norm. Both together have 16 bits of
    mantissa in bfloat16, 22 in float16, and the size of one float32.
    """

    @tf.custom_gradient
    def differentiable(*tensors: tf.Tensor) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        # The barrier in it has no gradient, and TensorFlow would ask for one before it takes ours.
        output, centred, inverse = _norm_of_sum(*map(tf.stop_gradient, tensors), *bits, rate=rate, epsilon=epsilon)

        def gradients(upstream: tf.Tensor) -> list[tf.Tensor]:
            return _norm_of_sum_gradients(upstream, centred, inverse, tensors[3], *bits, rate=rate)

        return output, gradients

    return differentiable(*map(tf.convert_to_tensor, (x, y, bias, gamma, beta)))


@graphs.function(jit_compile=True)
def _norm_of_sum(
    x: tf.Tensor,
    y: tf.Tensor,
    bias: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    *bits: tf.Tensor,
    rate: float,
    epsilon: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the norm [M, D] in x's type, the centred sum in y's type, and its inverse deviation [M, 1] float32.

    The barrier makes XLA write the centred sum to memory. Without it, XLA would recompute the sum for each reader.
    """
    total = _residual_sum(x, y, bias, bits, rate)
    exact = total - _row_sums(total, 1.0 / x.shape[-1])[:, None]
    if x.dtype == tf.float32:
        parts = [tf.cast(exact, y.dtype)]
        if y.dtype.size < exact.dtype.size:
            parts.append(tf.cast(exact - tf.cast(parts[0], tf.float32), y.dtype))
        parts = gen_xla_ops.xla_optimization_barrier(input=parts)
        inverse = _inverse_deviation(parts[0], epsilon)
        centred = tf.add_n([tf.cast(part, tf.float32) for part in parts])
        return centred * inverse * gamma + beta, parts[0], inverse
    narrow, exact = _also_narrow(exact, y.dtype)
    output = tf.cast(exact * _inverse_deviation(exact, epsilon) * gamma + beta, x.dtype)
    output, narrow = gen_xla_ops.xla_optimization_barrier(input=[output, narrow])
    return output, narrow, _inverse_deviation(narrow, epsilon)


def _inverse_deviation(centred: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return 1 / sqrt(variance + epsilon) of the rows of centred [M, D] of any type, [M, 1] float32."""
    squares = tf.square(tf.cast(centred, tf.float32))
    return tf.math.rsqrt(_row_sums(squares, 1.0 / centred.shape[-1])[:, None] + epsilon)


def _also_narrow(x: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """Return float32 x in a 16-bit type, and x again in float32, computed from the 16-bit x and its rounding error.

    XLA's row fusions write two arrays only if one is computed from the other.
    """
    narrow = tf.cast(x, dtype)
    wide = tf.cast(narrow, tf.float32)
    return narrow, wide + (x - wide)


@graphs.function(jit_compile=True)
def _norm_of_sum_gradients(
    upstream: tf.Tensor, centred: tf.Tensor, inverse: tf.Tensor, gamma: tf.Tensor, *bits: tf.Tensor, rate: float
) -> list[tf.Tensor]:
    """Return the gradients of `add_dropout_norm` by x, y, bias, gamma and beta."""
    per_component = 1.0 / centred.shape[-1]
    normalised, rise = tf.cast(centred, tf.float32) * inverse, tf.cast(upstream, tf.float32)
    slope = rise * gamma
    slope -= _row_sums(slope, per_component)[:, None]
    by_sum = (slope - normalised * _row_sums(slope * normalised, per_component)[:, None]) * inverse
    if upstream.dtype == tf.float32:
        by_x, by_product = by_sum, tf.cast(apply_dropout(by_sum, bits, rate), centred.dtype)
    else:
        by_x, by_sum = _also_narrow(by_sum, upstream.dtype)
        by_product = tf.cast(apply_dropout(by_sum, bits, rate), centred.dtype)
        by_x, by_product = gen_xla_ops.xla_optimization_barrier(input=[by_x, by_product])
    by_parameters = [tf.cast(by_product, tf.float32), rise * normalised, rise]
    return [by_x, by_product, *(tf.reduce_sum(rows, axis=0) for rows in by_parameters)]


@functools.cache
def activation(name: str) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return the named activation of `bert.core.activations` as a function of product y [M, F] and bias [F].

    It applies the activation to y + bias and returns y's type.
    """
    formula = ACTIVATIONS[name].formula

    @fused
    def activated(y: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        return tf.cast(formula(tf, tf.cast(y, tf.float32) + bias), y.dtype)

    return activated


@functools.cache
def gated_activation(name: str) -> Callable[..., tf.Tensor]:
    """Return a function that multiplies the named activation of one half of a product by the other half.

    Its arguments are the product y [M, 2 F] and the biases [F] of the two halves. It returns [M, F] in y's type.
    """
    formula = ACTIVATIONS[name].formula

    @fused
    def activated(y: tf.Tensor, bias: tf.Tensor, gate_bias: tf.Tensor) -> tf.Tensor:
        inner, gate = tf.split(tf.cast(y, tf.float32), 2, axis=-1)
        return tf.cast(formula(tf, inner + bias) * (gate + gate_bias), y.dtype)

    return activated


@graphs.function(jit_compile=True)
def softmax(scores: tf.Tensor, mask: tf.Tensor, factor: float) -> tf.Tensor:
    """Return the softmax over the last axis of factor * scores + mask, without gradient.

    scores: [B, N, T, T]; the result has their type. mask: [B, 1, 1 or T, T] float32.
    """
    return tf.cast(tf.nn.softmax(factor * tf.cast(scores, tf.float32) + mask), scores.dtype)


@graphs.function(jit_compile=True)
def dropped(weights: tf.Tensor, *bits: tf.Tensor, rate: float) -> tf.Tensor:
    """Return dropout(weights) of any type and shape, in that type, without gradient."""
    return tf.cast(apply_dropout(tf.cast(weights, tf.float32), bits, rate), weights.dtype)


@graphs.function(jit_compile=True)
def softmax_gradient(
    weights: tf.Tensor, row_dots: tf.Tensor, upstream: tf.Tensor, *bits: tf.Tensor, rate: float, factor: float
) -> tf.Tensor:
    """Return the gradient of `dropped(softmax(...))` by the scores [B, N, T, T], in the type of the weights.

    weights: the result of `softmax`. upstream: the gradient by the dropped weights. row_dots [B, N, T, 1]: the sum over
    each row of dropped weights * upstream.
    """
    by_weights = apply_dropout(tf.cast(upstream, tf.float32), bits, rate)
    return tf.cast(factor * tf.cast(weights, tf.float32) * (by_weights - row_dots), weights.dtype)


@graphs.function(jit_compile=True)
def column_sums(y: tf.Tensor) -> tf.Tensor:
    """Return the sums of y [M, D] of any type over its rows, [D] float32."""
    return tf.reduce_sum(tf.cast(y, tf.float32), axis=0)


@graphs.function(jit_compile=True)
def row_products(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return the dot products of x and y [..., H] of any type over the last axis, [..., 1] float32."""
    return tf.reduce_sum(tf.cast(x, tf.float32) * tf.cast(y, tf.float32), axis=-1, keepdims=True)


@tf.custom_gradient
def product(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
    """Return x [M, I] times kernel [I, O], both of one type."""

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        by_kernel = tf.matmul(x, upstream, transpose_a=True)
        if x.dtype != tf.float32 or has_gpu():
            return tf.matmul(upstream, kernel, transpose_b=True), by_kernel
        # oneDNN's float32 products are at least a fifth slower with a transposed kernel; transposing it first is cheap.
        # As a batch of one, because TensorFlow's optimiser would fold the transposition of a matrix into the product.
        transposed = tf.squeeze(tf.transpose(kernel[None], [0, 2, 1]), 0)
        return tf.matmul(upstream, transposed), by_kernel

    return tf.matmul(x, kernel), gradients


@tf.custom_gradient
def add_bias(y: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
    """Return y [M, O] + bias [O] in y's type. Unlike tf.nn.bias_add, sum the bias gradient in float32."""
    return tf.nn.bias_add(y, tf.cast(bias, y.dtype)), lambda upstream: (upstream, column_sums(upstream))


def converted_product(x: tf.Tensor, kernel: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return x [M, I], float32 or in `dtype`, times kernel [I, O] float32, computed in `dtype`; for GPUs.

    The gradient by x needs no conversion: cuBLAS writes it in x's type. As it writes, it adds x's other gradients.
    """

    @tf.custom_gradient
    def differentiable(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
        left, right = tf.cast(x, dtype), tf.cast(kernel, dtype)
        return tf.matmul(left, right), lambda upstream: product_gradients(x.dtype, left, right, upstream)

    return differentiable(x, kernel)


def product_gradients(
    dtype: tf.DType, left: tf.Tensor, right: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the gradients of left [M, I] times right [I, O], both in 16 bits: by left in `dtype`, by right float32."""
    by_kernel = tf.cast(tf.matmul(left, upstream, transpose_a=True), tf.float32)
    if dtype == left.dtype:
        return tf.matmul(upstream, right, transpose_b=True), by_kernel
    return _product_in_float32(upstream, right), by_kernel


@graphs.function(jit_compile=True)
def _product_in_float32(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return 16-bit x [M, O] times the transpose of 16-bit y [I, O], as [M, I] float32."""
    return tf.raw_ops.BatchMatMulV3(x=x, y=y, adj_y=True, Tout=tf.float32)


def copies(x: tf.Tensor, count: int) -> list[tf.Tensor]:
    """Return `count` copies of x. The gradient adds the copies' gradients from the last to the first.

    TensorFlow would choose another order. XLA fuses a sum into the product that is its first term. So the order decides
    how often the sum passes through memory.
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
