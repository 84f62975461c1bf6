"""The encoder for inference: equations.py, computed by TensorFlow.

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
from bert.model import encoder, equations, fused_ops
from bert.model.attention import library_softmax, merge, split
from bert.model.dense import LayerNorm
from bert.model.dropout import DropoutRng

JOINT = "attention/joint"  # of each layer: the product of queries, keys and values
MAX_CONSTANT_BYTES = 1 << 28  # TensorFlow copies constants a dozen times while it optimises the graph


@contextlib.contextmanager
def inlined() -> Iterator[None]:
    """Trace tf.functions as plain operations in this block.

    XLA would compile for each new shape, and TensorFlow Serving lacks XLA on CPUs.
    """
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def traced(function: Callable[..., Any], signature: Any, compiled: bool) -> Callable[..., Any]:
    """Return a graph of `function`. compiled: whether XLA compiles parts of it, again for each input shape."""
    graph = graphs.function(function, input_signature=signature)
    if compiled:
        return graph
    with inlined():
        return graph.get_concrete_function()


Update = Callable[[tf.Tensor], tf.Tensor]
"""what a model adds to a product x W, of the rows x, in their type"""


class InferenceEncoder(tf.Module):
    """Compute the same as a given encoder, up to rounding. That encoder can be deleted afterwards.

    This is the engine "tensorflow" of `bert.engines`.
    """

    name = "tensorflow"
    updates: Mapping[str, Update] = MappingProxyType({})  # by the names of dense layers

    def __init__(self, encoder: encoder.Encoder, dtype: tf.DType, shared: bool = False) -> None:
        """shared: whether several models read the weights. They are then variables, not constants of each graph."""
        super().__init__()
        assert not encoder.config.causal, "generation has an encoder of its own"
        self.config, self.width, self.dtype = encoder.config, encoder.config.hidden_size, dtype
        self.embeddings = encoder.embeddings
        self.parameters = sum(weight.shape.num_elements() for weight in encoder.trainable_variables)
        self.factor = (self.width // self.config.num_attention_heads) ** -0.5  # of queries
        small = 2 * self.parameters <= MAX_CONSTANT_BYTES
        constant = dtype.size == 2 and small and not shared  # in float32 it is not faster
        weights, norms = dict[str, _Weight](), {"final": encoder.norm}

        def store(name: str, kernel: tf.Tensor, bias: tf.Tensor) -> None:
            for part, x in (("kernel", kernel), ("bias", bias)):
                weights[f"{name}/{part}"] = _Weight(tf.cast(x, dtype), constant)

        for number, layer in enumerate(encoder.layers):
            attention, mlp, name = layer.attention, layer.mlp, f"layer_{number}"
            store(f"{name}/{JOINT}", *attention.joint_weights(tf.float32, self.factor))
            parts = {"attention/output": attention.output, "mlp/inner": mlp.inner, "mlp/gate": mlp.gate}
            for part, dense in (parts | {"mlp/outer": mlp.output}).items():
                if dense:
                    store(f"{name}/{part}", dense.kernel, dense.bias)
            norms |= {f"{name}/attention": layer.attention_norm, f"{name}/mlp": layer.mlp_norm}
        self.weights, self.norms = weights, norms

    def __call__(
        self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, read: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return the last hidden states, float32: [B, T, D], or only the rows `read` [R] of [B*T, D], as [R, D].

        The other arguments are [B, T], as in `encoder.TokenBatch`.
        """
        last = self._rows(ids, mask, segments, read)[-1]
        return last if read is not None else self._batched(last, ids)

    def function(
        self,
        then: Callable[..., Any],
        *,
        layers: tuple[int, ...] = (-1,),
        at_places: bool = False,
        given: Sequence[tf.TensorSpec] = (),
        compiled: bool = True,
    ) -> Callable[..., Any]:
        """Return one graph of the encoder and `then`. Arguments as in `bert.engines.engine.Engine.function`."""

        def compute(ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, *rest: tf.Tensor) -> Any:
            if at_places:
                read = rest[0][:, 0] * tf.shape(ids)[1] + rest[0][:, 1]
                return then(self(ids, mask, segments, read), mask, *rest[1:])
            if layers == (-1,):
                return then([self(ids, mask, segments)], mask, *rest)
            states = self.states(ids, mask, segments)
            return then([states[layer] for layer in layers], mask, *rest)

        tokens, places = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, 2], tf.int32)
        return traced(compute, [tokens] * 3 + [places] * at_places + list(given), compiled)

    def states(self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor) -> list[tf.Tensor]:
        """Return the outputs of the embeddings and of each layer, [B, T, D] float32."""
        return [self._batched(x, ids) for x in self._rows(ids, mask, segments, None)]

    def _rows(self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, read: tf.Tensor | None) -> list[tf.Tensor]:
        tokens = encoder.TokenBatch(ids, mask, segments)
        embedded, scopes = self.embeddings(tokens, DropoutRng(None)), encoder.attention_scopes(self.config, tokens)
        return equations.states(self, embedded, scopes, read)

    def _batched(self, x: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [tf.shape(ids)[0], tf.shape(ids)[1], self.width])

    # The operations of `equations`, on rows [M, D]: float32 between sub-layers, and of the compute type within them.

    times, rows = staticmethod(tf.multiply), staticmethod(tf.gather)

    def enter(self, layer: str) -> None:
        """Do nothing: layers differ in their weights only."""

    def norm(self, x: tf.Tensor, name: str) -> tf.Tensor:
        """Return the norm of x that has this name; return x if there is none."""
        norm = self.norms[name]
        return norm(x) if norm else x

    def dense(self, x: tf.Tensor, name: str) -> tf.Tensor:
        """Return x W + b of the dense layer `name`, plus its update if it has one."""
        x, kernel, bias = self._read(x, name)
        return self._updated(tf.nn.bias_add(tf.matmul(x, kernel), bias), x, name)

    def activated(self, x: tf.Tensor, name: str) -> tf.Tensor:
        """Return the activation of x W + b of the dense layer `name`, with its update if it has one."""
        activation = self.config.hidden_act
        one_dnn = ACTIVATIONS[activation].one_dnn
        if one_dnn is not None and not fused_ops.has_gpu():
            return one_dnn(tf, self.dense(x, name))
        x, kernel, bias = self._read(x, name)
        product = self._updated(tf.matmul(x, kernel), x, name)
        return fused_ops.activation(activation)(product, tf.cast(bias, tf.float32))

    def _read(self, x: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return tf.cast(x, self.dtype), self.weights[f"{name}/kernel"](), self.weights[f"{name}/bias"]()

    def _updated(self, y: tf.Tensor, x: tf.Tensor, name: str) -> tf.Tensor:
        return y + self.updates[name](x) if name in self.updates else y

    def add(self, x: tf.Tensor, y: tf.Tensor, norm: str | None) -> tf.Tensor:
        """Return x + y, normalised by the norm of this name; None: without a norm."""
        if norm is None:
            return x + tf.cast(y, tf.float32)
        then = self.norms[norm]
        assert isinstance(then, LayerNorm), "a layer whose norms follow its sub-layers has two layer norms"
        return _add_norm(x, y, then.gamma, then.beta, epsilon=then.epsilon)

    def heads(self, x: tf.Tensor, name: str, mask: tf.Tensor) -> list[tf.Tensor]:
        """Return queries (times `factor`), keys and values [B, N, T, H]."""
        return split(self.dense(x, name), tf.shape(mask)[-1], self.config.num_attention_heads)

    def attended(self, q: tf.Tensor, k: tf.Tensor, v: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Return the values weighted by the softmax of q k' + mask, with merged heads."""
        return merge(tf.matmul(_weights(q, k, mask), v), self.width)


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


@graphs.function(jit_compile=True)
def _add_norm(x: tf.Tensor, y: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the layer norm of x + y [M, D], float32; y is of any type."""
    return fused_ops.norm(x + tf.cast(y, tf.float32), gamma, beta, epsilon)
