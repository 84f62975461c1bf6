"""The encoder for inference: encoder.py's equations without what only training needs.

The weights are constants of the graph where that pays. oneDNN, which computes TensorFlow's matrix products on CPUs,
converts a constant kernel into its own layout once, a variable at every call. It also adds the bias and computes GELU
in float32 while it stores a product.

Several models may have one encoder, each with updates of its own. These are not added to the kernels, which all models
read, but to the products: x W + update(x).

Shapes as in encoder.py; M = B*T.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert.core.activations import ACTIVATIONS
from bert.hardware import graphs
from bert.model import encoder, fused_ops
from bert.model.attention import library_softmax, merge, split
from bert.model.dense import Dense, LayerNorm
from bert.model.dropout import DropoutRng

JOINT = ("attention/query", "attention/key", "attention/value")  # dense layers that are one product here
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
    """Computes what the encoder that it is made of computes, up to rounding; that encoder can be deleted afterwards.

    It is the engine "tensorflow" of `bert.engines`.
    """

    name = "tensorflow"

    def __init__(self, encoder: encoder.Encoder, dtype: tf.DType, shared: bool = False) -> None:
        """shared: whether several models read the weights: variables then, as each graph has constants of its own."""
        super().__init__()
        assert not encoder.config.causal, "generation has an encoder of its own"
        self.config, self.width, self.dtype = encoder.config, encoder.config.hidden_size, dtype
        self.embeddings, self.norm = encoder.embeddings, encoder.norm
        self.parameters = sum(weight.shape.num_elements() for weight in encoder.trainable_variables)
        small = 2 * self.parameters <= MAX_CONSTANT_BYTES
        constant = dtype.size == 2 and small and not shared  # in float32 it is not faster
        self.layers = [_Layer(layer, encoder.config.hidden_act, dtype, constant) for layer in encoder.layers]

    def __call__(
        self,
        ids: tf.Tensor,
        mask: tf.Tensor,
        segments: tf.Tensor,
        read: tf.Tensor | None = None,
        updates: "Sequence[Updates]" = (),
    ) -> tf.Tensor:
        """Return the last hidden states, float32: [B, T, D], or [R, D] of the rows `read` [R] of [B*T, D].

        Arguments [B, T] as in `encoder.TokenBatch`. updates: of each layer; none: of no layer.
        """
        last = self._states(ids, mask, segments, read, updates)[-1]
        return last if read is not None else self._batched(last, ids)

    def function(
        self,
        then: Callable[..., Any],
        *,
        layers: tuple[int, ...] = (-1,),
        at_places: bool = False,
        given: Sequence[tf.TensorSpec] = (),
        compiled: bool = True,
        updates: "Sequence[Updates]" = (),
    ) -> Callable[..., Any]:
        """As `bert.engines.engine.Engine` has it: one graph, with `then` in it. updates: as above."""

        def compute(ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, *rest: tf.Tensor) -> Any:
            if at_places:
                read = rest[0][:, 0] * tf.shape(ids)[1] + rest[0][:, 1]
                return then(self(ids, mask, segments, read, updates), mask, *rest[1:])
            if layers == (-1,):
                return then([self(ids, mask, segments, None, updates)], mask, *rest)
            states = self.states(ids, mask, segments, updates)
            return then([states[layer] for layer in layers], mask, *rest)

        tokens, places = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, 2], tf.int32)
        return traced(compute, [tokens] * 3 + [places] * at_places + list(given), compiled)

    def states(
        self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, updates: "Sequence[Updates]" = ()
    ) -> list[tf.Tensor]:
        """Return the outputs of the embeddings and of each layer, [B, T, D] float32. updates: as above."""
        return [self._batched(state, ids) for state in self._states(ids, mask, segments, None, updates)]

    def _states(
        self,
        ids: tf.Tensor,
        mask: tf.Tensor,
        segments: tf.Tensor,
        read: tf.Tensor | None,
        updates: "Sequence[Updates]",
    ) -> list[tf.Tensor]:
        tokens = encoder.TokenBatch(ids, mask, segments)
        states = [self.embeddings(tokens, DropoutRng(None))]
        scopes = encoder.attention_scopes(self.config, tokens)
        for layer, scope, of_layer in zip(self.layers, scopes, updates or [NONE] * len(scopes), strict=True):
            states.append(layer(states[-1], scope, read if layer is self.layers[-1] else None, of_layer))
        if self.norm:
            states[-1] = self.norm(states[-1])
        return states

    def _batched(self, x: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [tf.shape(ids)[0], tf.shape(ids)[1], self.width])


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


Update = Callable[[tf.Tensor], tf.Tensor]
"""what a model adds to a product x W, of the rows x, in their type"""
Updates = Mapping[str, Update]  # of a layer, by the names of its dense layers: joint, output, inner, gate, outer
NONE: Updates = MappingProxyType({})


class _Dense(tf.Module):
    """y = x W + b, in the type of x; with an update it is added."""

    def __init__(self, kernel: tf.Tensor, bias: tf.Tensor, dtype: tf.DType, constant: bool) -> None:
        super().__init__()
        self.kernel, self.bias = (_Weight(tf.cast(x, dtype), constant) for x in (kernel, bias))

    def __call__(self, x: tf.Tensor, update: Update | None = None) -> tf.Tensor:
        y = tf.nn.bias_add(tf.matmul(x, self.kernel()), self.bias())
        return y if update is None else y + update(x)

    def activated(self, x: tf.Tensor, name: str, update: Update | None = None) -> tf.Tensor:
        """Return the activation of that name of x W + b, or of this with the update."""
        one_dnn = ACTIVATIONS[name].one_dnn
        if one_dnn is None or fused_ops.has_gpu():
            product = tf.matmul(x, self.kernel())
            product = product if update is None else product + update(x)
            return fused_ops.activation(name)(product, tf.cast(self.bias(), tf.float32))
        return one_dnn(tf, self(x, update))


class _Layer(tf.Module):
    """Attention and feed-forward, each with a residual sum: x = norm(x + f(x)), or x = x + f(norm(x))."""

    def __init__(self, layer: encoder.Layer, activation: str, dtype: tf.DType, constant: bool) -> None:
        super().__init__()

        def dense(part: Dense) -> _Dense:
            return _Dense(part.kernel, part.bias, dtype, constant)

        attention = layer.attention
        self.heads, self.dtype, self.pre_norm = attention.heads, dtype, layer.pre_norm
        self.factor = attention.head_width**-0.5  # of queries
        self.joint = _Dense(*attention.joint_weights(tf.float32, self.factor), dtype, constant)
        self.output = dense(attention.output)
        self.inner, self.outer = dense(layer.mlp.inner), dense(layer.mlp.output)
        self.gate = dense(layer.mlp.gate) if layer.mlp.gate else None
        self.activation = activation
        self.attention_norm, self.mlp_norm = layer.attention_norm, layer.mlp_norm

    def __call__(
        self, x: tf.Tensor, scope: encoder.AttentionScope, read: tf.Tensor | None = None, updates: Updates = NONE
    ) -> tf.Tensor:
        """x [M, D] float32 -> [M, D] float32, or [R, D] of the rows `read` [R]."""
        assert self.mlp_norm, "every layer has it"
        normalised = self.attention_norm(x) if self.pre_norm and self.attention_norm else x
        context = self._context(normalised, scope, updates)
        if read is not None:
            x, context = tf.gather(x, read), tf.gather(context, read)
        attention = self.output(context, updates.get("output"))
        if self.pre_norm:
            x = x + tf.cast(attention, tf.float32)
            return x + tf.cast(self._mlp(self.mlp_norm(x), updates), tf.float32)
        assert self.attention_norm, "a layer whose norms follow its sub-layers has two"
        x = _add_norm(x, attention, self.attention_norm)
        return _add_norm(x, self._mlp(x, updates), self.mlp_norm)

    def _context(self, x: tf.Tensor, scope: encoder.AttentionScope, updates: Updates) -> tf.Tensor:
        joint = self.joint(tf.cast(x, self.dtype), updates.get("joint"))
        q, k, v = split(joint, tf.shape(scope.mask)[-1], self.heads)
        if scope.rotation:
            q, k = scope.rotation(q), scope.rotation(k)
        return merge(tf.matmul(_weights(q, k, scope.mask), v), x.shape[-1])

    def _mlp(self, x: tf.Tensor, updates: Updates) -> tf.Tensor:
        x = tf.cast(x, self.dtype)
        inner = self.inner.activated(x, self.activation, updates.get("inner"))
        inner = inner * self.gate(x, updates.get("gate")) if self.gate else inner
        return self.outer(inner, updates.get("outer"))


def _weights(q: tf.Tensor, k: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the softmax of q k' + mask, [B, N, T, T] in the type of q and k [B, N, T, H].

    mask: [B, 1, 1, T], or [B, 1, T, T] where attention is local.
    """
    if not library_softmax(q.dtype):
        return fused_ops.softmax(tf.matmul(q, k, transpose_b=True), mask, factor=1.0)
    if mask.shape[2] != 1:
        return tf.nn.softmax(tf.matmul(q, k, transpose_b=True) + tf.cast(mask, q.dtype))
    # oneDNN is slow to add to a product. So the mask is one more component of the keys, which is 1 in all queries.
    column_shape = tf.concat([tf.shape(k)[:3], [1]], axis=0)
    column = tf.broadcast_to(tf.cast(tf.transpose(mask, [0, 1, 3, 2]), k.dtype), column_shape)
    extended_q, extended_k = tf.concat([q, tf.ones(column_shape, q.dtype)], 3), tf.concat([k, column], 3)
    return tf.nn.softmax(tf.matmul(extended_q, extended_k, transpose_b=True))


def _add_norm(x: tf.Tensor, y: tf.Tensor, norm: LayerNorm) -> tf.Tensor:
    return _compiled_add_norm(x, y, norm.gamma, norm.beta, epsilon=norm.epsilon)


@graphs.function(jit_compile=True)
def _compiled_add_norm(x: tf.Tensor, y: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the layer norm of x + y [M, D], float32; y is of any type."""
    return fused_ops.norm(x + tf.cast(y, tf.float32), gamma, beta, epsilon)
