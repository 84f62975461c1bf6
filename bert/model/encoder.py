"""BERT's encoder (Devlin et al. 2019), and GPT-2's decoder (Radford et al. 2019), which is the same with a causal mask.

Layer norm follows each residual sum, as published, or precedes each sub-layer, which trains deep models more stably
(Shoeybi et al. 2019, Megatron-LM, section 5.3). In the second form the embeddings are not normalised and the last
layer's output is.

Later encoders are choices of the configuration: rotary positions (rotary.py), layers whose attention is local, gated
feed-forward layers, no biases, and a norm of the embeddings in place of the first attention's, as in ModernBERT (Warner
et al. 2024), or RMSNorm as in NeoBERT (Le Breton et al. 2025).

Shapes: B batch, T tokens, D width, N heads, H head width, F feed-forward, V vocabulary, R rows that are computed.
Between attention layers the residual stream is [B*T, D], so that every dense layer is one matrix product.

Weights are float32 masters. Matrix products are computed in the compute dtype; layer norm, softmax, GELU and residual
sums in float32. In memory the residual stream and its gradients have the type `Mode.residual`. XLA compiles what stands
between the products (fused_ops.py). The products are left to TensorFlow's libraries, which are faster on CPUs, unless
the whole step is compiled for a GPU.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from bert.core.config import ModelConfig
from bert.hardware import graphs
from bert.model import fused_ops, kernels, traversal
from bert.model.attention import attend, heads, merge, scale, split
from bert.model.dense import Dense, LayerNorm, RMSNorm, SubLayer, dense_product, make_dense, make_norm
from bert.model.dropout import DropoutRng, apply_dropout
from bert.model.fused_ops import add_bias, converted_product, product
from bert.model.initializers import Initializer
from bert.model.lookup import divided_lookup, lookup
from bert.model.model_shard import UNSHARDED, Parts
from bert.model.rotary import rotation
from bert.model.traversal import Groups
from bert.model.weights import WORDS


class TokenBatch(NamedTuple):
    """Token sequences, padded or packed to one length."""

    ids: tf.Tensor  # [B, T] int32
    mask: tf.Tensor | None = None  # [B, T] 1 for tokens, 0 for padding; if packed, numbers of instances; None: all 1
    segments: tf.Tensor | None = None  # [B, T], from 0; None if the model has no segments
    positions: tf.Tensor | None = None  # [B, T] if packed: places in the instance, from 0

    def attention_mask(self, causal: bool = False) -> tf.Tensor:
        """Return what is added to attention scores [B or 1, 1, 1 or T, T], float32: 0, or -10,000 to forbid attention.

        causal: no token attends to a later one.
        """
        if causal:
            later = _later(tf.shape(self.ids)[1])
            return later if self.mask is None else tf.minimum(later, self.attention_mask())
        if self.mask is None:
            return tf.zeros([1, 1, 1, tf.shape(self.ids)[1]])
        return padding(self.mask) if self.positions is None else _other_instances(self.mask)


class AttentionScope(NamedTuple):
    """Which tokens a layer's attention reads, and how it encodes their positions."""

    mask: tf.Tensor  # added to scores: [B, 1, 1 or T, T], or with a cache [B, 1, T, C]
    rotation: Callable[[tf.Tensor], tf.Tensor] | None = None  # of queries and keys; None: none


class Observed:
    """The tokens that an encoder reads and the states that it computes, for losses of its layers."""

    def __init__(self, last: bool) -> None:
        """last: whether to compute the last layer's states of all tokens, even if only some are read."""
        self.last = last
        self.tokens: TokenBatch | None = None
        self.states: list[tf.Tensor] = []  # of the embeddings and each layer, [B*T, D]; the last one as `last` says


