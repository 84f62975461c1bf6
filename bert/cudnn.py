"""Attention fused by cuDNN, on NVIDIA GPUs: softmax(factor q k' + mask) v without the weights ever in memory.

XLA's compiler for GPUs hands custom calls of these names to cuDNN's flash attention. Their operands, results and
configuration are those of xla/service/gpu/backend_configs.proto (CudnnfMHABackendConfig), as jax.nn writes them too.
Only a function that XLA compiles can call it, with shapes known as it is traced; head widths are multiples of 8 up to
128, and T is even.

There is no dropout: cuDNN makes its random numbers from a count of calls, which neither a resumed run nor one that
computes activations again would meet a second time.

Shapes as in attention.py.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

FORWARD, BACKWARD = "__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"
ELEMENTS = {tf.bfloat16: "BF16", tf.float16: "F16"}

# Which axis of the left factor is summed with which of the right one; the first two axes are the batch of all products.
PRODUCTS = {
    FORWARD: {"bmm1": (3, 3), "bmm2": (3, 2)},  # q k', w v
    BACKWARD: {
        "bmm1_grad_gemm1": (2, 2),  # ds' q
        "bmm1_grad_gemm2": (3, 2),  # ds k
        "bmm2_grad_gemm1": (2, 2),  # w' do
        "bmm2_grad_gemm2": (3, 3),  # do v'
    },
}


def attend(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, mask: tf.Tensor, factor: float) -> tf.Tensor:
    """q, k and v [B, N, T, H] in bfloat16 or float16, mask [B, 1, 1 or T, T] -> [B, N, T, H]; the mask has no gradient.

    Raises NotFoundError when it is run, where XLA compiles for something else than an NVIDIA GPU.
    """
    batch, heads, tokens, _ = q.shape
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
    """Results of the types and shapes of `like`; behind them stands the room that XLA gives cuDNN to work in."""
    return gen_xla_ops.xla_custom_call_v2(
        operands=operands, call_target_name=target, backend_config=json.dumps(config), has_side_effect=False,
        result_dtypes=[*(x.dtype for x in like), tf.uint8], result_shapes=[*(x.shape for x in like), [0]],
    )[:-1]  # fmt: skip


def _config(target: str, q: tf.Tensor, factor: float) -> dict[str, Any]:
    batch, heads, tokens, _ = map(str, q.shape)
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
    settings = {"fmha_scale": factor, "mask_type": "NO_MASK", "is_flash_attention": True, "max_seg_per_batch": 1}
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


def _numbers(left: int, right: int) -> dict[str, list[str]]:
    """Of a product that sums axis `left` of one factor with axis `right` of the other."""
    return {
        "lhs_contracting_dimensions": [str(left)],
        "rhs_contracting_dimensions": [str(right)],
        "lhs_batch_dimensions": ["0", "1"],
        "rhs_batch_dimensions": ["0", "1"],
    }
