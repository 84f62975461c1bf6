"""Dense layers and layer norms, and what is common to the sub-layers that are made of them.

If several devices hold a model (model_shard.py), the first kernels of a sub-layer are divided by columns and the last
one by rows. So each device computes a term of the sub-layer's output, and the terms are summed.

Shapes: M and R rows, D width.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bert.model import fused_ops
from bert.model.fused_ops import converted_product, copies, product
from bert.model.initializers import Initializer
from bert.model.model_shard import Parts


class Dense(tf.Module):
    """Dense layer: y = x W + b. Without a bias, b is a constant zero. If `update` is set, it is added to W."""

    def __init__(self, init: Initializer, name: str, *shape: int) -> None:
        """shape: [inputs, outputs] of a layer that is not in `Initializer.table`, such as the head of a task.

        Such a layer has a bias.
        """
        super().__init__()
        self.weight = init.variable(f"{name}/kernel", *shape)
        biased, outputs = shape or init.has(f"{name}/bias"), self.weight.shape[1]
        self.bias = init.variable(f"{name}/bias", *shape[1:]) if biased else tf.zeros([outputs])
        self.update: Callable[[], tf.Tensor] | None = None  # with the variables that are added to W

    @property
    def kernel(self) -> tf.Variable:
        """W [inputs, outputs]: the variable itself, or a tensor, its sum with the update."""
        return self.weight if self.update is None else self.weight + self.update()

    def __call__(self, x: tf.Tensor) -> tf.Tensor:  # [M, inputs] -> [M, outputs] float32
        return tf.nn.bias_add(tf.matmul(x, self.kernel), self.bias)

    def product(self, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Return x W [M, outputs], computed in `dtype`. The next operation adds the bias, in float32."""
        return dense_product(x, self.kernel, dtype)


def dense_product(x: tf.Tensor, kernel: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return x [M, inputs] times kernel [inputs, outputs], computed in `dtype`."""
    if x.dtype != dtype and fused_ops.has_gpu():
        return converted_product(x, kernel, dtype)
    return product(tf.cast(x, dtype), tf.cast(kernel, dtype))


def make_dense(init: Initializer, name: str) -> Dense | None:
    """Make the dense layer of this name; return None if the model has none."""
    return Dense(init, name) if init.has(f"{name}/kernel") else None


class LayerNorm(tf.Module):
    """Layer norm over the last axis. Without a bias, beta is a constant zero."""

    def __init__(self, init: Initializer, name: str, *width: int) -> None:
        """width: size of a norm that is not in `Initializer.table`; such a norm has a bias."""
        super().__init__()
        self.epsilon, biased = init.config.layer_norm_epsilon, width or init.has(f"{name}/beta")
        self.gamma = init.variable(f"{name}/gamma", *width)
        self.beta = init.variable(f"{name}/beta", *width) if biased else tf.zeros(self.gamma.shape)

    def __call__(self, x: tf.Tensor, *bits: tf.Tensor, rate: float = 0.0) -> tf.Tensor:
        """Return x [M, D], normalised in float32, then with dropout if `bits` are given; the result has x's type."""
        return fused_ops.layer_norm(x, self.gamma, self.beta, *bits, epsilon=self.epsilon, rate=rate)


class RMSNorm(tf.Module):
    """Root mean square layer norm (Zhang and Sennrich 2019) over the last axis, without a bias."""

    def __init__(self, init: Initializer, name: str) -> None:
        super().__init__()
        self.epsilon, self.gamma = init.config.layer_norm_epsilon, init.variable(f"{name}/gamma")

    def __call__(self, x: tf.Tensor, *bits: tf.Tensor, rate: float = 0.0) -> tf.Tensor:
        """Return x [M, D], normalised in float32, then with dropout if `bits` are given; the result has x's type."""
        return fused_ops.rms_norm(x, self.gamma, *bits, epsilon=self.epsilon, rate=rate)


def make_norm(init: Initializer, name: str) -> LayerNorm | RMSNorm | None:
    """Make the norm of a part of the model; return None if the part has none."""
    if not init.has(f"{name}/layer_norm/gamma"):
        return None
    return (RMSNorm if init.config.norm == "rms" else LayerNorm)(init, f"{name}/layer_norm")


class Projection(NamedTuple):
    """The output of a sub-layer: product + bias. The residual sum that follows adds the bias, in float32."""

    product: tf.Tensor  # [R, D] in the compute dtype
    bias: tf.Tensor  # [D]


class SubLayer(tf.Module):
    """A function of the residual stream that ends with the dense layer `output`.

    If devices divide the model, each computes a term of the output. Call `copy_input` or `split_residual` first, then
    the subclass, which computes this device's term, then `sum_shards`.
    """

    output: Dense

    def __init__(self, name: str, parts: Parts, num_inputs: int = 1) -> None:
        """name: of the sub-layer in the model. num_inputs: how many copies of its input it reads."""
        super().__init__()
        self._sums, self._parts, self.num_inputs = name, parts, num_inputs

    def copy_input(self, x: tf.Tensor) -> list[tf.Tensor]:
        """Return the copies of x [M, D] that the sub-layer reads."""
        return copies(self._parts.identity_with_summed_gradient(x, f"{self._sums}/input"), self.num_inputs)

    def split_residual(self, x: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Return the copies of x [M, D] that the sub-layer reads, and x for the residual sum.

        `copies` defines the order in which the gradients by x are added.
        """
        if self._parts.count > 1:  # one sum over the parts for the gradients of all inputs
            inner, x = copies(x, 2)
            return self.copy_input(inner), x
        *inputs, x = copies(x, self.num_inputs + 1)
        return inputs, x

    def sum_shards(self, term: tf.Tensor) -> Projection:
        """Return the sub-layer's output. term: this device's term of the product [R, D]; the terms are summed."""
        return Projection(self._parts.all_reduce_forward(term, f"{self._sums}/sum"), self.output.bias)