class Cache(Protocol):
    """Keys and values of the tokens before, for each layer. A forward pass appends the new tokens' keys and values."""

    def branch(self, number: int) -> "Cache":
        """Return the cache of branch `number` of the model: 1 is layer 0, 2 is layer 1, ..."""

    def mask(self, tokens: tf.Tensor) -> tf.Tensor:
        """Return what is added to the scores of `tokens` new tokens T with all C places of the cache [B, 1, T, C]."""

    def extend(self, keys: tf.Tensor, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Append the keys and values of new tokens [B, N, T, H] to the layer's; return all of them [B, N, C, H]."""


class Mode(NamedTuple):
    """How a forward pass is computed."""

    dtype: tf.DType  # of matrix products
    dropout: DropoutRng
    groups: Groups | None = None  # layers whose gradients are computed together; None: all
    compile_parts: bool = False  # compile what each sub-layer computes between two sums over the model's parts
    cache: Cache | None = None  # of the tokens before these (extensions/gpt/cache.py)
    observed: Observed | None = None  # where an encoder leaves what it reads and computes; None: nowhere
    residual: tf.DType = tf.float32  # of the residual stream between operations

    def branch(self, number: int) -> "Mode":
        """Return the mode of branch `number` of the model, with its own dropout masks, keys and values."""
        return self._replace(dropout=self.dropout.branch(number), cache=self.cache and self.cache.branch(number))

    def compiled(self, function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        """Return the function, compiled by XLA if `compile_parts` is set."""
        return graphs.function(function, jit_compile=True) if self.compile_parts else function


class Embeddings(tf.Module):
    """Sum of word embeddings, learned position embeddings if any, and segment embeddings if any.

    If the layers have another width, the sum is projected to it.
    """

    def __init__(self, init: Initializer, config: ModelConfig) -> None:
        super().__init__()
        self.word = init.variable(WORDS)  # [V, D]
        self.position, self.segment = (
            init.variable(name) if init.has(name) else None for name in ("embeddings/position", "embeddings/segment")
        )
        self.norm, self.projection = make_norm(init, "embeddings"), make_dense(init, "embeddings/projection")
        self.rate, self.parts = config.hidden_dropout_prob, init.parts
        self.vocab_size = config.vocab_size

    def __call__(self, tokens: TokenBatch, dropout: DropoutRng) -> tf.Tensor:
        """Return the embeddings of all tokens [B*T, D], float32."""
        x = self.unprojected(tokens, dropout)
        return x if self.projection is None else self.projection(x)

    def unprojected(self, tokens: TokenBatch, dropout: DropoutRng, prefix: str = "") -> tf.Tensor:
        """Return the embeddings before the projection, [B*T, E] float32.

        prefix: of the encoder that reads them. It makes the name of the sum over the parts of a divided model unique.
        """
        width, length = self.word.shape[1], tf.shape(tokens.ids)[1]
        x = divided_lookup(self.word, tokens.ids, self.vocab_size, self.parts, f"{prefix}{WORDS}")
        if self.position is not None:
            x += self.position[:length] if tokens.positions is None else lookup(self.position, tokens.positions)
        if self.segment is not None:
            # A product with one-hot rows: its gradient is cheap, where gather's would scatter B*T rows into two.
            rows = self.segment.shape[0]
            segments = tokens.segments if rows > 1 else tf.zeros_like(tokens.segments)  # one row is for all texts
            x += tf.matmul(tf.one_hot(segments, rows), self.segment)
        x = tf.reshape(x, [-1, width])  # [B*T, D]
        bits = dropout.bits(tf.shape(x), self.rate)
        return self.norm(x, *bits, rate=self.rate) if self.norm else apply_dropout(x, bits, self.rate)


class SharedEmbeddings(tf.Module):
    """The embeddings of another encoder, with a separate projection if these layers have another width."""

    def __init__(self, init: Initializer, prefix: str, shared: Embeddings) -> None:
        super().__init__()
        self.shared, self.word, self.prefix = shared, shared.word, prefix
        self.projection = make_dense(init, f"{prefix}projection")

    def __call__(self, tokens: TokenBatch, dropout: DropoutRng) -> tf.Tensor:
        """Return the embeddings of all tokens [B*T, D], float32."""
        x = self.shared.unprojected(tokens, dropout, self.prefix)
        return x if self.projection is None else self.projection(x)


class Attention(SubLayer):
    """Multi-head self-attention with its output projection."""

    def __init__(self, init: Initializer, name: str, config: ModelConfig) -> None:
        super().__init__(name, init.parts, num_inputs=3 if config.fused_attention else 1)
        width = config.hidden_size
        self.all_heads, self.head_width = config.num_attention_heads, width // config.num_attention_heads
        self.heads, self.among = init.parts.heads(self.all_heads)
        self.query, self.key = Dense(init, f"{name}/query"), Dense(init, f"{name}/key")
        self.value, self.output = Dense(init, f"{name}/value"), Dense(init, f"{name}/output")
        self.rate, self.kernel = config.attention_probs_dropout_prob, kernels.asked(config, "attention")

    def __call__(
        self, inputs: Sequence[tf.Tensor], mode: Mode, scope: AttentionScope, read: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Attend from each token to all tokens that `scope` allows.

        inputs: `num_inputs` copies of x [B*T, D]. read: rows [R] whose output is computed; None: all rows. Return the
        product with the output kernel, [R, D].
        """
        mask = scope.mask
        q, k, v = self.projected(inputs, mode, scope)
        if mode.cache:
            k, v = mode.cache.extend(k, v)
        scores_shape = tf.concat([tf.shape(q)[:3], tf.shape(k)[2:3]], axis=0)  # [B, N, T, T]
        # With dropout, lengths that the kernels do not take are computed with the same masks by the plain path.
        kernel = self.kernel if self.kernel and self.kernel.supports(q.shape[2], self.head_width, self.rate) else None
        draw, compute = (kernel.bits, kernel.compute) if kernel else (DropoutRng.bits, attend)
        bits = draw(mode.dropout, scores_shape, self.rate, self.among)
        context = compute(q, k, v, mask, *bits, rate=self.rate)
        merged = merge(context, self.heads * self.head_width)  # [B*T, D]
        return self.output.product(_rows(merged, read), mode.dtype)

    def projected(self, inputs: Sequence[tf.Tensor], mode: Mode, scope: AttentionScope) -> tuple[tf.Tensor, ...]:
        """Return the queries (times `scale`), keys and values of the inputs [B, N, T, H]."""
        mask, rotate = scope
        tokens = tf.shape(mask)[-2 if mode.cache else -1]
        q, k, v = (self._separate if self.kernel else self._joint)(inputs, tokens, mode.dtype)
        return (rotate(q), rotate(k), v) if rotate else (q, k, v)

    def _joint(self, inputs: Sequence[tf.Tensor], tokens: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        """Compute queries (times `scale`), keys and values [B, N, T, H] from x [B*T, D] in one product."""
        (x,) = inputs
        kernel, bias = self.joint_weights(dtype, scale(self.head_width))
        return split(add_bias(product(tf.cast(x, dtype), kernel), bias), tokens, self.heads)

    def _separate(self, inputs: Sequence[tf.Tensor], tokens: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        """Compute the same in three products. Their results have the memory layout that cuDNN's attention reads."""
        parts = ((self.query, scale(self.head_width)), (self.key, 1.0), (self.value, 1.0))
        products = [
            add_bias(converted_product(x, part.kernel * factor, dtype), part.bias * factor)
            for x, (part, factor) in zip(inputs, parts, strict=True)
        ]
        return [heads(y, tokens, self.heads) for y in products]

    def joint_weights(self, dtype: tf.DType, factor: float) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the joint kernel [D, 3 D] in `dtype` and bias [3 D] of queries, keys and values.

        The weights of the queries are multiplied by `factor`.
        """
        parts = ((self.query, factor), (self.key, 1.0), (self.value, 1.0))
        kernel = tf.concat([tf.cast(part.kernel * factor, dtype) for part, factor in parts], axis=1)
        return kernel, tf.concat([part.bias * factor for part, factor in parts], axis=0)


class FeedForward(SubLayer):
    """Two dense layers with an activation between them; if gated, a third dense layer multiplies the activation."""

    def __init__(self, init: Initializer, name: str, config: ModelConfig) -> None:
        super().__init__(name, init.parts)
        self.inner, self.gate = Dense(init, f"{name}/inner"), make_dense(init, f"{name}/gate")
        self.output = Dense(init, f"{name}/outer")
        self.activation = fused_ops.activation(config.hidden_act)
        self.gated_activation = fused_ops.gated_activation(config.hidden_act)
        self.kernel = kernels.asked(config, "feed_forward")

    def __call__(self, inputs: Sequence[tf.Tensor], mode: Mode) -> tf.Tensor:
        """Return f(x) W2 for the only input x [R, D]; the residual sum adds b2.

        f(x) is GELU(x W1 + b1), or another activation. If gated, it is GELU(x W1 + b1) * (x V + c).
        """
        (x,) = inputs
        if self.kernel and self.kernel.supports(x.shape[0], *self.inner.weight.shape):
            return self.kernel.compute(x, self.inner.kernel, self.inner.bias, self.output.kernel, mode.dtype)
        if self.gate is None:
            inner = self.activation(self.inner.product(x, mode.dtype), self.inner.bias)  # [R, F]
        else:
            joint = dense_product(x, tf.concat([self.inner.kernel, self.gate.kernel], axis=1), mode.dtype)  # [R, 2 F]
            inner = self.gated_activation(joint, self.inner.bias, self.gate.bias)
        return self.output.product(inner, mode.dtype)


class Layer(tf.Module):
    """Attention and feed-forward, each with a residual sum: x = norm(x + f(x)), or x = x + f(norm(x))."""

    def __init__(self, init: Initializer, name: str, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(init, f"{name}/attention", config)
        self.mlp = FeedForward(init, f"{name}/mlp", config)
        self.attention_norm, self.mlp_norm = make_norm(init, f"{name}/attention"), make_norm(init, f"{name}/mlp")
        self.pre_norm, self.rate = config.norm_placement == "pre", config.hidden_dropout_prob
        self.parts, self.kernel = init.parts, kernels.asked(config, "norm")

    def __call__(
        self,
        x: tf.Tensor,
        mode: Mode,
        scope: AttentionScope,
        read: tf.Tensor | None = None,
        between: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """Return the layer's output for x [B*T, D] in x's type, [R, D]: the rows `read` [R], or all rows.

        After the attention no token depends on another. So only the rows that are read need to be computed. between:
        what a decoder does between the two sub-layers.
        """
        x = self._add(x, self.attention, self.attention_norm, mode, rows=read, scope=scope, read=read)
        x = between(x) if between else x
        return self._add(x, self.mlp, self.mlp_norm, mode)

    def _add(
        self,
        x: tf.Tensor,
        f: Attention | FeedForward,
        norm: LayerNorm | RMSNorm | None,
        mode: Mode,
        rows: tf.Tensor | None = None,
        **more: Any,
    ) -> tf.Tensor:
        """Return norm(x + dropout(f(x))), or x + dropout(f(norm(x))), for `rows` of x; None: all rows.

        more: further arguments of f.
        """
        inputs, x = (f.copy_input(norm(x)), x) if self.pre_norm and norm else f.split_residual(x)
        x = _rows(x, rows)
        y = f.sum_shards(mode.compiled(lambda *inputs: f(inputs, mode, **more))(*inputs))
        if self.pre_norm:
            return fused_ops.add_dropout(x, *y, *mode.dropout.bits(tf.shape(x), self.rate), rate=self.rate)
        assert isinstance(norm, LayerNorm), "a layer whose norms follow its sub-layers has two layer norms"
        # Numbers of rows that the kernels do not take are computed with the same masks by the plain path.
        kernel = self.kernel if self.kernel and self.kernel.supports(*x.shape) else None
        bits = (kernel.bits if kernel else DropoutRng.bits)(mode.dropout, tf.shape(x), self.rate)
        settings = {"rate": self.rate, "epsilon": norm.epsilon}
        if kernel:
            compiled = mode.compiled(functools.partial(kernel.compute, **settings))
            return compiled(x, *y, norm.gamma, norm.beta, *bits)
        return fused_ops.add_dropout_norm(x, *y, norm.gamma, norm.beta, *bits, **settings)


class Encoder(tf.Module):
    """Embeddings and a stack of layers."""

    def __init__(
        self,
        config: ModelConfig,
        seed: int,
        parts: Parts = UNSHARDED,
        shared: Embeddings | None = None,
        prefix: str = "",
    ) -> None:
        """shared: embeddings of another encoder to use here. prefix: of the names of this encoder's own variables."""
        super().__init__()
        assert config.vocab_size > 0, "the vocabulary's size is resolved before the model is built"
        init = Initializer(config, seed, parts, prefix=prefix)
        self.config = config
        self.embeddings: Embeddings | SharedEmbeddings = (
            SharedEmbeddings(init, prefix, shared) if shared else Embeddings(init, config)
        )
        self.layers = [Layer(init, f"{prefix}layer_{number}", config) for number in range(config.num_hidden_layers)]
        self.norm = make_norm(init, "final")

    def __call__(self, tokens: TokenBatch, mode: Mode, read: tf.Tensor | None = None) -> tf.Tensor:
        """Return the last hidden states, float32: [B, T, D], or only the rows `read` [R] of [B*T, D], as [R, D]."""
        whole = mode.observed is not None and mode.observed.last
        states = self._hidden_states(tokens, mode, None if whole else read)
        if mode.observed:
            mode.observed.tokens, mode.observed.states = tokens, [tf.cast(x, tf.float32) for x in states]
        last = tf.cast(_rows(states[-1], read) if whole else states[-1], tf.float32)
        return self._batched(last, tokens) if read is None else last

    def states(self, tokens: TokenBatch, mode: Mode) -> list[tf.Tensor]:
        """Return the outputs of the embeddings and of each layer, [B, T, D] float32."""
        return [self._batched(tf.cast(x, tf.float32), tokens) for x in self._hidden_states(tokens, mode, None)]

    def _hidden_states(self, tokens: TokenBatch, mode: Mode, read: tf.Tensor | None) -> list[tf.Tensor]:
        cache, last = mode.cache, len(self.layers) - 1
        if cache:
            scopes = [AttentionScope(cache.mask(tf.shape(tokens.ids)[1]))] * len(self.layers)
        else:
            scopes = attention_scopes(self.config, tokens)

        def embed() -> tf.Tensor:
            return tf.cast(self.embeddings(tokens, mode.dropout.branch(0)), mode.residual)

        def run(x: tf.Tensor, number: int) -> tf.Tensor:
            return self.layers[number](x, mode.branch(number + 1), scopes[number], read if number == last else None)

        layers = [functools.partial(run, number=number) for number in range(len(self.layers))]
        states = traversal.states(embed, layers, mode.groups, self.config.recompute_activations)
        if self.norm:
            states[-1] = self.norm(states[-1])
        return states

    def projected(self, observed: Observed, number: int, mode: Mode) -> tuple[tf.Tensor, ...]:
        """Return queries (times `attention.scale`), keys and values [B, N, T, H] of layer `number`.

        They are computed again from the states that `observed` holds, so the graph has these products twice.
        """
        assert observed.tokens is not None, "the encoder has computed"
        layer, scope = self.layers[number], attention_scopes(self.config, observed.tokens)[number]
        x = observed.states[number]
        x = layer.attention_norm(x) if layer.pre_norm and layer.attention_norm else x
        return layer.attention.projected(layer.attention.copy_input(x), mode, scope)

    def _batched(self, x: tf.Tensor, tokens: TokenBatch) -> tf.Tensor:
        return tf.reshape(x, [tf.shape(tokens.ids)[0], tf.shape(tokens.ids)[1], self.config.hidden_size])


def attention_scopes(config: ModelConfig, tokens: TokenBatch) -> list[AttentionScope]:
    """Return the attention scope of each layer."""
    everywhere, count = tokens.attention_mask(config.causal), tf.shape(tokens.ids)[1]
    positions = tf.range(count)[None] if tokens.positions is None else tokens.positions

    def make(local: bool, base: float | None) -> AttentionScope:
        mask = tf.minimum(everywhere, _beyond(count, config.local_window)) if local else everywhere
        width = config.hidden_size // config.num_attention_heads
        return AttentionScope(mask, None if base is None else rotation(positions, base, width))

    return config.of_layers(make)


def padding(mask: tf.Tensor) -> tf.Tensor:
    """Return what is added to scores [B, 1, 1, T] so that no token attends to padding. mask: [B, T]."""
    return (1.0 - tf.cast(mask, tf.float32))[:, None, None, :] * -1e4


def _other_instances(numbers: tf.Tensor) -> tf.Tensor:
    """Return what is added to scores [B, 1, T, T] so that tokens attend within their instance. numbers: [B, T]."""
    return tf.cast(numbers[:, None, :, None] != numbers[:, None, None, :], tf.float32) * -1e4


def _later(tokens: tf.Tensor) -> tf.Tensor:
    """Return what is added to scores [1, 1, T, T] so that no token attends to a later one. tokens: T."""
    place = tf.range(tokens)
    return tf.cast(place > place[:, None], tf.float32)[None, None] * -1e4


def _beyond(tokens: tf.Tensor, window: int) -> tf.Tensor:
    """Return what is added to scores [1, 1, T, T] so that no token attends more than `window` tokens away. tokens: T.

    The tokens of a packed instance are contiguous, so their distances are those in the text itself.
    """
    place = tf.range(tokens)
    return tf.cast(tf.abs(place - place[:, None]) > window, tf.float32)[None, None] * -1e4


def _rows(x: tf.Tensor, read: tf.Tensor | None) -> tf.Tensor:
    return x if read is None else lookup(x, read)


def variables(module: tf.Module) -> dict[str, tf.Variable]:
    """Return the module's trainable variables by name, sorted by name, so that all ranks have the same order."""
    named = {variable.name.removesuffix(":0"): variable for variable in module.trainable_variables}
    assert len(named) == len(module.trainable_variables), "two variables have one name"
    return dict(sorted(named.items()))
