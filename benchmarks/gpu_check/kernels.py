"""The kernels that an optimised HLO program launches, with the arithmetic and the memory traffic of each."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.gpu_check.hlo import Array, Computation, Instruction, Module

NO_KERNEL = {
    "after-all",
    "bitcast",
    "constant",
    "get-tuple-element",
    "opt-barrier",
    "parameter",
    "partition-id",
    "replica-id",
    "tuple",
}
MOVES = {"bitcast", "broadcast", "concatenate", "copy", "pad", "reshape", "reverse", "slice", "transpose"}
READS_PART = {"dynamic-slice", "gather", "slice"}  # of their first operand
WRITES_PART = {"dynamic-update-slice": 1, "scatter": 2}  # into their first operand; which operand is written
FACTOR_TYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
# Products of [T, H] and [T, T] matrices in our own kernels; those of gradients compute scores and dw again.
OWN_KERNELS = {"attention_forward": 2, "attention_by_queries": 3, "attention_by_keys": 4}
OWN_PRODUCTS = {"gelu_forward", "gelu_backward"}  # of their first two operands
OWN_NORMS = {"norm_forward", "norm_backward"}  # have no products
WORKSPACE = {"s8", "u8"}  # types of the room that a library's call gets to work in, its last result


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel, with the work of one launch."""

    kind: str
    result: str
    """types and sizes"""
    bytes: int
    """read and written"""
    flops: float = 0.0
    """in matrix products; a multiplication and an addition count as two"""
    factors: str = "bfloat16"
    """data type of the factors of the products"""
    product: str = ""
    """data types of a product, "" for other kernels"""
    target: str = ""
    """of a custom call"""
    times: int = 1
    """number of launches in the program"""
    looped: bool = False
    """whether it is in the loop over micro-batches"""


def kernels(module: Module) -> list[Kernel]:
    """Yield the kernels that the program launches; of a conditional, those of the branch with more traffic."""
    return list(_of(module, module.entry))


def _of(module: Module, name: str) -> Iterator[Kernel]:
    computation = module.computations[name]
    for instruction in computation.instructions.values():
        opcode = instruction.opcode
        if opcode == "while":
            times = trips(instruction)
            for kernel in _of(module, instruction.called("body")[0]):
                yield replace(kernel, times=times * kernel.times, looped=True)
        elif opcode == "conditional":
            branches = instruction.called("branch_computations", "true_computation", "false_computation")
            each = [list(_of(module, branch)) for branch in branches]
            yield from max(each, key=lambda kernels: sum(kernel.bytes * kernel.times for kernel in kernels))
        elif opcode in ("call", "async-start"):
            for called in instruction.called("to_apply", "calls"):
                yield from _of(module, called)
        elif opcode not in NO_KERNEL and not opcode.endswith(("-done", "-update")):
            yield _kernel(module, computation, instruction)


def trips(loop: Instruction) -> int:
    """Return the trip count of a loop if XLA knows it, or else 1."""
    return int(loop.backend_config.get("known_trip_count", {}).get("n", 1))


def _kernel(module: Module, computation: Computation, instruction: Instruction) -> Kernel:
    if instruction.opcode == "fusion":
        return _fusion(module, computation, instruction)
    if instruction.opcode == "custom-call":
        return _custom_call(computation, instruction)
    operands = [computation.instructions[name] for name in dict.fromkeys(instruction.operands)]
    moved = instruction.bytes + sum(operand.bytes for operand in operands)
    if instruction.opcode in READS_PART:
        moved = 2 * instruction.bytes
    elif instruction.opcode in WRITES_PART:
        moved = 2 * computation.operand(instruction, WRITES_PART[instruction.opcode]).bytes
    return Kernel(kind=instruction.opcode, result=_shown(instruction.arrays), bytes=moved)


def _fusion(module: Module, computation: Computation, instruction: Instruction) -> Kernel:
    body = module.computations[instruction.called("calls")[0]]
    flops, factors, product = _dots(module, body)
    return Kernel(
        kind=_kind(module, body, instruction),
        result=_shown(instruction.arrays),
        bytes=_read(body, computation, instruction) + _written(body),
        flops=flops,
        factors=factors,
        product=product,
    )


def _kind(module: Module, body: Computation, instruction: Instruction) -> str:
    """Describe a fusion by the operations in it."""
    opcodes = {inner.opcode for inner in _flat(module, body)}
    kind = "element-wise"
    if "dot" in opcodes:
        kind = "product, Triton"
    elif "scatter" in opcodes:
        kind = "scatter"
    elif "reduce" in opcodes:
        kind = "rows, Triton" if "kind=kCustom" in instruction.attributes else "reduction"
    elif opcodes - {"parameter", "constant", "tuple"} <= MOVES:
        kind = "transpose or copy"
    elif opcodes - {"parameter", "constant", "tuple", "convert"} <= MOVES:
        kind = "conversion"
    return f"{kind} with random bits" if {"xor", "multiply"} <= opcodes else kind


def _flat(module: Module, body: Computation) -> Iterator[Instruction]:
    """Yield the instructions of a fusion and of the fusions in it."""
    for inner in body.instructions.values():
        yield inner
        if inner.opcode == "fusion":
            yield from _flat(module, module.computations[inner.called("calls")[0]])


def _read(body: Computation, computation: Computation, instruction: Instruction) -> int:
    """Return the bytes that a fusion reads; of an operand that is only sliced, the bytes of the slices."""
    parameters = {inner.number: inner for inner in body.instructions.values() if inner.opcode == "parameter"}
    parts: dict[str, int] = {}
    for number, name in enumerate(instruction.operands):
        whole = computation.instructions[name].bytes
        part = _part(body, parameters[number])
        parts[name] = max(parts.get(name, 0), whole if part is None else min(part, whole))
    return sum(parts.values())


