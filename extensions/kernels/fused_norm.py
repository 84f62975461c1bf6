"""The layer norm of x + dropout(y + bias) on NVIDIA GPUs, as one kernel forwards and one backwards.

Forwards, a program reads some rows of the stream x and of the product y, and writes their norm, the normalised sum in
y's type, and the inverse of its deviation. Backwards, it reads the gradient by the norm and the normalised sum, and
writes the gradients by x and by y. It also adds up, over its rows, the gradients by bias, gamma and beta; XLA adds the
sums of all programs. No program adds to what another one has written, so that equal inputs give equal bits.

Which elements are dropped is an operand: one bit for each, packed from the same random bytes that the plain path reads
(bits.py). All arithmetic is in float32; each result is rounded once, where it is stored.

A row is cut into tiles of equal width, since the width of a tile is a power of two. XLA compiles the kernels for the
device it has (triton_ir.py). Nothing else can contain such a call, and its shapes must be known while it is traced.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert.core.config import ModelConfig, PrecisionConfig
from bert.core.errors import UsageError
from bert.hardware import graphs
from bert.model import fused_ops, kernels
from bert.model.dropout import DropoutRng, kept_scale
from extensions.kernels import triton_ir
from extensions.kernels.bits import packed
from extensions.kernels.comparison import compared, compiled_in_16_bits
from extensions.kernels.custom_calls import TYPES
from extensions.kernels.triton_ir import Kernel, Value

ROWS = 2  # of a tile
COLUMNS, NARROWEST, PIECES = 1024, 32, 8  # of a tile, at most and at least, and tiles in a row, at most
WARPS, STAGES = 8, 2
CHECKED_ROWS = 2048  # that both ways of a layer norm compute: several tiles for each program of the gradient
PROGRAMS = 256  # of the gradient, at least, if there are rows for them: two or three for a multiprocessor of an H100


class Problem(NamedTuple):
    """What the kernels are written for."""

    rows: int
    width: int
    stream: str  # type of x
    product: str  # type of y
    rate: float  # 0: nothing is dropped, and no kernel reads bits
    epsilon: float


def supports(rows: int | None, width: int) -> bool:
    """Return whether there are kernels for x [rows, width]."""
    if rows is None or rows == 0 or rows * width >= 2**31:
        return False
    piece = triton_ir.tile(width, COLUMNS)
    return rows % ROWS == 0 and piece >= NARROWEST and width // piece <= PIECES


def add_dropout_norm(*tensors: tf.Tensor, rate: float, epsilon: float) -> tf.Tensor:
    """Return the layer norm of x + dropout(y + bias), [M, D] in x's type.

    tensors: x [M, D], product y [M, D], bias, gamma and beta [D], and, if there is dropout, which elements it keeps, of
    `packed` with M * D bits. Running it raises an error of TensorFlow if XLA compiles for a device that is
    no NVIDIA GPU.
    """
    x, y, *_ = tensors
    rate = rate if len(tensors) > 5 else 0.0
    rows, width = x.shape
    problem = Problem(rows, width, TYPES[x.dtype], TYPES[y.dtype], rate, epsilon)
    bits = tensors[5:]

    @tf.custom_gradient
    def differentiable(
        x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        output, normalised, inverse = _forward(problem, x, y, bias, gamma, beta, *bits)

        def gradients(upstream: tf.Tensor) -> list[tf.Tensor]:
            return _backward(problem, upstream, normalised, inverse, gamma, *bits)

        return output, gradients

    return differentiable(*map(tf.convert_to_tensor, tensors[:5]))


def _forward(problem: Problem, *operands: tf.Tensor) -> list[tf.Tensor]:
    """Return the norm in x's type, the normalised sum in y's, and the inverse deviations [M] float32."""
    x, y, *_ = operands
    grid = (problem.rows // ROWS, 1, 1)
    like = [x, y, tf.TensorSpec([problem.rows], tf.float32)]
    return triton_ir.call(forward(problem), grid, operands, like, WARPS, STAGES)


def _backward(problem: Problem, *operands: tf.Tensor) -> list[tf.Tensor]:
    """Return the gradients by x, y, bias, gamma and beta."""
    upstream, normalised, *_ = operands
    programs = problem.rows // ROWS // _passes(problem)
    like = [upstream, normalised, tf.TensorSpec([programs, 3, problem.width], tf.float32)]
    by_x, by_y, sums = triton_ir.call(backward(problem), (programs, 1, 1), operands, like, WARPS, STAGES)
    return [by_x, by_y, *tf.unstack(tf.reduce_sum(sums, axis=0))]


def _passes(problem: Problem) -> int:
    """Return how many tiles a program of the gradient passes over: a power of two that divides their number."""
    tiles = problem.rows // ROWS
    most = max(1, tiles // PROGRAMS)
    return triton_ir.tile(tiles, 1 << most.bit_length() - 1)


class _Rows:
    """A kernel on arrays [M, D] and the places of one tile of each piece of some rows."""

    def __init__(self, name: str, problem: Problem, arguments: Sequence[str]) -> None:
        """arguments: types of the elements that the pointers point to."""
        self.problem, self.kernel = problem, Kernel(name, arguments)
        piece = triton_ir.tile(problem.width, COLUMNS)
        self.columns = [self.kernel.range(piece) + start for start in range(0, problem.width, piece)]

    def rows(self, tile: Value) -> Value:
        """Return the numbers of the rows of a tile, below each other."""
        return self.kernel.range(ROWS) + tile * ROWS

    def vectors(self, pointer: Value) -> list[Value]:
        """Return the pieces of a vector [D], each as a row."""
        return [self.kernel.load(pointer, columns).row() for columns in self.columns]

    def tiles(self, pointer: Value, rows: Value) -> list[Value]:
        """Return the pieces of these rows of an array, in float32."""
        return [self.kernel.cast(self.kernel.load(pointer, place), "f32") for place in self._places(rows)]

    def store(self, pointer: Value, rows: Value, tiles: Sequence[Value]) -> None:
        """Write the pieces of these rows."""
        for place, tile in zip(self._places(rows), tiles, strict=True):
            self.kernel.store(pointer, place, tile)

    def _places(self, rows: Value) -> list[Value]:
        return [rows.column() * self.problem.width + columns.row() for columns in self.columns]

    def means(self, tiles: Sequence[Value]) -> Value:
        """Return the mean of each row, as a column."""
        total, *others = map(self.kernel.row_sums, tiles)
        for more in others:
            total += more
        return (total * (1.0 / self.problem.width)).column()

    def dropout(self, bits: Sequence[Value], rows: Value, tiles: Sequence[Value]) -> list[Value]:
        """Return the pieces with 0 for what is dropped, and the rest scaled. bits: a pointer to them, or nothing."""
        if not bits:
            return list(tiles)
        scale, width = kept_scale(self.problem.rate), self.problem.width
        return [
            self.kernel.kept(bits[0], rows.column(), columns.row(), width, tile * scale)
            for columns, tile in zip(self.columns, tiles, strict=True)
        ]


def forward(problem: Problem) -> Kernel:
    """Return the kernel that writes the norm, the normalised sum and the inverse deviations."""
    bits = ["i8"] * (problem.rate > 0)
    results = [problem.stream, problem.product, "f32"]
    some = _Rows("norm_forward", problem, [problem.stream, problem.product, *["f32"] * 3, *bits, *results])
    kernel, (x, y, bias, gamma, beta, *packed, output, normalised, inverses) = some.kernel, some.kernel.arguments
    rows = some.rows(kernel.program(0))
    added = [tile + row for tile, row in zip(some.tiles(y, rows), some.vectors(bias), strict=True)]
    added = some.dropout(packed, rows, added)
    totals = [one + other for one, other in zip(some.tiles(x, rows), added, strict=True)]
    mean = some.means(totals)
    centred = [tile - mean for tile in totals]
    inverse = kernel.inverse_root(some.means([tile * tile for tile in centred]) + problem.epsilon)
    normal = [tile * inverse for tile in centred]
    some.store(normalised, rows, normal)
    scaled = zip(normal, some.vectors(gamma), some.vectors(beta), strict=True)
    some.store(output, rows, [tile * factor + shift for tile, factor, shift in scaled])
    kernel.store(inverses, rows.column(), inverse)
    return kernel


def backward(problem: Problem) -> Kernel:
    """Return the kernel that writes the gradients by x and y, and sums over rows of those by bias, gamma and beta.

    With the normalised sum n, its inverse deviation r and the gradient g by it, the gradient by the sum is
    r (g - mean(g) - n mean(g n)).
    """
    bits = ["i8"] * (problem.rate > 0)
    results = [problem.stream, problem.product, "f32"]
    some = _Rows("norm_backward", problem, [problem.stream, problem.product, "f32", "f32", *bits, *results])
    kernel, (upstream, normalised, inverses, gamma, *packed, by_x, by_y, sums) = some.kernel, some.kernel.arguments
    factors, passes, pieces = some.vectors(gamma), _passes(problem), len(some.columns)
    first = kernel.program(0) * passes

    def body(number: Value, *totals: Value) -> list[Value]:
        rows = some.rows(first + number)
        rises, normal = some.tiles(upstream, rows), some.tiles(normalised, rows)
        inverse = kernel.load(inverses, rows.column())
        slopes = [rise * factor for rise, factor in zip(rises, factors, strict=True)]
        mean, share = some.means(slopes), some.means([g * n for g, n in zip(slopes, normal, strict=True)])
        by_sum = [(g - mean - n * share) * inverse for g, n in zip(slopes, normal, strict=True)]
        some.store(by_x, rows, by_sum)
        by_product = some.dropout(packed, rows, by_sum)
        some.store(by_y, rows, by_product)
        by_gamma = [rise * n for rise, n in zip(rises, normal, strict=True)]
        return [total + more for total, more in zip(totals, [*by_product, *by_gamma, *rises], strict=True)]

    zeros = [kernel.constant(0.0, "f32", (ROWS, *columns.shape)) for columns in some.columns * 3]
    totals = kernel.loop(passes, zeros, body)
    for number, total in enumerate(totals):
        line = kernel.program(0) * 3 + number // pieces
        kernel.store(sums, some.columns[number % pieces] + line * problem.width, kernel.column_sums(total))
    return kernel


def check(model: ModelConfig, precision: PrecisionConfig, tokens: int) -> None:
    """Raise UsageError if a fused layer norm does not run here, or its results are wrong."""
    del tokens
    compiled_in_16_bits("fused_norm", precision)
    width, rate = model.hidden_size, model.hidden_dropout_prob
    if not supports(CHECKED_ROWS, width):
        raise UsageError(
            f"fused layer norm has no kernel for a width of {width}; it takes up to {PIECES} times a "
            f"power of two from {NARROWEST} to {COLUMNS}; leave out --model.fused_norm"
        )
    x, y, upstream, bias, gamma, beta = (
        tf.random.stateless_normal(shape, seed=(3, number))
        for number, shape in enumerate([[CHECKED_ROWS, width]] * 3 + [[width]] * 3)
    )
    stream = precision.residual
    given = [tf.cast(x, stream), tf.cast(y, precision.compute), bias, gamma, beta]

    @graphs.function(jit_compile=True)
    def normalise_and_differentiate(fused: bool) -> list[tf.Tensor]:
        draw, compute = (packed, add_dropout_norm) if fused else (DropoutRng.bits, fused_ops.add_dropout_norm)
        bits = draw(DropoutRng(tf.constant([5, 6], tf.int64)), tf.constant([CHECKED_ROWS, width]), rate)
        with tf.GradientTape() as tape:
            tape.watch(given)
            output = compute(*given, *bits, rate=rate, epsilon=model.layer_norm_epsilon)
        return [output, *tape.gradient(output, given, tf.cast(upstream, stream))]

    compared(normalise_and_differentiate, "fused layer norm", "--model.fused_norm")


KERNEL = kernels.Kernel(supports, add_dropout_norm, lambda model: "fused layer norm", check, packed)
