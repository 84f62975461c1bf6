"""BERT's encoder (Devlin et al. 2019), and GPT-2's decoder (Radford et al. 2019), which is the same with a causal mask.

Layer norm follows each residual sum, as published, or precedes each sub-layer, which trains deep models more stably
(Shoeybi et al. 2019, Megatron-LM, section 5.3). In the second form the embeddings are not normalised and the last
layer's output is.

Shapes: B batch, T tokens, D width, N heads, H head width, F feed-forward, V vocabulary, R rows that are computed.
Between attention layers the residual stream is [B*T, D], so that every dense layer is one matrix product.

Weights are float32 masters. Matrix products are computed in the compute dtype; layer norm, softmax, GELU and the
residual stream in float32. XLA compiles what stands between the products (fused_ops.py). The products are left to
TensorFlow's libraries, which are faster on CPUs, unless the whole step is compiled for a GPU.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert.core.config import ModelConfig
from bert.hardware import graphs
from bert.model import fused_ops, traversal
from bert.model.attention import attend, heads, merge, scale, split
from bert.model.cache import Cache
from bert.model.dense import Dense, LayerNorm, SubLayer
from bert.model.dropout import DropoutRng, apply_dropout
from bert.model.fused_ops import add_bias, converted_product, product
from bert.model.initializers import Initializer, relative_position_offsets
from bert.model.lookup import divided_lookup, lookup
from bert.model.parts import WHOLE, Parts
from bert.model.traversal import Groups


class TokenBatch(NamedTuple):
    """Token sequences, padded or packed to one length."""

    ids: tf.Tensor  # [B, T] int32
    mask: tf.Tensor | None = None  # [B, T] 1 for tokens, 0 for padding; if packed, numbers of instances; None: all 1
    segments: tf.Tensor | None = None  # [B, T], from 0; None if the model has no segments
    positions: tf.Tensor | None = None  # [B, T] if packed: places in the instance, from 0

    def attention_mask(self, causal: bool = False) -> tf.Tensor:
        """Return what is added to attention scores [B or 1, 1, 1 or T, T], float32: 0, or -10,000 where none may be.

        causal: whether tokens attend to no later ones.
        """
        if causal:
            later = _later(tf.shape(self.ids)[1])
            return later if self.mask is None else tf.minimum(later, self.attention_mask())
        if self.mask is None:
            return tf.zeros([1, 1, 1, tf.shape(self.ids)[1]])
        return padding(self.mask) if self.positions is None else _other_instances(self.mask)


class Mode(NamedTuple):
    """How a forward pass is computed."""

    dtype: tf.DType  # of matrix products
    dropout: DropoutRng
    groups: Groups | None = None  # layers whose gradients are computed together; None: all
    compile_parts: bool = False  # compile what each sub-layer computes between two sums over the model's parts
    cache: Cache | None = None  # of the tokens before these, whose positions are `cache.positions`

    def branch(self, number: int) -> "Mode":
        """Return the mode of part `number` of the model, which has its own dropout masks, keys and values."""
        return self._replace(dropout=self.dropout.branch(number), cache=self.cache and self.cache.branch(number))

    def compiled(self, function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        """Return a function of tensors, compiled by XLA if `compile_parts` asks for it."""
        return graphs.function(function, jit_compile=True) if self.compile_parts else function


class Embeddings(tf.Module):
    """Sum of word, position and, if the model has segments, segment embeddings; projected if it is of another width."""

    def __init__(self, init: Initializer, config: ModelConfig) -> None:
        super().__init__()
        width, segments = config.embedding_width, config.type_vocab_size
        sinusoidal = config.position_initializer == "sinusoidal"
        words = init.words_beside_sinusoids if sinusoidal else init.normal
        positions = init.sinusoids if sinusoidal else init.normal
        self.word = words("embeddings/word", config.vocab_size, width)  # [V, D]
        self.position = positions("embeddings/position", config.max_position_embeddings, width)
        self.segment = init.normal("embeddings/segment", segments, width) if segments else None
        self.norm = _norm(init, "embeddings", config, width) if config.norm_placement == "post" else None
        projected = width != config.hidden_size
        self.projection = Dense(init, "embeddings/projection", width, config.hidden_size) if projected else None
        self.rate, self.parts = config.hidden_dropout_prob, init.parts
        self.vocab_size = config.vocab_size

    def __call__(self, tokens: TokenBatch, dropout: DropoutRng) -> tf.Tensor:
        """Return the embeddings of all tokens [B*T, D], float32."""
        width, length = self.word.shape[1], tf.shape(tokens.ids)[1]
        position = self.position[:length] if tokens.positions is None else lookup(self.position, tokens.positions)
        x = divided_lookup(self.word, tokens.ids, self.vocab_size, self.parts, "embeddings/word") + position
        if self.segment is not None:
            # A product with one-hot rows: its gradient is cheap, where gather's would scatter B*T rows into two.
            rows = self.segment.shape[0]
            segments = tokens.segments if rows > 1 else tf.zeros_like(tokens.segments)  # one row is for all texts
            x += tf.matmul(tf.one_hot(segments, rows), self.segment)
        x = tf.reshape(x, [-1, width])  # [B*T, D]
        bits = dropout.bits(tf.shape(x), self.rate)
        x = self.norm(x, *bits, rate=self.rate) if self.norm else apply_dropout(x, bits, self.rate)
        return x if self.projection is None else self.projection(x)


class Attention(SubLayer):
    """Multi-head self-attention with its output projection."""

    def __init__(self, init: Initializer, name: str, config: ModelConfig) -> None:
        super().__init__(name, init.parts, num_inputs=3 if config.fused_attention else 1)
        width = config.hidden_size
        self.all_heads, self.head_width = config.num_attention_heads, width // config.num_attention_heads
        self.heads, self.among = init.parts.heads(self.all_heads)
        self.query = Dense(init, f"{name}/query", width, width)
        self.key = Dense(init, f"{name}/key", width, width)
        self.value = Dense(init, f"{name}/value", width, width)
        self.output = Dense(_residual_init(init, config), f"{name}/output", width, width)
        self.rate, self.fused = config.attention_probs_dropout_prob, config.fused_attention

    def __call__(
        self, inputs: Sequence[tf.Tensor], mode: Mode, mask: tf.Tensor, read: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Attend from each token to all that `mask` [B, 1, 1 or T, T] allows, or with a cache [B, 1, T, C].

        inputs: `num_inputs` copies of x [B*T, D]. read: rows [R] whose output is computed; None computes all. Return
        the product with the output kernel, [R, D].
        """
        tokens = tf.shape(mask)[-2 if mode.cache else -1]
        q, k, v = (self._separate if self.fused else self._joint)(inputs, tokens, mode.dtype)  # [B, N, T, H]
        if mode.cache:
            k, v = mode.cache.extend(k, v)
        scores_shape = tf.concat([tf.shape(q)[:3], tf.shape(k)[2:3]], axis=0)  # [B, N, T, T]
        bits = mode.dropout.bits(scores_shape, self.rate, self.among)
        context = attend(q, k, v, mask, *bits, rate=self.rate, fused=self.fused)
        merged = merge(context, self.heads * self.head_width)  # [B*T, D]
        return self.output.product(_rows(merged, read), mode.dtype)

    def _joint(self, inputs: Sequence[tf.Tensor], tokens: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        """Compute queries (times `scale`), keys and values [B, N, T, H] of x [B*T, D] by one product."""
        (x,) = inputs
        kernel, bias = self.joint_weights(dtype, scale(self.head_width))
        return split(add_bias(product(tf.cast(x, dtype), kernel), bias), tokens, self.heads)

    def _separate(self, inputs: Sequence[tf.Tensor], tokens: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        """Compute the same by three products, whose results lie in memory as cuDNN's attention reads them."""
        parts = ((self.query, scale(self.head_width)), (self.key, 1.0), (self.value, 1.0))
        products = [
            add_bias(converted_product(x, part.kernel * factor, dtype), part.bias * factor)
            for x, (part, factor) in zip(inputs, parts, strict=True)
        ]
        return [heads(y, tokens, self.heads) for y in products]

    def joint_weights(self, dtype: tf.DType, factor: float) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the kernel in dtype [D, 3 D] and the bias [3 D] of queries times `factor`, keys and values."""
        parts = ((self.query, factor), (self.key, 1.0), (self.value, 1.0))
        kernel = tf.concat([tf.cast(part.kernel * factor, dtype) for part, factor in parts], axis=1)
        return kernel, tf.concat([part.bias * factor for part, factor in parts], axis=0)

    def attend_to_relative_positions(self, init: Initializer, name: str) -> None:
        """Initialise queries and keys so that each head attends to one offset; needs `Initializer.sinusoids`."""
        heads, width = self.all_heads, self.all_heads * self.head_width
        offsets = relative_position_offsets(heads)
        self.query.kernel = init.relative_position_kernel(f"{name}/query/kernel", heads, width, offsets)
        self.key.kernel = init.relative_position_kernel(f"{name}/key/kernel", heads, width, [0] * heads)


class FeedForward(SubLayer):
    """Two dense layers with an activation between them."""

    def __init__(self, init: Initializer, name: str, config: ModelConfig) -> None:
        super().__init__(name, init.parts)
        self.inner = Dense(init, f"{name}/inner", config.hidden_size, config.intermediate_size)
        self.output = Dense(_residual_init(init, config), f"{name}/outer", config.intermediate_size, config.hidden_size)
        self.activation = fused_ops.activation(config.hidden_act)

    def __call__(self, inputs: Sequence[tf.Tensor], mode: Mode) -> tf.Tensor:
        """Compute GELU(x W1 + b1) W2 of x [R, D], the only input; the residual sum adds b2."""
        (x,) = inputs
        inner = self.activation(self.inner.product(x, mode.dtype), self.inner.bias)  # [R, F]
        return self.output.product(inner, mode.dtype)


class Layer(tf.Module):
    """Attention and feed-forward, each with a residual sum: x = norm(x + f(x)), or x = x + f(norm(x))."""

    def __init__(self, init: Initializer, name: str, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(init, f"{name}/attention", config)
        self.attention_norm = _norm(init, f"{name}/attention", config)
        self.mlp = FeedForward(init, f"{name}/mlp", config)
        self.mlp_norm = _norm(init, f"{name}/mlp", config)
        self.pre_norm, self.rate = config.norm_placement == "pre", config.hidden_dropout_prob

    def __call__(self, x: tf.Tensor, mode: Mode, mask: tf.Tensor, read: tf.Tensor | None = None) -> tf.Tensor:
        """x [B*T, D] float32, mask [B, 1, 1 or T, T] -> [R, D] float32, of the rows `read` [R] or of all.

        After its attention no token depends on another, so that only rows which are read need to be computed.
        """
        x = self._add(x, self.attention, self.attention_norm, mode, rows=read, mask=mask, read=read)
        return self._add(x, self.mlp, self.mlp_norm, mode)

    def _add(
        self,
        x: tf.Tensor,
        f: Attention | FeedForward,
        norm: LayerNorm,
        mode: Mode,
        rows: tf.Tensor | None = None,
        **more: tf.Tensor | None,
    ) -> tf.Tensor:
        """Return norm(x + dropout(f(x))), or x + dropout(f(norm(x))), of these rows of x; more: arguments of f."""
        inputs, x = (f.enter(norm(x)), x) if self.pre_norm else f.fork(x)
        x = _rows(x, rows)
        y = f.leave(mode.compiled(lambda *inputs: f(inputs, mode, **more))(*inputs))
        bits = mode.dropout.bits(tf.shape(x), self.rate)
        if self.pre_norm:
            return fused_ops.add_dropout(x, *y, *bits, rate=self.rate)
        return fused_ops.add_dropout_norm(x, *y, norm.gamma, norm.beta, *bits, rate=self.rate, epsilon=norm.epsilon)


class Encoder(tf.Module):
    """Embeddings and a stack of layers."""

    def __init__(self, config: ModelConfig, seed: int, parts: Parts = WHOLE) -> None:
        super().__init__()
        assert config.vocab_size > 0, "the vocabulary's size is resolved before the model is built"
        init = Initializer(seed, config.initializer_range, parts)
        self.config = config
        self.embeddings = Embeddings(init, config)
        self.layers = [Layer(init, f"layer_{number}", config) for number in range(config.num_hidden_layers)]
        if config.position_initializer == "sinusoidal":
            self.layers[0].attention.attend_to_relative_positions(init, "layer_0/attention")
        self.norm = _norm(init, "final", config) if config.norm_placement == "pre" else None

    def __call__(self, tokens: TokenBatch, mode: Mode, read: tf.Tensor | None = None) -> tf.Tensor:
        """Return the last hidden states, float32: [B, T, D], or [R, D] of the rows `read` [R] of [B*T, D]."""
        last = self._hidden_states(tokens, mode, read)[-1]
        return self._batched(last, tokens) if read is None else last

    def states(self, tokens: TokenBatch, mode: Mode) -> list[tf.Tensor]:
        """Return the outputs of the embeddings and of each layer, [B, T, D] float32."""
        return [self._batched(x, tokens) for x in self._hidden_states(tokens, mode, None)]

    def _hidden_states(self, tokens: TokenBatch, mode: Mode, read: tf.Tensor | None) -> list[tf.Tensor]:
        cache, last = mode.cache, len(self.layers) - 1
        mask = cache.mask(tf.shape(tokens.ids)[1]) if cache else tokens.attention_mask(self.config.causal)

        def embed() -> tf.Tensor:
            return self.embeddings(tokens, mode.dropout.branch(0))

        def run(x: tf.Tensor, number: int) -> tf.Tensor:
            return self.layers[number](x, mode.branch(number + 1), mask, read if number == last else None)

        layers = [functools.partial(run, number=number) for number in range(len(self.layers))]
        states = traversal.states(embed, layers, mode.groups, self.config.recompute_activations)
        if self.norm:
            states[-1] = self.norm(states[-1])
        return states

    def _batched(self, x: tf.Tensor, tokens: TokenBatch) -> tf.Tensor:
        return tf.reshape(x, [tf.shape(tokens.ids)[0], tf.shape(tokens.ids)[1], self.config.hidden_size])


def padding(mask: tf.Tensor) -> tf.Tensor:
    """Turn the mask [B, T] into what is added to scores [B, 1, 1, T]: no token attends to padding."""
    return (1.0 - tf.cast(mask, tf.float32))[:, None, None, :] * -1e4


def _other_instances(numbers: tf.Tensor) -> tf.Tensor:
    """Turn instance numbers [B, T] into what is added to scores [B, 1, T, T]: tokens attend to their own instance."""
    return tf.cast(numbers[:, None, :, None] != numbers[:, None, None, :], tf.float32) * -1e4


def _later(tokens: tf.Tensor) -> tf.Tensor:
    """Return what is added to scores [1, 1, T, T], for T `tokens`: none attends to a later one."""
    place = tf.range(tokens)
    return tf.cast(place > place[:, None], tf.float32)[None, None] * -1e4


def _rows(x: tf.Tensor, read: tf.Tensor | None) -> tf.Tensor:
    return x if read is None else lookup(x, read)


def _norm(init: Initializer, name: str, config: ModelConfig, width: int = 0) -> LayerNorm:
    return LayerNorm(init, f"{name}/layer_norm", width or config.hidden_size, config.layer_norm_epsilon)


def _residual_init(init: Initializer, config: ModelConfig) -> Initializer:
    """Return the initializer of the kernels whose products are added to the residual stream, two in each layer."""
    return init.scaled((2 * config.num_hidden_layers) ** -0.5) if config.norm_placement == "pre" else init


def variables(module: tf.Module) -> dict[str, tf.Variable]:
    """Return the module's trainable variables by name, sorted, so that all ranks have one order."""
    named = {variable.name.removesuffix(":0"): variable for variable in module.trainable_variables}
    assert len(named) == len(module.trainable_variables), "two variables have one name"
    return dict(sorted(named.items()))
