"""Writes kernels for GPUs in Triton's intermediate representation, which XLA compiles for the device it has.

A kernel works on tiles, arrays of fixed shape whose sizes are powers of two; products have 16 rows and columns or more.
`Kernel` writes one operation for each call, and adds the splats and broadcasts that shapes need. The text is that of
Triton's dialect of MLIR (Tillet et al. 2019, "Triton: An Intermediate Language and Compiler for Tiled Neural Network
Computations"); `call` hands it to XLA as a custom call, as JAX's Pallas does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from extensions.kernels import custom_calls

TARGET = "__gpu$xla.gpu.triton"
WIDTHS = {"i1": 1, "i8": 8, "i32": 32, "i64": 64, "f16": 16, "bf16": 16, "f32": 32}


@dataclass(frozen=True)
class Value:
    """A scalar or a tile that a kernel has computed, or a pointer."""

    kernel: "Kernel"
    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def type(self) -> str:
        """The type as text."""
        return type_text(self.dtype, self.shape)

    @property
    def floating(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self.dtype in ("f16", "bf16", "f32")

    def _with(self, other: "Value | float", operation: str, swapped: bool = False) -> "Value":
        pair = self.kernel.alike(self, other)
        name = f"arith.{operation}{'f' if self.floating else 'i'}"
        return self.kernel.elementwise(name, *(pair[::-1] if swapped else pair))

    def __add__(self, other: "Value | float") -> "Value":
        return self._with(other, "add")

    def __sub__(self, other: "Value | float") -> "Value":
        return self._with(other, "sub")

    def __mul__(self, other: "Value | float") -> "Value":
        return self._with(other, "mul")

    def __and__(self, other: "Value | int") -> "Value":
        return self._with(other, "and")

    def __rshift__(self, other: "Value | int") -> "Value":
        return self.kernel.elementwise("arith.shrui", *self.kernel.alike(self, other))

    def column(self) -> "Value":
        """Return the elements of a row of numbers below each other, [n, 1]."""
        return self.kernel.expanded(self, 1)

    def row(self) -> "Value":
        """Return them beside each other, [1, n]."""
        return self.kernel.expanded(self, 0)


def type_text(dtype: str, shape: Sequence[int]) -> str:
    """Return the type of a scalar or, with a shape, of a tile."""
    return f"tensor<{'x'.join([*map(str, shape), dtype])}>" if shape else dtype


class Kernel:
    """A kernel whose arguments are pointers; its methods append operations to its text."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        """arguments: types of the elements that the pointers point to."""
        self.name, self._count, self._depth = name, 0, 2
        self._lines: list[str] = []
        pointers = [f"!tt.ptr<{dtype}>" for dtype in arguments]
        self.arguments = [Value(self, f"%arg{number}", pointer) for number, pointer in enumerate(pointers)]
        self._header = ", ".join(f"{x.name}: {x.dtype} {{tt.divisibility = 16 : i32}}" for x in self.arguments)

    def text(self) -> str:
        """Return the module with the kernel."""
        body = "\n".join([*self._lines, "    tt.return"])
        return f"module {{\n  tt.func public @{self.name}({self._header}) {{\n{body}\n  }}\n}}\n"

    def _append(self, line: str) -> None:
        self._lines.append("  " * self._depth + line)

    def _result(self, text: str, dtype: str, shape: tuple[int, ...]) -> Value:
        value = self._fresh(dtype, shape)
        self._append(f"{value.name} = {text}")
        return value

    def _fresh(self, dtype: str, shape: tuple[int, ...]) -> Value:
        self._count += 1
        return Value(self, f"%{self._count}", dtype, shape)

    def constant(self, number: float, dtype: str, shape: tuple[int, ...] = ()) -> Value:
        """Return a scalar, or a tile of equal elements."""
        kind = type_text(dtype, shape)
        literal = custom_calls.float_text(number) if dtype == "f32" else str(int(number))
        return self._result(f"arith.constant {f'dense<{literal}>' if shape else literal} : {kind}", dtype, shape)

    def program(self, axis: int) -> Value:
        """Return the number of this program on an axis of the grid."""
        return self._result(f"tt.get_program_id {'xyz'[axis]} : i32", "i32", ())

    def range(self, count: int) -> Value:
        """Return the numbers from 0 up to `count`, [count] i32."""
        kind = type_text("i32", (count,))
        return self._result(f"tt.make_range {{end = {count} : i32, start = 0 : i32}} : {kind}", "i32", (count,))

    def expanded(self, x: Value, axis: int) -> Value:
        """Return a row of numbers with a new axis."""
        shape = (1, *x.shape) if axis == 0 else (*x.shape, 1)
        text = f"tt.expand_dims {x.name} {{axis = {axis} : i32}} : {x.type} -> {type_text(x.dtype, shape)}"
        return self._result(text, x.dtype, shape)

    def spread(self, x: Value, shape: tuple[int, ...]) -> Value:
        """Return x in a larger shape."""
        if x.shape == shape:
            return x
        operation = "tt.broadcast" if x.shape else "tt.splat"
        return self._result(f"{operation} {x.name} : {x.type} -> {type_text(x.dtype, shape)}", x.dtype, shape)

    def alike(self, x: Value, y: Value | float) -> tuple[Value, Value]:
        """Return both in one shape; y may be a number."""
        if not isinstance(y, Value):
            return x, self.constant(y, x.dtype, x.shape)
        assert x.dtype == y.dtype, (x, y)
        shape = tuple(map(max, x.shape, y.shape)) if x.shape and y.shape else x.shape or y.shape
        return self.spread(x, shape), self.spread(y, shape)

    def elementwise(self, operation: str, *operands: Value) -> Value:
        """Return the result of an operation of numbers of one type."""
        first = operands[0]
        names = ", ".join(x.name for x in operands)
        return self._result(f"{operation} {names} : {first.type}", first.dtype, first.shape)

    def maximum(self, x: Value, y: Value) -> Value:
        """Return the greater of each two numbers."""
        return self.elementwise("arith.maxnumf", x, y)

    def exp2(self, x: Value) -> Value:
        """Return 2 to the power of x."""
        return self.elementwise("math.exp2", x)

    def log2(self, x: Value) -> Value:
        """Return the logarithm of x to base 2."""
        return self.elementwise("math.log2", x)

    def inverse(self, x: Value) -> Value:
        """Return 1 / x."""
        return self.elementwise("arith.divf", self.constant(1.0, x.dtype, x.shape), x)

    def absolute(self, x: Value) -> Value:
        """Return x without its sign."""
        return self.elementwise("math.absf", x)

    def positive(self, x: Value) -> Value:
        """Return whether x is greater than 0."""
        zero = self.constant(0.0, x.dtype, x.shape)
        return self._result(f"arith.cmpf ogt, {x.name}, {zero.name} : {x.type}", "i1", x.shape)

    def inverse_root(self, x: Value) -> Value:
        """Return 1 / sqrt(x)."""
        return self.elementwise("math.rsqrt", x)

    def is_odd(self, x: Value) -> Value:
        """Return whether the lowest bit of each integer is set."""
        one, zero = self.constant(1, x.dtype, x.shape), self.constant(0, x.dtype, x.shape)
        lowest = self.elementwise("arith.andi", x, one)
        return self._result(f"arith.cmpi ne, {lowest.name}, {zero.name} : {x.type}", "i1", x.shape)

    def select(self, condition: Value, x: Value) -> Value:
        """Return x where the condition holds and 0 elsewhere."""
        zero = self.constant(0.0, x.dtype, x.shape)
        names = f"{condition.name}, {x.name}, {zero.name}"
        return self._result(f"arith.select {names} : {condition.type}, {x.type}", x.dtype, x.shape)

    def cast(self, x: Value, dtype: str) -> Value:
        """Return x in another type; integers are without sign."""
        if x.dtype == dtype:
            return x
        wider = WIDTHS[dtype] > WIDTHS[x.dtype]
        operation = ("extf" if wider else "truncf") if x.floating else ("extui" if wider else "trunci")
        return self._result(f"arith.{operation} {x.name} : {x.type} to {type_text(dtype, x.shape)}", dtype, x.shape)

    def transposed(self, x: Value) -> Value:
        """Return the tile with its axes exchanged."""
        shape = x.shape[::-1]
        text = f"tt.trans {x.name} {{order = array<i32: 1, 0>}} : {x.type} -> {type_text(x.dtype, shape)}"
        return self._result(text, x.dtype, shape)

    def product(self, x: Value, y: Value, added: Value | None = None) -> Value:
        """Return the matrix product of x and y, with float32 sums, plus `added`."""
        total = added or self.constant(0.0, "f32", (x.shape[0], y.shape[1]))
        text = f"tt.dot {x.name}, {y.name}, {total.name} : {x.type} * {y.type} -> {total.type}"
        return self._result(text, "f32", total.shape)

    def row_maxima(self, x: Value) -> Value:
        """Return the greatest number of each row."""
        return self._reduced(x, "arith.maxnumf")

    def row_sums(self, x: Value) -> Value:
        """Return the sum of each row."""
        return self._reduced(x, "arith.addf")

    def column_sums(self, x: Value) -> Value:
        """Return the sum of each column."""
        return self._reduced(x, "arith.addf", axis=0)

    def _reduced(self, x: Value, operation: str, axis: int = 1) -> Value:
        total, left, right = (self._fresh(x.dtype, ()) for _ in range(3))
        result = self._fresh(x.dtype, (x.shape[1 - axis],))
        self._append(f'{result.name} = "tt.reduce"({x.name}) <{{axis = {axis} : i32}}> ({{')
        self._append(f"^bb0({left.name}: {x.dtype}, {right.name}: {x.dtype}):")
        self._append(f"  {total.name} = {operation} {left.name}, {right.name} : {x.dtype}")
        self._append(f"  tt.reduce.return {total.name} : {x.dtype}")
        self._append(f"}}) : ({x.type}) -> {result.type}")
        return result

    def address(self, pointer: Value, offset: Value) -> Value:
        """Return pointers to the elements `offset` behind a pointer."""
        pointers = self.spread(pointer, offset.shape)
        text = f"tt.addptr {pointers.name}, {offset.name} : {pointers.type}, {offset.type}"
        return self._result(text, pointer.dtype, offset.shape)

    def load(self, pointer: Value, offset: Value) -> Value:
        """Return the elements there."""
        pointers = self.address(pointer, offset)
        return self._result(f"tt.load {pointers.name} : {pointers.type}", _pointed(pointer), offset.shape)

    def store(self, pointer: Value, offset: Value, x: Value) -> None:
        """Write x there, in the type of the pointer."""
        pointers = self.address(pointer, offset)
        self._append(f"tt.store {pointers.name}, {self.cast(x, _pointed(pointer)).name} : {pointers.type}")

    def kept(self, bits: Value, rows: Value, columns: Value, width: int, x: Value) -> Value:
        """Return x with 0 where a bit is not set.

        bits: a pointer to rows of `width` bits, eight in a byte, the lowest for the first. rows, columns: numbers of
        these; together they have the shape of x.
        """
        place = rows * (width // 8) + (columns >> 3)
        byte = self.cast(self.load(bits, place), "i32")
        return self.select(self.is_odd(byte >> self.spread(columns & 7, byte.shape)), x)

    def loop(self, count: int, initial: Sequence[Value], body: Callable[..., Sequence[Value]]) -> list[Value]:
        """Return the last results of `body`, which is called with the number of the pass and the results before."""
        first, last, step = (self.constant(number, "i32") for number in (0, count, 1))
        place, carried = self._fresh("i32", ()), [self._fresh(x.dtype, x.shape) for x in initial]
        self._count += 1
        name, types = f"%{self._count}", ", ".join(x.type for x in initial)
        pairs = ", ".join(f"{x.name} = {start.name}" for x, start in zip(carried, initial, strict=True))
        bounds = f"{place.name} = {first.name} to {last.name} step {step.name}"
        self._append(f"{name}:{len(initial)} = scf.for {bounds} iter_args({pairs}) -> ({types}) : i32 {{")
        self._depth += 1
        after = body(place, *carried)
        self._append(f"scf.yield {', '.join(x.name for x in after)} : {types}")
        self._depth -= 1
        self._append("}")
        return [Value(self, f"{name}#{number}", x.dtype, x.shape) for number, x in enumerate(initial)]


def _pointed(pointer: Value) -> str:
    return pointer.dtype.removeprefix("!tt.ptr<").removesuffix(">")


def tile(count: int, most: int) -> int:
    """Return the greatest power of two up to `most`, another one, that divides `count`."""
    return min(most, count & -count)


def call(
    kernel: Kernel, grid: Sequence[int], operands: Sequence[tf.Tensor], like: Sequence[Any], warps: int, stages: int
) -> list[tf.Tensor]:
    """Run the kernel once for each place of the grid [x, y, z]; the results have the types and shapes of `like`.

    Its arguments are pointers to the operands and to the results, whose axes lie in memory in their order. warps:
    groups of 32 threads for each place; stages: loads of how many passes of a loop are under way at once.
    """
    numbers = {
        "num_stages": stages,
        "num_warps": warps,
        **{f"grid_{axis}": n for axis, n in zip("xyz", grid, strict=True)},
    }
    fields = [f"{name} = {number} : i32" for name, number in numbers.items()]
    strings = [
        f'{name} = "{custom_calls.escaped(text)}"' for name, text in (("ir", kernel.text()), ("name", kernel.name))
    ]
    config = f"{{debug = false, {', '.join([*fields, *strings])}}}"
    return custom_calls.run(custom_calls.plain_module(TARGET, operands, config, like), operands, like)
