"""The encoder's equations for inference, whatever computes their operations.

inference.py computes them with TensorFlow, `bert.engines.onnx_graph` writes them as nodes of a graph. A part of the
model has the name of its weights without their last part, such as `layer_0/mlp/inner`. Shapes as in encoder.py; rows
[M, D] may be [B, T, D].
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from bert.core.config import ModelConfig

Tensor = TypeVar("Tensor")
Scope = tuple[Tensor, Callable[[Tensor], Tensor] | None]
"""of the attention of a layer: what is added to scores [B, 1, 1 or T, T], and what rotates queries and keys, if any"""


class Operations(Protocol[Tensor]):
    """The operations that the equations use."""

    config: ModelConfig

    def enter(self, layer: str) -> None: ...  # begin with a layer, or with what is in none
    def norm(self, x: Tensor, name: str) -> Tensor: ...  # x itself if the model has no norm of that name
    def dense(self, x: Tensor, name: str) -> Tensor: ...  # x W + b
    def activated(self, x: Tensor, name: str) -> Tensor: ...  # the activation of x W + b
    def times(self, x: Tensor, y: Tensor) -> Tensor: ...  # x * y
    def add(self, x: Tensor, y: Tensor, norm: str | None) -> Tensor: ...  # x + y, or its norm of that name
    def rows(self, x: Tensor, read: Tensor) -> Tensor: ...  # [R, D] of x [M, D]
    def heads(self, x: Tensor, name: str, mask: Tensor) -> Sequence[Tensor]: ...  # q, k and v [B, N, T, H] of x [M, D]
    def attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor: ...  # with merged heads [M, D]


def states(ops: Operations[Tensor], x: Tensor, scopes: Sequence[Scope[Tensor]], read: Tensor | None) -> list[Tensor]:
    """Return the embeddings x and the outputs of the layers. read: rows [R] of the last layer's output; None: all."""
    states, last = [x], len(scopes) - 1
    for number, scope in enumerate(scopes):
        states.append(_layer(ops, states[-1], f"layer_{number}", scope, read if number == last else None))
    ops.enter("")
    return [*states[:-1], ops.norm(states[-1], "final")]


def _layer(ops: Operations[Tensor], x: Tensor, name: str, scope: Scope[Tensor], read: Tensor | None) -> Tensor:
    """Return the output of a layer: attention and feed-forward, each norm(x + f(x)), or x + f(norm(x))."""
    ops.enter(name)
    pre, attention, mlp = ops.config.norm_placement == "pre", f"{name}/attention", f"{name}/mlp"
    mask, rotated = scope
    q, k, v = ops.heads(ops.norm(x, attention) if pre else x, f"{attention}/joint", mask)
    context = ops.attended(rotated(q), rotated(k), v, mask) if rotated else ops.attended(q, k, v, mask)
    if read is not None:  # after the attention no token depends on another
        x, context = ops.rows(x, read), ops.rows(context, read)
    x = ops.add(x, ops.dense(context, f"{attention}/output"), None if pre else attention)
    y = ops.norm(x, mlp) if pre else x
    inner = ops.activated(y, f"{mlp}/inner")
    if ops.config.gated:
        inner = ops.times(inner, ops.dense(y, f"{mlp}/gate"))
    return ops.add(x, ops.dense(inner, f"{mlp}/outer"), None if pre else mlp)
