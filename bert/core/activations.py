"""The activations of feed-forward layers and of the masked-LM transform: one table.

A new activation is a row of `ACTIVATIONS`. Training and inference compile its formula together with the bias before it
(bert/model/fused_ops.py), and TensorFlow derives the gradient. The configuration reads the names of this table, and
needs no TensorFlow; so the formulas are given it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

ONNX_GELU_SINCE = 20  # operator set that has it


class Activation(NamedTuple):
    """What training, inference and export need from an activation."""

    formula: Callable[[Any, Any], Any]
    """called with TensorFlow and x, float32 of any shape"""
    onnx: Callable[[Any, str], str] | None = None
    """called with a `bert.engines.onnx_graph.Graph` and the name of x; None: models with it are not exported to ONNX"""
    one_dnn: Callable[[Any, Any], Any] | None = None
    """the formula, of any type, as TensorFlow recognises it on CPUs to let oneDNN compute it with the product"""


def _gelu(tf: Any, x: Any) -> Any:
    """Return x * Phi(x), where Phi is the distribution function of the normal distribution (Hendrycks and Gimpel 2016).

    It uses erf, as published. The erfc of tf.nn.gelu is more precise where the result is nearly 0, but takes twice the
    time.
    """
    return x * (0.5 + 0.5 * tf.math.erf(x * 0.5**0.5))


def _gelu_by_one_dnn(tf: Any, x: Any) -> Any:
    half, one, root = (tf.constant(value, x.dtype) for value in (0.5, 1.0, 0.5**0.5))
    return half * x * (one + tf.math.erf(x * root))


def _gelu_in_onnx(graph: Any, x: str) -> str:
    if graph.opset >= ONNX_GELU_SINCE:
        return graph.node("Gelu", x, approximate="none")
    return _half_of_one_more(graph, x, graph.node("Erf", graph.node("Mul", x, graph.number(0.5**0.5))))


def _gelu_tanh(tf: Any, x: Any) -> Any:
    """Return GPT-2's approximation of GELU by tanh (Hendrycks and Gimpel 2016, section 2)."""
    return 0.5 * x * (1.0 + tf.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))


def _gelu_tanh_in_onnx(graph: Any, x: str) -> str:
    if graph.opset >= ONNX_GELU_SINCE:
        return graph.node("Gelu", x, approximate="tanh")
    cube = graph.node("Mul", graph.node("Mul", graph.node("Mul", x, x), x), graph.number(0.044715))
    inner = graph.node("Mul", graph.node("Add", x, cube), graph.number((2 / math.pi) ** 0.5))
    return _half_of_one_more(graph, x, graph.node("Tanh", inner))


def _half_of_one_more(graph: Any, x: str, inner: str) -> str:
    """Return x / 2 * (inner + 1)."""
    return graph.node("Mul", graph.node("Mul", x, graph.number(0.5)), graph.node("Add", inner, graph.number(1.0)))


def _relu(tf: Any, x: Any) -> Any:
    return tf.maximum(x, 0.0)


def _silu(tf: Any, x: Any) -> Any:
    """Return x / (1 + exp(-x)) (Hendrycks and Gimpel 2016, section 2), also known as swish."""
    return x * tf.sigmoid(x)


ACTIVATIONS = {  # by `ModelConfig.hidden_act`
    "gelu": Activation(_gelu, _gelu_in_onnx, _gelu_by_one_dnn),
    "gelu_tanh": Activation(_gelu_tanh, _gelu_tanh_in_onnx),
    "relu": Activation(_relu, lambda graph, x: graph.node("Relu", x)),
    "silu": Activation(_silu, lambda graph, x: graph.node("Mul", x, graph.node("Sigmoid", x))),
}
POOLINGS = {  # by `ModelConfig.pooler_act`
    "tanh": Activation(lambda tf, x: tf.tanh(x), lambda graph, x: graph.node("Tanh", x)),
    **{name: ACTIVATIONS[name] for name in ("relu", "gelu")},
}
