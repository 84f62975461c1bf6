"""Executes a text in Triton's intermediate representation with NumPy, one place of the grid after another.

The operations are those that `extensions.kernels.triton_ir.Kernel` writes. Every result is compared with the type that
the text says, and no pointer may leave its array.
"""

import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import tensorflow as tf

from extensions.kernels.triton_ir import Kernel

DTYPES = {
    "i1": np.bool_,
    "i8": np.uint8,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
}
BINARY = {
    "arith.addi": np.add,
    "arith.addf": np.add,
    "arith.subi": np.subtract,
    "arith.subf": np.subtract,
    "arith.muli": np.multiply,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.andi": np.bitwise_and,
    "arith.maxnumf": np.fmax,
    "arith.shrui": np.right_shift,
}
UNARY: dict[str, Any] = {
    "math.absf": np.abs,
    "math.exp2": np.exp2,
    "math.log2": np.log2,
    "math.rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
}
COMPARED: dict[str, Any] = {"ne,": np.not_equal, "ogt,": np.greater}
REDUCED = {"arith.addf": np.add, "arith.maxnumf": np.fmax}


class Pointers(NamedTuple):
    """Places in an array of one axis."""

    array: np.ndarray
    places: np.ndarray


def execute(text: str, grid: Sequence[int], arrays: Sequence[np.ndarray]) -> None:
    """Run the kernel in `text` for each place of the grid; `arrays` are its arguments, the results among them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    header = re.fullmatch(r"tt\.func public @\w+\((.*)\) \{", lines[1])
    assert lines[0] == "module {" and header and lines[-2:] == ["}", "}"]
    arguments = dict(re.findall(r"(%arg\d+): !tt\.ptr<(\w+)>", header[1]))
    flat = [x.reshape(-1) for x in arrays]
    assert [DTYPES[name] for name in arguments.values()] == [x.dtype for x in flat]
    pointers = {name: Pointers(x, np.zeros([], np.int64)) for name, x in zip(arguments, flat, strict=True)}
    for place in itertools.product(*map(range, grid)):
        _Program(place, dict(pointers)).run(lines[2:-2])


def executed(
    kernel: Kernel, grid: Sequence[int], operands: Sequence[tf.Tensor], like: Sequence[Any], *_: int
) -> list[tf.Tensor]:
    """Stand in for `triton_ir.call`, in graphs too; results that are not written are not numbers."""
    text = kernel.text()

    def run(*arrays: tf.Tensor) -> list[np.ndarray]:
        results = [np.full(x.shape, np.nan, x.dtype.as_numpy_dtype) for x in like]
        execute(text, grid, [*(x.numpy() for x in arrays), *results])
        return results

    found = tf.py_function(run, operands, [x.dtype for x in like])
    for x, asked in zip(found, like, strict=True):
        x.set_shape(asked.shape)
    return found


def executed_with_other_bits(
    kernel: Kernel, grid: Sequence[int], operands: Sequence[tf.Tensor], like: Sequence[Any], *_: int
) -> list[tf.Tensor]:
    """Do the same with dropout's bits inverted, as a device would that drops other elements."""
    return executed(kernel, grid, [~x if x.dtype == tf.uint8 else x for x in operands], like)


def _groups(pattern: str, text: str) -> Sequence[str]:
    match = re.fullmatch(pattern, text)
    assert match, text
    return match.groups()