def _part(body: Computation, parameter: Instruction) -> int | None:
    """Return the bytes that are read of a fusion's parameter, or None if all are."""
    total, waiting = 0, [parameter]
    while waiting:
        value = waiting.pop()
        for user in body.users[value.name]:
            first = user.operands[0] == value.name
            if user.opcode == "bitcast":
                waiting.append(user)
            elif first and user.opcode in READS_PART:
                total += user.bytes
            elif not (first and user.opcode in WRITES_PART):
                return None
    return total


def _written(body: Computation) -> int:
    """Return the bytes that a fusion writes; of an in-place update only the updated part."""
    outputs = [body.root]
    if body.root.opcode == "tuple":
        outputs = [body.instructions[name] for name in body.root.operands]
    total = 0
    for output in outputs:
        while output.opcode == "bitcast":
            output = body.operand(output, 0)
        if output.opcode in WRITES_PART:
            update = body.operand(output, WRITES_PART[output.opcode])
            total += update.bytes * (2 if output.opcode == "scatter" else 1)
        else:
            total += output.bytes
    return total


def _dots(module: Module, body: Computation) -> tuple[float, str, str]:
    """Return the FLOPs of the products in a fusion, the data type of their factors, and their types as text."""
    flops, factors, product = 0.0, "bfloat16", ""
    for inner in body.instructions.values():
        if inner.opcode == "dot":
            left, right = (body.operand(inner, number).arrays[0] for number in (0, 1))
            axes = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", inner.attributes)
            summed = math.prod(left.sizes[int(axis)] for axis in axes[1].split(",") if axis) if axes else 1
            flops += 2.0 * inner.arrays[0].elements * summed
            factors, product = FACTOR_TYPES[left.dtype], _types(left, right, body.root.arrays[0])
        elif inner.opcode == "fusion":
            more, kind, words = _dots(module, module.computations[inner.called("calls")[0]])
            if more:
                flops, factors, product = flops + more, kind, words
    return flops, factors, product


def _custom_call(computation: Computation, instruction: Instruction) -> Kernel:
    """Return a library's kernel: a product, attention, or another one that is counted by its traffic."""
    target = instruction.text("custom_call_target")
    operands = [computation.instructions[name] for name in dict.fromkeys(instruction.operands)]
    results = instruction.arrays
    if len(results) > 1 and results[-1].dtype in WORKSPACE:
        results = results[:-1]
    moved = sum(operand.bytes for operand in operands) + sum(array.bytes for array in results)
    kernel = Kernel(kind=target, result=_shown(results), bytes=moved, target=target)
    if target == "__gpu$xla.gpu.triton":
        return _own_kernel(kernel, computation, instruction)
    config = instruction.backend_config
    if "gemm_backend_config" in config:
        left, right = (computation.operand(instruction, number).arrays[0] for number in (0, 1))
        gemm = config["gemm_backend_config"]
        axes = gemm["dot_dimension_numbers"]["lhs_contracting_dimensions"]
        flops = 2.0 * results[0].elements * math.prod(left.sizes[int(axis)] for axis in axes)
        library = "cuBLASLt" if "$lt$" in target else "cuBLAS"
        added = " added in place" if float(gemm.get("beta", 0)) else ""
        epilogue = "" if gemm.get("epilogue", "DEFAULT") == "DEFAULT" else f" {gemm['epilogue'].lower()}"
        precise = gemm.get("precision_config", {}).get("operand_precision", ["HIGHEST"])[0] != "DEFAULT"
        factors = FACTOR_TYPES[left.dtype] if left.dtype != "f32" or precise else "tf32"
        words = f"{_types(left, right, results[0])}{added}{epilogue}"
        return replace(kernel, kind=f"product, {library}", flops=flops, factors=factors, product=words)
    if "fmha" in target:
        query = computation.operand(instruction, 0).arrays[0]
        batch, heads, tokens, width = query.sizes
        products = 5 if "Backward" in target else 2  # of [T, H] and [T, T] matrices; backward computes scores again
        flops = products * 2.0 * batch * heads * tokens * tokens * width
        return replace(kernel, kind="attention, cuDNN", flops=flops, factors=FACTOR_TYPES[query.dtype])
    return kernel


def _own_kernel(kernel: Kernel, computation: Computation, instruction: Instruction) -> Kernel:
    """Return a kernel of this project; its configuration is a dictionary of MLIR, not JSON."""
    named = re.search(r' name = "(\w+)"', instruction.attributes)
    if named and named[1] in OWN_NORMS:
        return replace(kernel, kind="norm, Triton")
    if named and named[1] in OWN_PRODUCTS:
        left, right = (computation.operand(instruction, number).arrays[0] for number in (0, 1))
        flops, words = 2.0 * left.sizes[1] * instruction.arrays[0].elements, _types(left, right, instruction.arrays[0])
        factors = FACTOR_TYPES[left.dtype]
        return replace(kernel, kind="product with GELU, Triton", flops=flops, factors=factors, product=words)
    assert named and named[1] in OWN_KERNELS, instruction.attributes[:200]
    query = computation.operand(instruction, 0).arrays[0]
    batch, tokens, heads, width = query.sizes
    flops = OWN_KERNELS[named[1]] * 2.0 * batch * heads * tokens * tokens * width
    return replace(kernel, kind="attention, Triton", flops=flops, factors=FACTOR_TYPES[query.dtype])


def _types(left: Array, right: Array, result: Array) -> str:
    return f"{left.dtype} x {right.dtype} -> {result.dtype}"


def _shown(arrays: tuple[Array, ...]) -> str:
    counts = Counter(map(str, arrays))
    return " ".join(shape if times == 1 else f"{times} x {shape}" for shape, times in counts.items())
