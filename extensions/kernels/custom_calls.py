"""Custom calls of XLA in TensorFlow's graphs, which have layouts.

TensorFlow's own operation for custom calls has none. XlaCallModule takes StableHLO text, which has them; XLA inlines
that. Only a function that XLA compiles can contain such a call, and its shapes must be known while it is traced.
"""

import struct
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

TYPES = {tf.bfloat16: "bf16", tf.float16: "f16", tf.float32: "f32", tf.uint8: "ui8"}  # in StableHLO
MODULE_VERSION = 9  # of XlaCallModule's attributes: the oldest that both TensorFlow 2.17 and 2.21 accept
TYPED = 4  # version of the interface whose configuration is a dictionary


def run(module: str, operands: Sequence[tf.Tensor], like: Sequence[Any]) -> list[tf.Tensor]:
    """Return the results of the module's function; they have the types and shapes of `like`."""
    return gen_xla_ops.xla_call_module(
        args=operands,
        version=MODULE_VERSION,
        module=module,
        platforms=["CUDA"],
        Tout=[x.dtype for x in like],
        Sout=[x.shape for x in like],
        dim_args_spec=[],
        function_list=[],
        has_token_input_output=False,
        disabled_checks=["platform"],
    )


def function_module(operands: Sequence[Any], like: Sequence[Any], body: Sequence[str]) -> str:
    """Return a module whose function has these lines; its arguments are %in0, %in1, ..."""
    arguments = ", ".join(f"%in{number}: {tensor_type(x.dtype, x.shape)}" for number, x in enumerate(operands))
    results = ", ".join(tensor_type(x.dtype, x.shape) for x in like)
    lines = "\n    ".join(body)
    return f"module {{\n  func.func @main({arguments}) -> ({results}) {{\n    {lines}\n  }}\n}}\n"


def plain_module(target: str, operands: Sequence[Any], config: str, like: Sequence[Any]) -> str:
    """Return a module that calls `target`; axes lie in memory in their order. config: a dictionary of MLIR."""
    operand_types, result_types = ([tensor_type(x.dtype, x.shape) for x in some] for some in (operands, like))
    operand_layouts, result_layouts = ([row_major(x.shape.rank) for x in some] for some in (operands, like))
    body = [
        f'%all:{len(like)} = stablehlo.custom_call @"{target}"({listed("%in", len(operands))}) {{',
        f"backend_config = {config}, api_version = {TYPED} : i32,",
        f"operand_layouts = [{', '.join(operand_layouts)}], result_layouts = [{', '.join(result_layouts)}]",
        f"}} : ({', '.join(operand_types)}) -> ({', '.join(result_types)})",
        f"return {listed('%all#', len(like))} : {', '.join(result_types)}",
    ]
    return function_module(operands, like, body)


def tensor_type(dtype: tf.DType, shape: Sequence[int]) -> str:
    """Return the type of an array as text."""
    return f"tensor<{'x'.join([*map(str, shape), TYPES[dtype]])}>"


def layout(axes: Sequence[int]) -> str:
    """Return the order of the axes in memory, fastest first, as text."""
    return f"dense<{list(axes)}> : tensor<{len(axes)}xindex>"


def row_major(rank: int) -> str:
    """Return the layout in which the last axis is the fastest."""
    return layout(list(range(rank))[::-1])


def listed(name: str, count: int) -> str:
    """Return `count` numbered names as text."""
    return ", ".join(f"{name}{number}" for number in range(count))


def escaped(text: str) -> str:
    """Return a text as it stands within the quotes of MLIR."""
    return text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A")


def float_text(number: float) -> str:
    """Return a float32 as MLIR reads it, without loss."""
    return f"0x{struct.unpack('<I', struct.pack('<f', number))[0]:08X}"
