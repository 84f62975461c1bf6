"""BERT's encoder (Devlin et al. 2019), written as its equations: learned positions, exact GELU.

Layer norm stands after each sum with the residual, as published, or before each sub-layer, as deep models and short
runs want it (Shoeybi et al. 2019, Megatron-LM, section 5.3): then the embeddings are not normalised but the last
layer's output is, and the kernels that write into the residual stream start smaller by the root of their number.

Shapes: B batch, T tokens, D width, N heads, H head width, F feed-forward, V vocabulary. Between attention layers the
residual stream is kept as [B*T, D], so that every dense layer is one matrix product.

Weights are float32 masters. Matrix products are done in the compute type, everything else in float32: layer norm,
softmax and GELU need the precision. XLA always compiles what lies between them (regions.py); matrix products are faster
in the libraries that TensorFlow calls, unless the whole step is compiled for a GPU.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from bert.config import ModelConfig
from bert.model import fused_ops
from bert.model.attention import attend, heads, merge, scale, split
from bert.model.dropout import DropoutRng, apply_dropout
from bert.model.fused_ops import add_bias, converted_product, copies, product
from bert.model.initializers import Parameters
from bert.model.lookup import lookup


class Dense(tf.Module):
    """y = x W + b."""

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int) -> None:
        super().__init__()
        self.kernel = make.normal(f"{name}/kernel", inputs, outputs)
        self.bias = make.constant(f"{name}/bias", 0.0, outputs)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:  # [M, inputs] -> [M, outputs] float32
        return tf.nn.bias_add(tf.matmul(x, self.kernel), self.bias)

    def product(self, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """x W [M, outputs], computed in `dtype`, without the bias: whoever reads it next adds that in float32."""
        if x.dtype != dtype and fused_ops.has_gpu():
            return converted_product(x, self.kernel, dtype)
        return product(tf.cast(x, dtype), tf.cast(self.kernel, dtype))


class LayerNorm(tf.Module):
    """Normalises the last axis; the arithmetic is in regions.py."""

    def __init__(self, make: Parameters, name: str, width: int) -> None:
        super().__init__()
        self.gamma = make.constant(f"{name}/gamma", 1.0, width)
        self.beta = make.constant(f"{name}/beta", 0.0, width)

    def __call__(self, x: tf.Tensor, *bits: tf.Tensor, rate: float = 0.0) -> tf.Tensor:
        """x [M, D] -> [M, D] float32, with dropout if there are `bits` for it."""
        return fused_ops.normed(x, self.gamma, self.beta, *bits, rate=rate)


def _into_residual(make: Parameters, config: ModelConfig) -> Parameters:
    """What makes the kernels whose products are added to the residual stream, two a layer."""
    return make.scaled((2 * config.num_hidden_layers) ** -0.5) if config.norm_placement == "pre" else make


class Embeddings(tf.Module):
    """Sum of word, position and segment embeddings."""

    def __init__(self, make: Parameters, config: ModelConfig) -> None:
        super().__init__()
        width = config.hidden_size
        sines = config.position_initializer == "sinusoidal"
        self.word = (make.words if sines else make.normal)("embeddings/word", config.vocab_size, width)  # [V, D]
        positions = make.positions if sines else make.normal
        self.position = positions("embeddings/position", config.max_position_embeddings, width)
        self.segment = make.normal("embeddings/segment", config.type_vocab_size, width)
        self.norm = LayerNorm(make, "embeddings/layer_norm", width) if config.norm_placement == "post" else None
        self.rate = config.hidden_dropout_prob

    def __call__(
        self, ids: tf.Tensor, segments: tf.Tensor, noise: DropoutRng, positions: tf.Tensor | None = None
    ) -> tf.Tensor:
        width, tokens = self.word.shape[1], tf.shape(ids)[1]
        places = self.position[:tokens] if positions is None else lookup(self.position, positions)
        # Few segments: a product with one-hot rows has a cheap gradient where gather's would scatter B*T rows into two.
        kinds = tf.matmul(tf.one_hot(segments, self.segment.shape[0]), self.segment)
        x = tf.reshape(lookup(self.word, ids) + places + kinds, [-1, width])  # [B*T, D]
        bits = noise.bits(tf.shape(x), self.rate)
        return self.norm(x, *bits, rate=self.rate) if self.norm else apply_dropout(x, bits, self.rate)


class Attention(tf.Module):
    """Multi-head self-attention with its output projection."""

    def __init__(self, make: Parameters, name: str, config: ModelConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads, self.head_width = config.num_attention_heads, width // config.num_attention_heads
        self.query = Dense(make, f"{name}/query", width, width)
        self.key = Dense(make, f"{name}/key", width, width)
        self.value = Dense(make, f"{name}/value", width, width)
        self.output = Dense(_into_residual(make, config), f"{name}/output", width, width)
        self.rate, self.fused = config.attention_probs_dropout_prob, config.fused_attention

    def __call__(
        self, *inputs: tf.Tensor, mask: tf.Tensor, noise: DropoutRng, dtype: tf.DType, read: tf.Tensor | None
    ) -> tf.Tensor:
        """inputs: one tensor [B*T, D], or three alike if attention is fused; mask [B, 1, 1 or T, T].

        Returns [R, D] in dtype, of the rows `read`, without the output's bias.
        """
        q, k, v = (self.apart if self.fused else self.together)(inputs, tf.shape(mask)[-1], dtype)
        pairs = tf.concat([tf.shape(q)[:3], tf.shape(k)[2:3]], axis=0)  # of tokens, [B, N, T, T]
        context = attend(q, k, v, mask, *noise.bits(pairs, self.rate), rate=self.rate, fused=self.fused)
        return self.output.product(_rows(merge(context, self.heads * self.head_width), read), dtype)

    def together(self, inputs: Sequence[tf.Tensor], tokens: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        """Queries, times `scale`, keys and values [B, N, T, H] of the one input [B*T, D], by one product."""
        (x,) = inputs
        kernel, bias = self.joined(dtype, scale(self.head_width))
        return split(add_bias(product(tf.cast(x, dtype), kernel), bias), tokens, self.heads)

    def apart(self, inputs: Sequence[tf.Tensor], tokens: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        """The same of three inputs, all alike, by three products: each lies in memory as cuDNN's attention takes it."""
        parts = ((self.query, scale(self.head_width)), (self.key, 1.0), (self.value, 1.0))
        products = [
            add_bias(converted_product(x, part.kernel * factor, dtype), part.bias * factor)
            for x, (part, factor) in zip(inputs, parts, strict=True)
        ]
        return [heads(y, tokens, self.heads) for y in products]

    def joined(self, dtype: tf.DType, factor: float) -> tuple[tf.Tensor, tf.Tensor]:
        """Kernel in dtype [D, 3 D] and bias [3 D] of one product for queries times a factor, keys and values."""
        parts = ((self.query, factor), (self.key, 1.0), (self.value, 1.0))
        kernel = tf.concat([tf.cast(part.kernel * factor, dtype) for part, factor in parts], axis=1)
        return kernel, tf.concat([part.bias * factor for part, factor in parts], axis=0)


