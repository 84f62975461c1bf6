"""Attention with dropout on NVIDIA GPUs that never writes its weights: dropout(softmax(factor q k' + mask)) v.

Three kernels, after FlashAttention-2 (Dao 2023): one for the result, one for the gradient by the queries, and one for
those by keys and values. Each passes over the weights of one head in tiles and computes them again from queries and
keys; the forward pass keeps the logarithm of each row's sum. No kernel adds to what another one has written, so that
equal inputs give equal bits.

Which weights are dropped is an operand: one bit for each, packed from the same random bytes that the plain path reads
(bits.py). So both paths have the same masks, those of a resumed run and of recomputed activations too.

XLA compiles the kernels for the device it has (triton_ir.py). Nothing else can contain such a call, and its shapes must
be known while it is traced.

Shapes as in attention.py; queries, keys, values, the result and all gradients lie in memory as [B, T, N, H].
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert.model.dropout import kept_scale
from extensions.kernels import triton_ir
from extensions.kernels.triton_ir import Kernel, Value

NARROW = {tf.bfloat16: "bf16", tf.float16: "f16"}
SMALLEST = 16  # rows and columns of a product
HEAD_WIDTHS = (16, 32, 64, 128)
LOG2_E = math.log2(math.e)
PIECE = 8  # bits of a byte
# Tokens of a tile whose place is fixed for one program, tokens of a tile of the loop, groups of 32 threads, stages.
FORWARD, BY_QUERIES, BY_KEYS = (128, 64, 8, 3), (128, 64, 8, 3), (64, 32, 4, 3)


class Problem(NamedTuple):
    """What the kernels are written for."""

    batch: int
    tokens: int
    heads: int
    width: int  # of a head
    dtype: str  # of queries, keys and values
    mask: tuple[int, int, int]  # B or 1, 1 or T, T
    factor: float
    rate: float  # 0: no weight is dropped, and no kernel reads bits


def supports(tokens: int | None, head_width: int) -> bool:
    """Return whether there are kernels for sequences of `tokens` tokens and heads of `head_width`."""
    return tokens is not None and tokens % SMALLEST == 0 and head_width in HEAD_WIDTHS


def attend(
    q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, *packed: tf.Tensor, rate: float, factor: float
) -> tf.Tensor:
    """Return the attention [B, T, N, H] of q, k and v [B, T, N, H] in bfloat16 or float16.

    mask [B or 1, 1, 1 or T, T], float32, is added to the scores and has no gradient. packed: of `bits.packed` for
    [B, N, T, T], or nothing, if nothing is dropped. Running it raises an error of TensorFlow if XLA compiles for a
    device that is no NVIDIA GPU.
    """
    batch, tokens, heads, width = q.shape
    rows = (mask.shape[0], mask.shape[2], mask.shape[3])
    problem = Problem(batch, tokens, heads, width, NARROW[q.dtype], rows, factor, rate if packed else 0.0)
    statistics = tf.TensorSpec([batch, heads, tokens], tf.float32)

    @tf.custom_gradient
    def differentiable(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        inputs = [q, k, v, mask, *packed]
        output, sums = _call(forward(problem), FORWARD, problem, inputs, [q, statistics])

        def gradients(upstream: tf.Tensor) -> list[tf.Tensor]:
            more = [*inputs, sums, upstream]
            by_q, shares = _call(by_queries(problem), BY_QUERIES, problem, [*more, output], [q, statistics])
            return [by_q, *_call(by_keys(problem), BY_KEYS, problem, [*more, shares], [k, v])]

        return output, gradients

    return differentiable(q, k, v)


def _call(
    kernel: Kernel,
    sizes: tuple[int, int, int, int],
    problem: Problem,
    operands: Sequence[tf.Tensor],
    like: Sequence[tf.Tensor | tf.TensorSpec],
) -> list[tf.Tensor]:
    fixed, _, warps, stages = sizes
    grid = (problem.tokens // triton_ir.tile(problem.tokens, fixed), problem.heads, problem.batch)
    return triton_ir.call(kernel, grid, operands, like, warps, stages)


class _Head:
    """The arrays of the head that a program of a kernel computes, and their tiles."""

    def __init__(self, name: str, problem: Problem, arguments: Sequence[str], sizes: tuple[int, int, int, int]) -> None:
        """arguments: types of the pointers that follow those to queries, keys, values, mask and bits."""
        self.problem, dropped = problem, problem.rate > 0
        self.kernel = Kernel(name, [*[problem.dtype] * 3, "f32", *["i8"] * dropped, *arguments])
        q, k, v, mask, *others = self.kernel.arguments
        self.fixed, self.moving = (triton_ir.tile(problem.tokens, size) for size in sizes[:2])
        self.start = self.kernel.program(0) * self.fixed
        self._head, self._batch = (self.kernel.cast(self.kernel.program(axis), "i64") for axis in (1, 2))
        self.q, self.k, self.v = map(self.rows, (q, k, v))
        self._mask = self._at(mask, self._batch * (problem.mask[1] * problem.tokens * (problem.mask[0] > 1)))
        pairs = problem.tokens * problem.tokens
        self._bits = self._at(others.pop(0), self._pair() * (pairs // PIECE)) if dropped else None
        self.others = others

    def _pair(self) -> Value:
        """The number of this sequence and head among all."""
        return self._batch * self.problem.heads + self._head

    def _at(self, pointer: Value, offset: Value) -> Value:
        return self.kernel.address(pointer, offset)

    def rows(self, pointer: Value) -> Value:
        """Return the pointer to this head in an array [B, T, N, H]."""
        return self._at(
            pointer, (self._batch * (self.problem.tokens * self.problem.heads) + self._head) * self.problem.width
        )

    def statistics(self, pointer: Value) -> Value:
        """Return the pointer to this head in an array [B, N, T]."""
        return self._at(pointer, self._pair() * self.problem.tokens)

    def places(self, start: Value, count: int) -> Value:
        """Return the numbers of `count` tokens [count]."""
        return self.kernel.range(count) + start

    def elements(self, tokens: Value) -> Value:
        """Return where the vectors of these tokens are in an array of `rows`, [tokens, H]."""
        across = self.kernel.range(self.problem.width).row()
        return tokens.column() * (self.problem.heads * self.problem.width) + across

    def tile(self, pointer: Value, tokens: Value) -> Value:
        """Return the vectors of these tokens, [tokens, H]."""
        return self.kernel.load(pointer, self.elements(tokens))

    def bias(self, queries: Value, keys: Value) -> Value:
        """Return the mask for queries [n, 1] and keys [1, m], or [1, n] and [m, 1], times log2(e); broadcastable."""
        varies = self.problem.mask[1] > 1
        return self.kernel.load(self._mask, queries * self.problem.tokens + keys if varies else keys) * LOG2_E

    def kept(self, queries: Value, keys: Value, x: Value) -> Value:
        """Return x with 0 for the pairs of queries and keys, as in `bias`, that are dropped."""
        if self._bits is None:
            return x
        return self.kernel.kept(self._bits, queries, keys, self.problem.tokens, x)

    @property
    def scale(self) -> float:
        """What the weights that are kept are multiplied by."""
        return kept_scale(self.problem.rate)

    def narrow(self, x: Value) -> Value:
        """Return x in the type of queries, keys and values."""
        return self.kernel.cast(x, self.problem.dtype)

    def passes(self) -> int:
        """How many tiles of the loop there are."""
        return self.problem.tokens // self.moving


def forward(problem: Problem) -> Kernel:
    """Return the kernel that writes the result and the logarithm to base 2 of each row's sum.

    A program computes the rows of some queries. Its loop over the keys keeps three values: the greatest score so far,
    the sum of the weights relative to it, and the weighted sum of the values. A greater score rescales the two sums.
    """
    head = _Head("attention_forward", problem, [problem.dtype, "f32"], FORWARD)
    kernel, (output, sums) = head.kernel, head.others
    queries = head.places(head.start, head.fixed)
    q = head.tile(head.q, queries)

    def body(number: Value, weighted: Value, total: Value, most: Value) -> list[Value]:
        keys = head.places(number * head.moving, head.moving)
        k, v = head.tile(head.k, keys), head.tile(head.v, keys)
        scores = kernel.product(q, kernel.transposed(k)) * (problem.factor * LOG2_E)
        scores += head.bias(queries.column(), keys.row())
        more = kernel.maximum(most, kernel.row_maxima(scores))
        shrunk = kernel.exp2(most - more)
        weights = kernel.exp2(scores - more.column())
        total = total * shrunk + kernel.row_sums(weights)
        weights = head.kept(queries.column(), keys.row(), weights)
        weighted = kernel.product(head.narrow(weights), v, weighted * shrunk.column())
        return [weighted, total, more]

    zeros = kernel.constant(0.0, "f32", (head.fixed, problem.width))
    nothing, least = (kernel.constant(number, "f32", (head.fixed,)) for number in (0.0, -math.inf))
    weighted, total, most = kernel.loop(head.passes(), [zeros, nothing, least], body)
    kernel.store(head.statistics(sums), queries, most + kernel.log2(total))
    result = weighted * (kernel.inverse(total) * head.scale).column()
    kernel.store(head.rows(output), head.elements(queries), result)
    return kernel


def by_queries(problem: Problem) -> Kernel:
    """Return the kernel of the gradient by the queries and of each row's share.

    The share is the sum of a row's result times its gradient. With weights w, the gradient by a score is -w share if
    dropout drops the weight. Otherwise the weight is multiplied by c, and the gradient is w (c dw - share).
    """
    arguments = ["f32", *[problem.dtype] * 3, "f32"]
    head = _Head("attention_by_queries", problem, arguments, BY_QUERIES)
    kernel, (sums, upstream, output, by_q, shares) = head.kernel, head.others
    queries = head.places(head.start, head.fixed)
    q, rise = head.tile(head.q, queries), head.tile(head.rows(upstream), queries)
    share = kernel.row_sums(kernel.cast(rise, "f32") * kernel.cast(head.tile(head.rows(output), queries), "f32"))
    kernel.store(head.statistics(shares), queries, share)
    logarithms = kernel.load(head.statistics(sums), queries)

    def body(number: Value, gradient: Value) -> list[Value]:
        keys = head.places(number * head.moving, head.moving)
        k, v = head.tile(head.k, keys), head.tile(head.v, keys)
        scores = kernel.product(q, kernel.transposed(k)) * (problem.factor * LOG2_E)
        weights = kernel.exp2(scores + head.bias(queries.column(), keys.row()) - logarithms.column())
        by_weights = kernel.product(rise, kernel.transposed(v)) * head.scale
        by_weights = head.kept(queries.column(), keys.row(), by_weights)
        by_scores = weights * (by_weights - share.column())
        return [kernel.product(head.narrow(by_scores), k, gradient)]

    (gradient,) = kernel.loop(head.passes(), [kernel.constant(0.0, "f32", (head.fixed, problem.width))], body)
    kernel.store(head.rows(by_q), head.elements(queries), gradient * problem.factor)
    return kernel


def by_keys(problem: Problem) -> Kernel:
    """Return the kernel of the gradients by keys and values. A program computes the gradients of some keys.

    Its tiles have the keys as rows.
    """
    arguments = ["f32", problem.dtype, "f32", *[problem.dtype] * 2]
    head = _Head("attention_by_keys", problem, arguments, BY_KEYS)
    kernel, (sums, upstream, shares, by_k, by_v) = head.kernel, head.others
    sums, upstream, shares = head.statistics(sums), head.rows(upstream), head.statistics(shares)
    keys = head.places(head.start, head.fixed)
    k, v = head.tile(head.k, keys), head.tile(head.v, keys)

    def body(number: Value, of_keys: Value, of_values: Value) -> list[Value]:
        queries = head.places(number * head.moving, head.moving)
        q, rise = head.tile(head.q, queries), head.tile(upstream, queries)
        scores = kernel.product(k, kernel.transposed(q)) * (problem.factor * LOG2_E)
        logarithms, share = kernel.load(sums, queries), kernel.load(shares, queries)
        weights = kernel.exp2(scores + head.bias(queries.row(), keys.column()) - logarithms.row())
        kept = head.kept(queries.row(), keys.column(), weights) * head.scale
        of_values = kernel.product(head.narrow(kept), rise, of_values)
        by_weights = kernel.product(v, kernel.transposed(rise)) * head.scale
        by_weights = head.kept(queries.row(), keys.column(), by_weights)
        by_scores = weights * (by_weights - share.row())
        return [kernel.product(head.narrow(by_scores), q, of_keys), of_values]

    zeros = kernel.constant(0.0, "f32", (head.fixed, problem.width))
    of_keys, of_values = kernel.loop(head.passes(), [zeros, zeros], body)
    kernel.store(head.rows(by_k), head.elements(keys), of_keys * problem.factor)
    kernel.store(head.rows(by_v), head.elements(keys), of_values)
    return kernel
