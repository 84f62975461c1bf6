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

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert.config import ModelConfig
from bert.hardware import graphs
from bert.model import fused_ops
from bert.model.attention import attend, heads, merge, scale, split
from bert.model.cache import Cache
from bert.model.dropout import DropoutRng, apply_dropout
from bert.model.fused_ops import add_bias, converted_product, copies, product
from bert.model.initializers import Initializer, relative_position_offsets
from bert.model.lookup import lookup
from bert.model.parts import WHOLE, Parts


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


class Groups(NamedTuple):
    """Groups of layers, between which the backward pass can be interrupted."""

    first: tuple[int, ...]  # layer of each group, ascending; the first group begins with layer 0
    run: Callable[..., tf.Tensor]  # called with the function of the embeddings, and with that of each group and its x
    boundary: Callable[[tf.Tensor], tf.Tensor] = lambda x: x  # called with the states before each group and at the end
    last: tf.Tensor | None = None  # the last layer's output, if it is known: then nothing before it is computed
    recomputed: bool = False  # whether the backward pass computes each group again from the state before it


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


class Projection(NamedTuple):
    """The output of a sub-layer: product + bias. The residual sum, which reads it next, adds the bias in float32."""

    product: tf.Tensor  # [R, D] in the compute dtype
    bias: tf.Variable  # [D]