class FeedForward(tf.Module):
    """Two dense layers with a GELU between."""

    def __init__(self, make: Parameters, name: str, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Dense(make, f"{name}/inner", config.hidden_size, config.intermediate_size)
        self.output = Dense(_into_residual(make, config), f"{name}/outer", config.intermediate_size, config.hidden_size)

    def __call__(self, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """x [B*T, D] -> [B*T, D] in dtype, without the output's bias."""
        return self.output.product(fused_ops.gelu(self.inner.product(x, dtype), self.inner.bias), dtype)


class Residual(tf.Module):
    """The residual stream around a sub-layer f, with dropout and layer norm: norm(x + f(x)), or x + f(norm(x))."""

    def __init__(self, make: Parameters, name: str, config: ModelConfig, products: int = 1) -> None:
        """`products`: how many the sub-layer computes of its input; it is called with so many copies of it."""
        super().__init__()
        self.norm = LayerNorm(make, f"{name}/layer_norm", config.hidden_size)
        self.before, self.rate, self.products = config.norm_placement == "pre", config.hidden_dropout_prob, products

    def __call__(
        self,
        x: tf.Tensor,
        f: Callable[..., tf.Tensor],
        bias: tf.Variable,
        noise: DropoutRng,
        read: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """x [M, D] float32 -> [R, D] float32, of the rows `read` or of all; f leaves adding its `bias` to the sum."""
        if self.before:
            inputs = copies(self.norm(x), self.products)
        else:
            *inputs, x = copies(x, self.products + 1)
        y = f(*inputs)
        x = _rows(x, read)
        bits = noise.bits(tf.shape(x), self.rate)
        if self.before:
            return fused_ops.added(x, y, bias, *bits, rate=self.rate)
        return fused_ops.normed_sum(x, y, bias, self.norm.gamma, self.norm.beta, *bits, rate=self.rate)


class Layer(tf.Module):
    """Attention, then feed-forward, each in its residual.

    Past its attention no token looks at another: of the last layer only those rows are computed that somebody reads.
    """

    def __init__(self, make: Parameters, name: str, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(make, f"{name}/attention", config)
        products = 3 if config.fused_attention else 1
        self.around_attention = Residual(make, f"{name}/attention", config, products)
        self.mlp = FeedForward(make, f"{name}/mlp", config)
        self.around_mlp = Residual(make, f"{name}/mlp", config)

    def __call__(
        self, x: tf.Tensor, mask: tf.Tensor, noise: DropoutRng, dtype: tf.DType, read: tf.Tensor | None
    ) -> tf.Tensor:
        """x [B*T, D] float32, mask [B, 1, 1 or T, T] -> [R, D] float32, of the rows `read` [R] or of all."""
        attend = functools.partial(self.attention, mask=mask, noise=noise, dtype=dtype, read=read)
        x = self.around_attention(x, attend, self.attention.output.bias, noise, read)
        return self.around_mlp(x, functools.partial(self.mlp, dtype=dtype), self.mlp.output.bias, noise)


def relative_position_heads(attention: Attention, make: Parameters, name: str) -> None:
    """Begins with heads that look one token back, one ahead, two back, and so on, given `Parameters.positions`.

    A masked language model spends its first plateau on finding out where to look (Chen et al. 2024, "Sudden Drops in
    the Loss"); this spares a short run much of it.
    """
    heads, width = attention.heads, attention.heads * attention.head_width
    offsets = [(number // 2 + 1) * (-1 if number % 2 == 0 else 1) for number in range(heads)]
    attention.query.kernel = make.look(f"{name}/query/kernel", heads, width, offsets)
    attention.key.kernel = make.look(f"{name}/key/kernel", heads, width, [0] * heads)


class Encoder(tf.Module):
    """Embeddings and a stack of layers."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        assert config.vocab_size > 0, "the vocabulary's size is resolved before the model is built"
        make = Parameters(seed, config.initializer_range)
        self.config = config
        self.embeddings = Embeddings(make, config)
        self.layers = [Layer(make, f"layer_{number}", config) for number in range(config.num_hidden_layers)]
        if config.position_initializer == "sinusoidal":
            relative_position_heads(self.layers[0].attention, make, "layer_0/attention")
        self.norm = LayerNorm(make, "final/layer_norm", config.hidden_size) if config.norm_placement == "pre" else None

    def __call__(
        self,
        ids: tf.Tensor,  # [B, T] int32
        mask: tf.Tensor,  # [B, T] 1 for tokens, 0 for padding; with positions, the number of each token's instance
        segments: tf.Tensor,  # [B, T] 0 or 1
        noise: DropoutRng,
        dtype: tf.DType,
        positions: tf.Tensor | None = None,  # [B, T] of packed rows, in each instance from 0
        read: tf.Tensor | None = None,  # [R] places in the flattened batch whose states are read; None: all
    ) -> tf.Tensor:  # [B, T, D] float32, or [R, D]
        last = self._streams(ids, mask, segments, noise, dtype, positions, read)[-1]
        return self._batched(last, ids) if read is None else last

    def states(
        self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, noise: DropoutRng, dtype: tf.DType
    ) -> list[tf.Tensor]:
        """What the embeddings and then each layer give, [B, T, D] float32; arguments as of the call."""
        return [self._batched(x, ids) for x in self._streams(ids, mask, segments, noise, dtype, None, None)]

    def _batched(self, x: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [tf.shape(ids)[0], tf.shape(ids)[1], self.config.hidden_size])

    def _streams(
        self,
        ids: tf.Tensor,
        mask: tf.Tensor,
        segments: tf.Tensor,
        noise: DropoutRng,
        dtype: tf.DType,
        positions: tf.Tensor | None,
        read: tf.Tensor | None,
    ) -> list[tf.Tensor]:
        x = self.embeddings(ids, segments, noise, positions)
        bias = padding(mask) if positions is None else _other_instances(mask)
        streams = [x]
        for number, layer in enumerate(self.layers, start=1):
            rows = read if layer is self.layers[-1] else None
            run = functools.partial(_run, layer, number, bias, noise, dtype, rows)
            x = (tf.recompute_grad(run) if self.config.recompute_activations else run)(x)
            streams.append(x)
        streams[-1] = self.norm(x) if self.norm else x
        return streams


def padding(mask: tf.Tensor) -> tf.Tensor:
    """Mask [B, T] -> what is added to scores [B, 1, 1, T]: no token looks at padding."""
    return (1.0 - tf.cast(mask, tf.float32))[:, None, None, :] * -1e4


def _other_instances(numbers: tf.Tensor) -> tf.Tensor:
    """Numbers of instances [B, T] -> what is added to scores [B, 1, T, T]: a token looks at its own instance alone."""
    return tf.cast(numbers[:, None, :, None] != numbers[:, None, None, :], tf.float32) * -1e4


def _run(
    layer: Layer, number: int, mask: tf.Tensor, noise: DropoutRng, dtype: tf.DType, read: tf.Tensor | None, x: tf.Tensor
) -> tf.Tensor:
    return layer(x, mask, noise.branch(number), dtype, read)


def _rows(x: tf.Tensor, read: tf.Tensor | None) -> tf.Tensor:
    return x if read is None else lookup(x, read)


def variables(module: tf.Module) -> dict[str, tf.Variable]:
    """The module's variables by name, sorted, so that every rank sees one order."""
    found = {variable.name.removesuffix(":0"): variable for variable in module.trainable_variables}
    assert len(found) == len(module.trainable_variables), "two variables have one name"
    return dict(sorted(found.items()))
