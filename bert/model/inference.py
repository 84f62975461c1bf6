"""The encoder for inference: encoder.py's equations without what only training needs.

The weights are constants of the graph where that pays. oneDNN, which computes TensorFlow's matrix products on CPUs,
converts a constant kernel into its own layout once, a variable at every call. It also adds the bias and computes GELU
in float32 while it stores a product.

Shapes as in encoder.py; M = B*T.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from bert.hardware import graphs
from bert.model import encoder, fused_ops
from bert.model.attention import library_softmax, merge, split
from bert.model.dropout import DropoutRng

MAX_CONSTANT_BYTES = 1 << 28  # TensorFlow copies constants a dozen times while it optimises the graph


@contextlib.contextmanager
def inlined() -> Iterator[None]:
    """Trace tf.functions as plain operations: XLA would compile for each new shape, and servers lack it on CPUs."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def traced(function: Callable[..., Any], signature: Any, compiled: bool) -> Callable[..., Any]:
    """Return a graph of `function`. compiled: whether XLA compiles parts of it, anew for each shape of the input."""
    graph = graphs.function(function, input_signature=signature)
    if compiled:
        return graph
    with inlined():
        return graph.get_concrete_function()


class InferenceEncoder(tf.Module):
    """Computes what the encoder that it is made of computes, up to rounding; that encoder can be deleted afterwards."""

    def __init__(self, encoder: encoder.Encoder, dtype: tf.DType) -> None:
        super().__init__()
        assert not encoder.config.causal, "generation has an encoder of its own"
        self.width, self.dtype = encoder.config.hidden_size, dtype
        self.embeddings, self.norm = encoder.embeddings, encoder.norm
        self.parameters = sum(weight.shape.num_elements() for weight in encoder.trainable_variables)
        constant = dtype.size == 2 and 2 * self.parameters <= MAX_CONSTANT_BYTES  # in float32 it is not faster
        self.layers = [_Layer(layer, dtype, constant) for layer in encoder.layers]

    def __call__(self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor) -> tf.Tensor:
        """Return the last hidden states [B, T, D] float32; arguments [B, T] as of `encoder.TokenBatch`."""
        return self.states(ids, mask, segments)[-1]

    def states(self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor) -> list[tf.Tensor]:
        """Return the outputs of the embeddings and of each layer, [B, T, D] float32."""
        tokens = encoder.TokenBatch(ids, mask, segments)
        attention_mask, states = tokens.attention_mask(), [self.embeddings(tokens, DropoutRng(None))]
        for layer in self.layers:
            states.append(layer(states[-1], attention_mask))
        if self.norm:
            states[-1] = self.norm(states[-1])
        shape = [tf.shape(ids)[0], tf.shape(ids)[1], self.width]
        return [tf.reshape(state, shape) for state in states]


class _Weight(tf.Module):
    """A tensor that never changes: a constant of each graph that reads it, or a variable."""

    def __init__(self, x: tf.Tensor, constant: bool) -> None:
        super().__init__()
        self.dtype = x.dtype
        # As integers: TensorFlow's messages store each of them in half the bytes of a half-precision number.
        self.bits = tf.bitcast(x, tf.int16).numpy() if constant else None
        self.variable = None if constant else tf.Variable(x)

    def __call__(self) -> tf.Tensor:
        return self.variable if self.variable is not None else tf.bitcast(tf.constant(self.bits), self.dtype)


class _Dense(tf.Module):
    """y = x W + b, in the type of x."""

    def __init__(self, kernel: tf.Tensor, bias: tf.Tensor, dtype: tf.DType, constant: bool) -> None:
        super().__init__()
        self.kernel, self.bias = (_Weight(tf.cast(x, dtype), constant) for x in (kernel, bias))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.bias_add(tf.matmul(x, self.kernel()), self.bias())

    def activated(self, x: tf.Tensor, activation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Return the activation of x W + b, which is one of `fused_ops.ACTIVATIONS`."""
        if fused_ops.has_gpu() or activation is not fused_ops.gelu:
            return activation(tf.matmul(x, self.kernel()), tf.cast(self.bias(), tf.float32))
        y = self(x)  # in this form TensorFlow recognises the pattern and lets oneDNN compute all of it
        half, one, root = (tf.constant(value, y.dtype) for value in (0.5, 1.0, 0.5**0.5))
        return half * y * (one + tf.math.erf(y * root))


class _Layer(tf.Module):
    """Attention and feed-forward, each with a residual sum: x = norm(x + f(x)), or x = x + f(norm(x))."""

    def __init__(self, layer: encoder.Layer, dtype: tf.DType, constant: bool) -> None:
        super().__init__()

        def dense(part: encoder.Dense) -> _Dense:
            return _Dense(part.kernel, part.bias, dtype, constant)

        attention = layer.attention
        self.heads, self.dtype, self.pre_norm = attention.heads, dtype, layer.pre_norm
        self.joint = _Dense(*attention.joint_weights(tf.float32, attention.head_width**-0.5), dtype, constant)
        self.output = dense(attention.output)
        self.inner, self.outer = dense(layer.mlp.inner), dense(layer.mlp.output)
        self.activation = layer.mlp.activation
        self.attention_norm, self.mlp_norm = layer.attention_norm, layer.mlp_norm

    def __call__(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """x [M, D] float32, mask [B, 1, 1, T] -> [M, D] float32."""
        if self.pre_norm:
            x = x + tf.cast(self._attention(self.attention_norm(x), mask), tf.float32)
            return x + tf.cast(self._mlp(self.mlp_norm(x)), tf.float32)
        x = _add_norm(x, self._attention(x, mask), self.attention_norm)
        return _add_norm(x, self._mlp(x), self.mlp_norm)

    def _attention(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        q, k, v = split(self.joint(tf.cast(x, self.dtype)), tf.shape(mask)[-1], self.heads)
        return self.output(merge(tf.matmul(_weights(q, k, mask), v), x.shape[-1]))

    def _mlp(self, x: tf.Tensor) -> tf.Tensor:
        return self.outer(self.inner.activated(tf.cast(x, self.dtype), self.activation))


def _weights(q: tf.Tensor, k: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the softmax of q k' + mask, [B, N, T, T] in the type of q and k [B, N, T, H]."""
    if not library_softmax(q.dtype):
        return fused_ops.softmax(tf.matmul(q, k, transpose_b=True), mask, factor=1.0)
    # oneDNN is slow to add to a product. So the mask is one more component of the keys, which is 1 in all queries.
    column_shape = tf.concat([tf.shape(k)[:3], [1]], axis=0)
    column = tf.broadcast_to(tf.cast(tf.transpose(mask, [0, 1, 3, 2]), k.dtype), column_shape)
    extended_q, extended_k = tf.concat([q, tf.ones(column_shape, q.dtype)], 3), tf.concat([k, column], 3)
    return tf.nn.softmax(tf.matmul(extended_q, extended_k, transpose_b=True))


def _add_norm(x: tf.Tensor, y: tf.Tensor, norm: encoder.LayerNorm) -> tf.Tensor:
    return _compiled_add_norm(x, y, norm.gamma, norm.beta, epsilon=norm.epsilon)


@graphs.function(jit_compile=True)
def _compiled_add_norm(x: tf.Tensor, y: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the layer norm of x + y [M, D], float32; y is of any type."""
    return fused_ops.norm(x + tf.cast(y, tf.float32), gamma, beta, epsilon)
