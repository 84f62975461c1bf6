"""A feed-forward layer on NVIDIA GPUs whose products apply GELU, and its gradient, as they write: GELU(x W1 + b1) W2.

Two kernels of this project. Forwards, one computes x W1 and writes both z = x W1 + b1 and GELU(z). Backwards, one
computes the gradient by GELU(z), a product with W2, and multiplies it by the slope of GELU at z. It writes that and its
sums over the rows of each tile, which XLA adds for the gradient by b1. The other products are cuBLAS's. No program adds
to what another one has written, so that equal inputs give equal bits.

GELU is the published one, with erf. It and its slope are computed in float32, from a product that is not rounded; z is
rounded once, where it is stored.

XLA compiles the kernels for the device it has (triton_ir.py). Nothing else can contain such a call, and its shapes must
be known while it is traced.

Shapes: M rows, D width, F feed-forward.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bert.core.config import ModelConfig, PrecisionConfig
from bert.core.errors import UsageError
from bert.hardware import graphs
from bert.model import fused_ops, kernels
from bert.model.dense import dense_product
from bert.model.fused_ops import product_gradients
from extensions.kernels import triton_ir
from extensions.kernels.comparison import compared, compiled_in_16_bits
from extensions.kernels.custom_calls import TYPES
from extensions.kernels.triton_ir import Kernel, Value

ACTIVATION = "gelu"  # the row of `bert.core.activations` that the kernels compute
SMALLEST = 16  # rows and columns of a product
CHECKED_ROWS = 256  # that both ways of a feed-forward layer compute: several tiles
ROWS, COLUMNS, TERMS = 128, 256, 64  # of a tile, at most; terms of its sums in one pass
WARPS, STAGES = 16, 3  # so that an H100 keeps all in registers; three stages are 144 KiB of shared memory
NEARNESS, FACTORS = 0.3275911, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)  # of erf's formula


class Problem(NamedTuple):
    """What the kernels are written for."""

    rows: int
    width: int
    inner: int
    dtype: str


def supports(rows: int | None, width: int, inner: int) -> bool:
    """Return whether there are kernels for these shapes."""
    if rows is None or rows * max(width, inner) >= 2**31:  # places are 32-bit numbers
        return False
    return all(size and size % SMALLEST == 0 for size in (rows, width, inner))


def feed_forward(x: tf.Tensor, first: tf.Tensor, bias: tf.Tensor, second: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return GELU(x W1 + b1) W2 [M, D] in bfloat16 or float16, `dtype`.

    x [M, D], float32 or in `dtype`, W1 [D, F], b1 [F] and W2 [F, D] float32. Running it raises an error of TensorFlow
    if XLA compiles for a device that is no NVIDIA GPU.
    """
    rows, width = x.shape
    problem = Problem(rows, width, first.shape[1], TYPES[dtype])

    @tf.custom_gradient
    def differentiable(
        x: tf.Tensor, first: tf.Tensor, bias: tf.Tensor, second: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        left, right, last = (tf.cast(each, dtype) for each in (x, first, second))
        activated = tf.TensorSpec([problem.rows, problem.inner], dtype)
        z, inner = _call(problem, forward(problem), [left, right, bias], [activated, activated])

        def gradients(upstream: tf.Tensor) -> list[tf.Tensor]:
            tiles = problem.rows // triton_ir.tile(problem.rows, ROWS)
            sums = tf.TensorSpec([tiles, problem.inner], tf.float32)
            by_z, by_bias = _call(problem, backward(problem), [upstream, last, z], [z, sums])
            by_last = tf.cast(tf.matmul(inner, upstream, transpose_a=True), tf.float32)
            return [*product_gradients(x.dtype, left, right, by_z), tf.reduce_sum(by_bias, axis=0), by_last]

        return tf.matmul(inner, last), gradients

    return differentiable(*map(tf.convert_to_tensor, (x, first, bias, second)))


def _call(
    problem: Problem, kernel: Kernel, operands: list[tf.Tensor], like: list[tf.Tensor | tf.TensorSpec]
) -> list[tf.Tensor]:
    # Programs that run at one time have few rows between them, and all columns: the kernel W stays in the cache.
    columns, rows = (
        size // triton_ir.tile(size, most) for size, most in ((problem.inner, COLUMNS), (problem.rows, ROWS))
    )
    return triton_ir.call(kernel, (columns, rows, 1), operands, like, WARPS, STAGES)


class _Tile:
    """The tile [rows, columns] of arrays [M, F] that a program of a kernel computes, from D terms."""

    def __init__(self, kernel: Kernel, problem: Problem) -> None:
        self.kernel, self.problem = kernel, problem
        self._terms = triton_ir.tile(problem.width, TERMS)
        count, across = triton_ir.tile(problem.rows, ROWS), triton_ir.tile(problem.inner, COLUMNS)
        self.rows = kernel.range(count) + kernel.program(1) * count
        self.columns = kernel.range(across) + kernel.program(0) * across
        self.places = self.rows.column() * problem.inner + self.columns.row()

    def product(self, left: Value, right: Callable[[Value], Value]) -> Value:
        """Return the product of the rows of `left` [M, D] with the columns; right: these, for some of the terms."""
        kernel, width = self.kernel, self.problem.width

        def body(number: Value, total: Value) -> list[Value]:
            terms = kernel.range(self._terms) + number * self._terms
            some = kernel.load(left, self.rows.column() * width + terms.row())
            return [kernel.product(some, right(terms), total)]

        zeros = kernel.constant(0.0, "f32", self.places.shape)
        (total,) = kernel.loop(width // self._terms, [zeros], body)
        return total


def forward(problem: Problem) -> Kernel:
    """Return the kernel that writes x W1 + b1 and GELU of that."""
    kernel = Kernel("gelu_forward", [problem.dtype, problem.dtype, "f32", problem.dtype, problem.dtype])
    x, first, bias, sums, activated = kernel.arguments
    tile = _Tile(kernel, problem)
    total = tile.product(x, lambda terms: kernel.load(first, terms.column() * problem.inner + tile.columns.row()))
    z = total + kernel.load(bias, tile.columns).row()
    kernel.store(sums, tile.places, z)
    below, _ = _normal(kernel, z)
    kernel.store(activated, tile.places, z * below)
    return kernel


def backward(problem: Problem) -> Kernel:
    """Return the kernel that writes the gradient by z = x W1 + b1, and its sums over the rows of each tile."""
    kernel = Kernel("gelu_backward", [*[problem.dtype] * 4, "f32"])
    upstream, second, stored, by_z, sums = kernel.arguments
    tile = _Tile(kernel, problem)
    total = tile.product(
        upstream,
        lambda terms: kernel.transposed(kernel.load(second, tile.columns.column() * problem.width + terms.row())),
    )
    z = kernel.cast(kernel.load(stored, tile.places), "f32")
    below, density = _normal(kernel, z)
    gradient = total * (below + z * density)
    kernel.store(by_z, tile.places, gradient)
    kernel.store(sums, tile.columns + kernel.program(1) * problem.inner, kernel.column_sums(gradient))
    return kernel


def _normal(kernel: Kernel, z: Value) -> tuple[Value, Value]:
    """Return the share of a normal distribution that is below z, and its density there.

    GELU is z times the share, its slope the share + z times the density. One exponential serves both: erf is Hastings's
    formula 7.1.26 in Abramowitz and Stegun (1964), wrong by 1.5e-7 at most.
    """
    exponential = kernel.exp2(z * z * (-0.5 * math.log2(math.e)))  # exp(-x^2) for x = z / sqrt(2)
    t = kernel.inverse(kernel.absolute(z) * (NEARNESS * 0.5**0.5) + 1.0)
    series = t * FACTORS[-1] + FACTORS[-2]
    for factor in FACTORS[-3::-1]:
        series = series * t + factor
    beyond = series * t * exponential * 0.5  # the share beyond |z|
    below = kernel.select(kernel.positive(z), beyond * -2.0 + 1.0) + beyond
    return below, exponential * (2 * math.pi) ** -0.5


def check(model: ModelConfig, precision: PrecisionConfig, tokens: int) -> None:
    """Raise UsageError if GELU within products does not run here, or its results are wrong."""
    del tokens
    compiled_in_16_bits("fused_gelu", precision)
    width, inner, dtype = model.hidden_size, model.intermediate_size, tf.as_dtype(precision.compute)
    if not supports(CHECKED_ROWS, width, inner):
        raise UsageError(
            f"fused GELU has no kernel for widths of {width} and {inner}; it takes multiples of "
            f"{SMALLEST}; leave out --model.fused_gelu"
        )
    shapes = [[CHECKED_ROWS, width], [width, inner], [inner], [inner, width], [CHECKED_ROWS, width]]
    scales = [1.0, width**-0.5, 1.0, inner**-0.5, 1.0]
    x, *weights, upstream = (
        scale * tf.random.stateless_normal(shape, seed=(3, number))
        for number, (shape, scale) in enumerate(zip(shapes, scales, strict=True))
    )
    given = [tf.cast(x, precision.residual), *weights]

    @graphs.function(jit_compile=True)
    def compute_and_differentiate(fused: bool) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(given)
            x, first, bias, second = given
            if fused:
                output = feed_forward(x, first, bias, second, dtype)
            else:
                inner = fused_ops.activation(ACTIVATION)(dense_product(x, first, dtype), bias)
                output = dense_product(inner, second, dtype)
        return [output, *tape.gradient(output, given, tf.cast(upstream, dtype))]

    compared(compute_and_differentiate, "fused GELU", "--model.fused_gelu")


KERNEL = kernels.Kernel(supports, feed_forward, lambda model: "fused GELU", check)
