"""Fused attention by cuDNN on NVIDIA GPUs: softmax(factor q k' + mask) v, without the weights in memory.

XLA's compiler for GPUs hands custom calls with these names to cuDNN's flash attention. Their operands, results and
configuration follow xla/service/gpu/backend_configs.proto (CudnnfMHABackendConfig); jax.nn writes the same. Only a
function that XLA compiles can contain such a call, and its shapes must be known while it is traced. Head widths are
multiples of 8 up to 128, and T is even.

Queries, keys and values lie in memory as the dense layers write them, [B, T, N, H]; so do the result and all gradients.
No head is transposed. XLA numbers the axes of the results as [B, N, T, H], so their layout says that N varies faster
than T.

There is no dropout. cuDNN draws its random numbers from a seed that is a constant of the compiled program and from a
count of calls. Neither a resumed run nor recomputed activations could get the same masks a second time. With dropout
the kernels of flash.py are used.

Shapes as in attention.py.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from extensions.kernels import custom_calls
from extensions.kernels.custom_calls import layout, listed, row_major, tensor_type

FORWARD, BACKWARD = "__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"
ELEMENTS = {tf.bfloat16: "BF16", tf.float16: "F16"}
BTNH_LAYOUT = [3, 1, 2, 0]  # axes of [B, N, T, H], fastest first, for data that lies in memory as [B, T, N, H]
ROWS, SCORES = ("0", "2"), ("0", "1")  # the batch axes, B and N, of [B, T, N, H] and of [B, N, T, T]

# For each product: the contracted axis of the left and of the right factor, and the batch axes of both.
PRODUCTS = {
    FORWARD: {"bmm1": (3, 3, ROWS, ROWS), "bmm2": (3, 1, SCORES, ROWS)},  # q k', w v
    BACKWARD: {
        "bmm1_grad_gemm1": (2, 1, SCORES, ROWS),  # ds' q
        "bmm1_grad_gemm2": (3, 1, SCORES, ROWS),  # ds k
        "bmm2_grad_gemm1": (2, 1, SCORES, ROWS),  # w' do
        "bmm2_grad_gemm2": (3, 3, ROWS, ROWS),  # do v'
    },
}


def attend(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, factor: float) -> tf.Tensor:
    """Return the attention [B, T, N, H] of q, k and v [B, T, N, H] in bfloat16 or float16.

    mask [B, 1, 1 or T, T] is added to the scores and has no gradient. Running it raises NotFoundError if XLA compiles
    for a device that is no NVIDIA GPU.
    """
    batch, tokens, heads, _ = q.shape
    bias = tf.broadcast_to(tf.cast(mask, q.dtype), [batch, 1, tokens, tokens])

    @tf.custom_gradient
    def differentiable(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, Callable[..., list[tf.Tensor]]]:
        statistics = tf.TensorSpec([batch, heads, tokens], tf.float32)  # logarithms of the softmax's denominators
        output, sums = _call(FORWARD, [q, k, v, bias], _config(FORWARD, q, factor), [q, statistics])

        def gradients(upstream: tf.Tensor) -> list[tf.Tensor]:
            return _call(BACKWARD, [q, k, v, sums, upstream, bias, output], _config(BACKWARD, q, factor), [q, k, v])

        return output, gradients

    return differentiable(q, k, v)


def _call(target: str, operands: Sequence[tf.Tensor], config: dict[str, Any], like: Sequence[Any]) -> list[tf.Tensor]:
    """Call `target`; the results have the types and shapes of `like`."""
    return custom_calls.run(_module(target, operands, config, like), operands, like)


def _module(target: str, operands: Sequence[tf.Tensor], config: dict[str, Any], like: Sequence[Any]) -> str:
    """Return the StableHLO of a function with one custom call, without the scratch memory among the call's results."""
    operand_types = [tensor_type(x.dtype, x.shape) for x in operands]
    result_types = [tensor_type(x.dtype, x.shape) for x in like]
    call_types = [tensor_type(x.dtype, [x.shape[axis] for axis in _swapped(x.shape)]) for x in like]
    operand_layouts = [row_major(x.shape.rank) for x in operands]
    result_layouts = [layout(BTNH_LAYOUT) if x.shape.rank == 4 else row_major(x.shape.rank) for x in like]
    result_layouts.append(layout([0]))  # of the scratch memory
    lines = [
        f"%all:{len(like) + 1} = stablehlo.custom_call @{json.dumps(target)}({listed('%in', len(operand_types))}) {{",
        f'backend_config = "{custom_calls.escaped(json.dumps(config))}", api_version = 2 : i32,',
        f"operand_layouts = [{', '.join(operand_layouts)}], result_layouts = [{', '.join(result_layouts)}]",
        f"}} : ({', '.join(operand_types)}) -> ({', '.join([*call_types, tensor_type(tf.uint8, [0])])})",
    ]
    for number, x in enumerate(like):
        order = ", ".join(map(str, _swapped(x.shape)))
        change = f"({call_types[number]}) -> {result_types[number]}"
        lines.append(f"%out{number} = stablehlo.transpose %all#{number}, dims = [{order}] : {change}")
    lines.append(f"return {listed('%out', len(like))} : {', '.join(result_types)}")
    return custom_calls.function_module(operands, like, lines)


def _swapped(shape: Sequence[int]) -> list[int]:
    """Return the order of axes that makes [B, N, T, H] of [B, T, N, H]. Axes of another rank keep their order."""
    return [0, 2, 1, 3] if len(shape) == 4 else list(range(len(shape)))


def _config(target: str, q: tf.Tensor, factor: float) -> dict[str, Any]:
    batch, tokens, heads, _ = map(str, q.shape)
    products = {f"{name}_dot_dimension_numbers": _numbers(*axes) for name, axes in PRODUCTS[target].items()}
    scores = {
        "element_type": ELEMENTS[q.dtype],
        "dimensions": [batch, heads, tokens, tokens],
        "layout": {"minor_to_major": ["3", "2", "1", "0"]},
        "is_dynamic_dimension": [False] * 4,
    }
    algorithm = {
        "algo_id": "0",
        "math_type": "TENSOR_OP_MATH",
        "tuning_knobs": {"17": "1", "24": "0"},
        "is_cudnn_frontend": True,
        "workspace_size": "0",
    }
    settings = {"fmha_scale": factor, "mask_type": "NO_MASK", "is_flash_attention": True}
    return {
        "operation_queue_id": "0",
        "wait_on_operation_queues": [],
        "cudnn_fmha_backend_config": {
            "algorithm": algorithm,
            "intermediate_tensor_shape": scores,
            **settings,
            **products,
        },
    }


def _numbers(left: int, right: int, left_batch: Sequence[str], right_batch: Sequence[str]) -> dict[str, list[str]]:
    """Return the fields of a product that sums axis `left` of one factor with axis `right` of the other."""
    return {
        "lhs_contracting_dimensions": [str(left)],
        "rhs_contracting_dimensions": [str(right)],
        "lhs_batch_dimensions": list(left_batch),
        "rhs_batch_dimensions": list(right_batch),
    }
