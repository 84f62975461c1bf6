"""The encoder of a model that only answers.

model.py's equations without what training alone needs. The weights are constants of the graph, where that pays: oneDNN,
which multiplies matrices for TensorFlow on CPUs, brings a constant kernel into its own layout once and not at every
call. It also adds the bias, and computes GELU, in float32 while it stores a product.

Shapes as in model.py; M = B*T.
"""

from collections.abc import Callable

import tensorflow as tf

from bert.model import encoder, fused_ops
from bert.model.attention import by_library, merge, split
from bert.model.dropout import DropoutRng

LENGTH_MULTIPLE = 16  # tokens to which batches are padded
MAX_CONSTANT_BYTES = 1 << 28  # bytes of constants: TensorFlow copies them a dozen times as it optimises the graph


class InferenceEncoder(tf.Module):
    """Gives what the encoder that it is made of gives, but for rounding; that one may be forgotten."""

    def __init__(self, encoder: encoder.Encoder, dtype: tf.DType) -> None:
        super().__init__()
        self.width, self.dtype = encoder.config.hidden_size, dtype
        self.embeddings, self.norm = encoder.embeddings, encoder.norm
        self.parameters = sum(weight.shape.num_elements() for weight in encoder.trainable_variables)
        constant = dtype.size == 2 and 2 * self.parameters <= MAX_CONSTANT_BYTES  # float32 gains nothing
        self.layers = [_Layer(layer, dtype, constant) for layer in encoder.layers]

    def __call__(self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor) -> tf.Tensor:
        """ids, mask and segments [B, T] as Encoder has them -> [B, T, D] float32."""
        return self.states(ids, mask, segments)[-1]

    def states(self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor) -> list[tf.Tensor]:
        """What the embeddings and then each layer give, [B, T, D] float32."""
        x, bias = self.embeddings(ids, segments, DropoutRng(None)), encoder.padding(mask)
        streams = [x]
        for layer in self.layers:
            x = layer(x, bias)
            streams.append(x)
        streams[-1] = self.norm(x) if self.norm else x
        shape = [tf.shape(ids)[0], tf.shape(ids)[1], self.width]
        return [tf.reshape(stream, shape) for stream in streams]


class _Weight(tf.Module):
    """A tensor that never changes: a constant of each graph that reads it, or a variable."""

    def __init__(self, x: tf.Tensor, constant: bool) -> None:
        super().__init__()
        self.dtype = x.dtype
        # As whole numbers, of which TensorFlow's messages take half the room that numbers of half precision do.
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

    def gelu(self, x: tf.Tensor) -> tf.Tensor:
        """GELU(x W + b)."""
        if fused_ops.has_gpu():
            return fused_ops.gelu(tf.matmul(x, self.kernel()), tf.cast(self.bias(), tf.float32))
        y = self(x)  # written so that TensorFlow sees the pattern and has oneDNN do all of it
        half, one, root = (tf.constant(value, y.dtype) for value in (0.5, 1.0, 0.5**0.5))
        return half * y * (one + tf.math.erf(y * root))


class _Layer(tf.Module):
    """Attention, then feed-forward, each in its residual."""

    def __init__(self, layer: encoder.Layer, dtype: tf.DType, constant: bool) -> None:
        super().__init__()

        def dense(part: encoder.Dense) -> _Dense:
            return _Dense(part.kernel, part.bias, dtype, constant)

        self.heads, self.dtype = layer.attention.heads, dtype
        self.joined = _Dense(*layer.attention.joined(tf.float32, layer.attention.head_width**-0.5), dtype, constant)
        self.output = dense(layer.attention.output)
        self.inner, self.outer = dense(layer.mlp.inner), dense(layer.mlp.output)
        self.around_attention, self.around_mlp = layer.around_attention, layer.around_mlp

    def __call__(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """x [M, D] float32, mask [B, 1, 1, T] -> [M, D] float32."""
        x = self._around(self.around_attention, x, lambda y: self.output(self._context(y, mask)))
        return self._around(self.around_mlp, x, lambda y: self.outer(self.inner.gelu(y)))

    def _context(self, x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        q, k, v = split(self.joined(x), tf.shape(mask)[-1], self.heads)
        return merge(tf.matmul(_weights(q, k, mask), v), x.shape[-1])

    def _around(self, residual: encoder.Residual, x: tf.Tensor, f: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        norm = residual.norm
        y = f(tf.cast(norm(x) if residual.before else x, self.dtype))
        return x + tf.cast(y, tf.float32) if residual.before else _normed_sum(x, y, norm.gamma, norm.beta)


def _weights(q: tf.Tensor, k: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Softmax of the products of queries and keys [B, N, T, H] plus mask, [B, N, T, T] in their type."""
    if not by_library(q.dtype):
        return fused_ops.softmax(tf.matmul(q, k, transpose_b=True), mask, factor=1.0)
    # The mask as one more component of keys, for which all queries have 1: oneDNN is slow to add to a product.
    each = tf.concat([tf.shape(k)[:3], [1]], axis=0)
    column = tf.broadcast_to(tf.cast(tf.transpose(mask, [0, 1, 3, 2]), k.dtype), each)
    scores = tf.matmul(tf.concat([q, tf.ones(each, q.dtype)], 3), tf.concat([k, column], 3), transpose_b=True)
    return tf.nn.softmax(scores)


@tf.function(jit_compile=True)
def _normed_sum(x: tf.Tensor, y: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """Layer norm of x + y [M, D], y of any type, float32."""
    return fused_ops.norm(x + tf.cast(y, tf.float32), gamma, beta)