class Dense(tf.Module):
    """y = x W + b."""

    def __init__(self, init: Initializer, name: str, inputs: int, outputs: int) -> None:
        super().__init__()
        self.kernel = init.normal(f"{name}/kernel", inputs, outputs)
        self.bias = init.constant(f"{name}/bias", 0.0, outputs)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:  # [M, inputs] -> [M, outputs] float32
        return tf.nn.bias_add(tf.matmul(x, self.kernel), self.bias)

    def product(self, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Return x W [M, outputs], computed in `dtype`, without the bias: the next operation adds it in float32."""
        if x.dtype != dtype and fused_ops.has_gpu():
            return converted_product(x, self.kernel, dtype)
        return product(tf.cast(x, dtype), tf.cast(self.kernel, dtype))


class LayerNorm(tf.Module):
    """Layer norm over the last axis."""

    def __init__(self, init: Initializer, name: str, width: int, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.gamma = init.constant(f"{name}/gamma", 1.0, width)
        self.beta = init.constant(f"{name}/beta", 0.0, width)

    def __call__(self, x: tf.Tensor, *bits: tf.Tensor, rate: float = 0.0) -> tf.Tensor:
        """Normalise x [M, D] to float32 [M, D], then apply dropout if `bits` are given."""
        return fused_ops.layer_norm(x, self.gamma, self.beta, *bits, epsilon=self.epsilon, rate=rate)


class Embeddings(tf.Module):
    """Sum of word, position and, if the model has segments, segment embeddings."""

    def __init__(self, init: Initializer, config: ModelConfig) -> None:
        super().__init__()
        width, segments = config.hidden_size, config.type_vocab_size
        sinusoidal = config.position_initializer == "sinusoidal"
        words = init.words_beside_sinusoids if sinusoidal else init.normal
        positions = init.sinusoids if sinusoidal else init.normal
        self.word = words("embeddings/word", config.vocab_size, width)  # [V, D]
        self.position = positions("embeddings/position", config.max_position_embeddings, width)
        self.segment = init.normal("embeddings/segment", segments, width) if segments else None
        self.norm = _norm(init, "embeddings", config) if config.norm_placement == "post" else None
        self.rate, self.parts = config.hidden_dropout_prob, init.parts
        self.vocab_size = config.vocab_size

    def __call__(self, tokens: TokenBatch, dropout: DropoutRng) -> tf.Tensor:
        """Return the embeddings of all tokens [B*T, D], float32."""
        width, length = self.word.shape[1], tf.shape(tokens.ids)[1]
        position = self.position[:length] if tokens.positions is None else lookup(self.position, tokens.positions)
        x = self._words(tokens.ids) + position
        if self.segment is not None:
            # A product with one-hot rows: its gradient is cheap, where gather's would scatter B*T rows into two.
            x += tf.matmul(tf.one_hot(tokens.segments, self.segment.shape[0]), self.segment)
        x = tf.reshape(x, [-1, width])  # [B*T, D]
        bits = dropout.bits(tf.shape(x), self.rate)
        return self.norm(x, *bits, rate=self.rate) if self.norm else apply_dropout(x, bits, self.rate)

    def _words(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the word embeddings of ids [B, T], [B, T, D]."""
        if self.parts.count == 1:
            return lookup(self.word, ids)
        places = self.parts.places(ids, self.vocab_size)
        found = lookup(self.word, tf.maximum(places, 0))
        return self.parts.summed(found * tf.cast(places >= 0, tf.float32)[..., None], "embeddings/word")


class Attention(tf.Module):
    """Multi-head self-attention with its output projection."""

    def __init__(self, init: Initializer, name: str, config: ModelConfig) -> None:
        super().__init__()
        width, self.parts, self.name_in_model = config.hidden_size, init.parts, name
        self.all_heads, self.head_width = config.num_attention_heads, width // config.num_attention_heads
        self.first_head, last_head = self.parts.share(self.all_heads)
        self.heads = last_head - self.first_head  # of this device
        self.query = Dense(init, f"{name}/query", width, width)
        self.key = Dense(init, f"{name}/key", width, width)
        self.value = Dense(init, f"{name}/value", width, width)
        self.output = Dense(_residual_init(init, config), f"{name}/output", width, width)
        self.rate, self.fused = config.attention_probs_dropout_prob, config.fused_attention
        self.num_inputs = 3 if self.fused else 1

    def __call__(
        self, inputs: Sequence[tf.Tensor], mask: tf.Tensor, mode: Mode, read: tf.Tensor | None = None
    ) -> Projection:
        """Attend from each token to all that `mask` [B, 1, 1 or T, T] allows, or with a cache [B, 1, T, C].

        inputs: `num_inputs` copies of x [B*T, D]. read: rows [R] whose output is computed; None computes all.
        """

        def compute(*inputs: tf.Tensor) -> tf.Tensor:
            tokens = tf.shape(mask)[-2 if mode.cache else -1]
            q, k, v = (self._separate if self.fused else self._joint)(inputs, tokens, mode.dtype)
            if mode.cache:
                k, v = mode.cache.extend(k, v)
            scores_shape = tf.concat([tf.shape(q)[:3], tf.shape(k)[2:3]], axis=0)  # [B, N, T, T]
            bits = mode.dropout.bits(scores_shape, self.rate, self._heads_here())
            width = self.heads * self.head_width
            context = merge(attend(q, k, v, mask, *bits, rate=self.rate, fused=self.fused), width)
            return self.output.product(_rows(context, read), mode.dtype)

        y = self.parts.summed(mode.compiled(compute)(*inputs), f"{self.name_in_model}/sum")
        return Projection(y, self.output.bias)

    def inputs(self, x: tf.Tensor) -> list[tf.Tensor]:
        """Return the copies of x [B*T, D] that this sub-layer takes."""
        return copies(self.parts.copied(x, f"{self.name_in_model}/input"), self.num_inputs)

    def _heads_here(self) -> tuple[int, int] | None:
        """Return the first head of this device and the number of all, or None if it has all."""
        return None if self.parts.count == 1 else (self.first_head, self.all_heads)

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


class FeedForward(tf.Module):
    """Two dense layers with an activation between them."""

    def __init__(self, init: Initializer, name: str, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Dense(init, f"{name}/inner", config.hidden_size, config.intermediate_size)
        self.output = Dense(_residual_init(init, config), f"{name}/outer", config.intermediate_size, config.hidden_size)
        self.activation = fused_ops.ACTIVATIONS[config.hidden_act]
        self.parts, self.name_in_model = init.parts, name

    def __call__(self, x: tf.Tensor, mode: Mode) -> Projection:
        """Compute GELU(x W1 + b1) W2 of x [R, D], with b2 left to the residual sum."""

        def compute(x: tf.Tensor) -> tf.Tensor:
            inner = self.activation(self.inner.product(x, mode.dtype), self.inner.bias)
            return self.output.product(inner, mode.dtype)

        x = self.parts.copied(x, f"{self.name_in_model}/input")
        return Projection(self.parts.summed(mode.compiled(compute)(x), f"{self.name_in_model}/sum"), self.output.bias)


class Layer(tf.Module):
    """Attention and feed-forward, each with a residual sum: x = norm(x + f(x)), or x = x + f(norm(x))."""

    def __init__(self, init: Initializer, name: str, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(init, f"{name}/attention", config)
        self.attention_norm = _norm(init, f"{name}/attention", config)
        self.mlp = FeedForward(init, f"{name}/mlp", config)
        self.mlp_norm = _norm(init, f"{name}/mlp", config)
        self.pre_norm, self.rate = config.norm_placement == "pre", config.hidden_dropout_prob

    def __call__(self, x: tf.Tensor, mask: tf.Tensor, mode: Mode, read: tf.Tensor | None = None) -> tf.Tensor:
        """x [B*T, D] float32, mask [B, 1, 1 or T, T] -> [R, D] float32, of the rows `read` [R] or of all.

        After its attention no token depends on another, so that only rows which are read need to be computed.
        `copies` decides in which order gradients by x are added.
        """
        if self.pre_norm:
            inputs = self.attention.inputs(self.attention_norm(x))
            x = self._add(_rows(x, read), self.attention(inputs, mask, mode, read), mode)
            return self._add(x, self.mlp(self.mlp_norm(x), mode), mode)
        if self.attention.parts.count > 1:  # one sum for the gradients of all inputs
            inner, x = copies(x, 2)
            inputs = self.attention.inputs(inner)
        else:
            *inputs, x = copies(x, self.attention.num_inputs + 1)
        x = self._add_norm(_rows(x, read), self.attention(inputs, mask, mode, read), self.attention_norm, mode)
        inner, x = copies(x, 2)
        return self._add_norm(x, self.mlp(inner, mode), self.mlp_norm, mode)

    def _add(self, x: tf.Tensor, y: Projection, mode: Mode) -> tf.Tensor:
        """Return x + dropout(y)."""
        bits = mode.dropout.bits(tf.shape(x), self.rate)
        return fused_ops.add_dropout(x, *y, *bits, rate=self.rate)

    def _add_norm(self, x: tf.Tensor, y: Projection, norm: LayerNorm, mode: Mode) -> tf.Tensor:
        """Return norm(x + dropout(y))."""
        bits = mode.dropout.bits(tf.shape(x), self.rate)
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
        causal, cache = self.config.causal, mode.cache
        mask = cache.mask(tf.shape(tokens.ids)[1]) if cache else tokens.attention_mask(causal)
        if mode.groups:
            states = [self._run_groups(mode.groups, tokens, mask, mode, read)]
        else:
            states = [self.embeddings(tokens, mode.dropout)]
            for number in range(len(self.layers)):
                states.append(self._run_layer(number, states[-1], mask, mode, read, self.config.recompute_activations))
        if self.norm:
            states[-1] = self.norm(states[-1])
        return states

    def _run_layer(
        self, number: int, x: tf.Tensor, mask: tf.Tensor, mode: Mode, read: tf.Tensor | None, recompute: bool
    ) -> tf.Tensor:
        """Run layer `number`; the last one computes only the rows that are read.

        recompute: in the backward pass, instead of storing what lies within the layer.
        """
        layer, rows = self.layers[number], read if number == len(self.layers) - 1 else None

        def run(x: tf.Tensor) -> tf.Tensor:
            return layer(x, mask, mode.branch(number + 1), rows)  # branch 0 is the embeddings'

        return (tf.recompute_grad(run) if recompute else run)(x)

    def _run_groups(
        self, groups: Groups, tokens: TokenBatch, mask: tf.Tensor, mode: Mode, read: tf.Tensor | None
    ) -> tf.Tensor:
        """Return the output of the last layer."""
        if groups.last is not None:
            return groups.last
        x = groups.run(lambda: self.embeddings(tokens, mode.dropout.branch(0)))
        for group in map(range, groups.first, (*groups.first[1:], len(self.layers))):
            recompute = self.config.recompute_activations and not (groups.recomputed and len(group) == 1)

            def run(x: tf.Tensor, group: range = group, recompute: bool = recompute) -> tf.Tensor:
                for number in group:
                    x = self._run_layer(number, x, mask, mode, read, recompute)
                return x

            x = groups.run(run, groups.boundary(x))
        return groups.boundary(x)

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


def _norm(init: Initializer, name: str, config: ModelConfig) -> LayerNorm:
    return LayerNorm(init, f"{name}/layer_norm", config.hidden_size, config.layer_norm_epsilon)


def _residual_init(init: Initializer, config: ModelConfig) -> Initializer:
    """Return the initializer of the kernels whose products are added to the residual stream, two in each layer."""
    return init.scaled((2 * config.num_hidden_layers) ** -0.5) if config.norm_placement == "pre" else init


def variables(module: tf.Module) -> dict[str, tf.Variable]:
    """Return the module's trainable variables by name, sorted, so that all ranks have one order."""
    named = {variable.name.removesuffix(":0"): variable for variable in module.trainable_variables}
    assert len(named) == len(module.trainable_variables), "two variables have one name"
    return dict(sorted(named.items()))