class _Program:
    def __init__(self, place: Sequence[int], values: dict[str, Any]) -> None:
        self.place, self.values = place, values

    def run(self, lines: list[str]) -> list[Any]:
        """Execute lines until one returns; return the values of scf.yield."""
        at = 0
        while True:
            line = lines[at]
            if line == "tt.return":
                return []
            if line.startswith("scf.yield"):
                return [self.values[name] for name in self._names(line.split(" : ")[0])]
            if " = scf.for " in line:
                end = at + next(n for n, other in enumerate(lines[at:]) if other == "}")
                self._loop(line, lines[at + 1 : end])
                at = end + 1
            elif '"tt.reduce"' in line:
                self._reduce(lines[at : at + 5])
                at += 5
            else:
                self._operation(line)
                at += 1

    @staticmethod
    def _names(text: str) -> list[str]:
        return re.findall(r"%\w+(?:#\d+)?", text)

    def _loop(self, line: str, body: list[str]) -> None:
        name, place, first, last, step, pairs = _groups(
            r"(%\d+):\d+ = scf\.for (%\d+) = (%\d+) to (%\d+) step (%\d+) iter_args\((.*)\) -> .* : i32 \{", line
        )
        carried, initial = self._names(pairs)[::2], self._names(pairs)[1::2]
        values = [self.values[one] for one in initial]
        for number in range(*(int(self.values[bound]) for bound in (first, last, step))):
            self.values |= {place: np.int32(number), **dict(zip(carried, values, strict=True))}
            values = self.run(body)
        self.values |= {f"{name}#{number}": value for number, value in enumerate(values)}

    def _reduce(self, lines: list[str]) -> None:
        name, source, axis = _groups(r'(%\d+) = "tt\.reduce"\((%\S+)\) <\{axis = (\d) : i32\}> \(\{', lines[0])
        (operation,) = _groups(r"%\d+ = (\S+) .*", lines[2])
        self._set(name, REDUCED[operation].reduce(self.values[source], axis=int(axis)), lines[4].split(" -> ")[1])

    def _set(self, name: str, value: Any, kind: str) -> None:
        """Store a value after a comparison with its type; float32 numbers are never wider in between."""
        pointed = re.search(r"!tt\.ptr<(\w+)>", kind)
        sizes = tuple(map(int, re.findall(r"(\d+)x", kind)))
        found = value.places if pointed else value
        assert np.shape(found) == sizes, (name, kind)
        dtype = value.array.dtype if pointed else value.dtype
        assert dtype == DTYPES[pointed[1] if pointed else kind.removesuffix(">").split("x")[-1].split("<")[-1]], (
            name,
            kind,
        )
        self.values[name] = value

    def _operation(self, line: str) -> None:
        result, text = line.split(" = ", 1) if line.startswith("%") else ("", line)
        body, kind = text.rsplit(" : ", 1)
        operation = body.split()[0]
        operands = [self.values[name] for name in self._names(body)]
        kind = re.split(r" -> | to ", kind)[-1]
        if operation == "tt.store":
            (pointers, x) = operands
            assert (pointers.places >= 0).all() and x.dtype == pointers.array.dtype
            pointers.array[pointers.places] = x
        elif operation == "tt.addptr":
            self._set(result, Pointers(operands[0].array, operands[0].places + operands[1]), kind.split(", ")[0])
        elif operation == "tt.load":
            (pointers,) = operands
            assert (pointers.places >= 0).all()
            found = pointers.array[pointers.places]
            self._set(result, found, re.sub(r"!tt\.ptr<(\w+)>", r"\1", kind))
        elif operation in ("arith.cmpi", "arith.cmpf"):
            self._set(result, COMPARED[body.split()[1]](*operands), re.sub(r"[if]\d+>$", "i1>", kind))
        elif operation == "arith.select":
            self._set(result, np.where(*operands), kind.split(", ")[-1])
        elif operation == "tt.dot":
            left, right = (x.astype(np.float32) for x in operands[:2])
            self._set(result, left @ right + operands[2], kind)
        else:
            self._set(result, self._value(operation, body, operands, kind), kind)

    def _value(self, operation: str, body: str, operands: list[Any], kind: str) -> Any:
        sizes = tuple(map(int, re.findall(r"(\d+)x", kind)))
        dtype = DTYPES.get(kind.removesuffix(">").split("x")[-1].split("<")[-1])
        if operation == "arith.constant":
            (literal,) = _groups(r"arith\.constant (?:dense<)?([^>]+)>?", body)
            bits = literal.startswith("0x")
            return np.full(sizes, np.uint32(int(literal, 16)).view(np.float32) if bits else int(literal), dtype)
        if operation == "tt.get_program_id":
            return np.int32(self.place["xyz".index(body[-1])])
        if operation == "tt.make_range":
            last, first = map(int, _groups(r".*end = (\d+) : i32, start = (\d+) : i32\}", body))
            return np.arange(first, last, dtype=np.int32)
        if operation in BINARY:
            return BINARY[operation](*operands)
        if operation in UNARY:
            return UNARY[operation](*operands)
        (x,) = operands
        if operation in ("arith.extf", "arith.truncf", "arith.extui", "arith.trunci"):
            return x.astype(dtype)
        if operation in ("tt.splat", "tt.broadcast"):
            spread = lambda y: np.broadcast_to(y, sizes)  # noqa: E731
            return Pointers(x.array, spread(x.places)) if isinstance(x, Pointers) else spread(x)
        if operation == "tt.expand_dims":
            return np.expand_dims(x, int(*_groups(r".*axis = (\d) : i32\}", body)))
        assert operation == "tt.trans", operation
        return x.T
