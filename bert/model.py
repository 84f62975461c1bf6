"""BERT's encoder (Devlin et al. 2019), written as its equations: post-layer-norm, learned positions, exact GELU.

Shapes: B batch, T tokens, D width, N heads, H head width, F feed-forward, V vocabulary. Between attention layers the
residual stream is kept as [B*T, D], so that every dense layer is one matrix product.

Weights are float32 masters. Matrix products are done in the compute type, everything else in float32: layer norm,
softmax and GELU need the precision, and where XLA fuses them the casts cost nothing.
"""

import zlib

import tensorflow as tf

from bert.config import ModelConfig
from bert.noise import Noise

LAYER_NORM_EPSILON = 1e-12


class Parameters:
    """Makes named variables; an initial value is a function of (seed, name), whatever the order of creation."""

    def __init__(self, seed: int, deviation: float) -> None:
        self.seed, self.deviation = seed, deviation

    def normal(self, name: str, *shape: int) -> tf.Variable:
        """Kernel or embedding: normal, truncated at two deviations."""
        seed = [self.seed, zlib.crc32(name.encode()) & 0x7FFFFFFF]
        value = tf.random.stateless_truncated_normal(shape, seed, stddev=self.deviation, alg="philox")
        return tf.Variable(value, name=name)

    def constant(self, name: str, value: float, *shape: int) -> tf.Variable:
        """Bias or layer-norm parameter."""
        return tf.Variable(tf.fill(shape, value), name=name)


class Dense(tf.Module):
    """y = x W + b, the product in the given type."""

    def __init__(self, make: Parameters, name: str, inputs: int, outputs: int) -> None:
        super().__init__()
        self.kernel = make.normal(f"{name}/kernel", inputs, outputs)
        self.bias = make.constant(f"{name}/bias", 0.0, outputs)

    def __call__(self, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:  # [M, inputs] -> [M, outputs] in dtype
        return tf.nn.bias_add(tf.matmul(tf.cast(x, dtype), tf.cast(self.kernel, dtype)), tf.cast(self.bias, dtype))


class LayerNorm(tf.Module):
    """Normalises the last axis."""

    def __init__(self, make: Parameters, name: str, width: int) -> None:
        super().__init__()
        self.gamma = make.constant(f"{name}/gamma", 1.0, width)
        self.beta = make.constant(f"{name}/beta", 0.0, width)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:  # [M, D] -> [M, D] float32
        mean = tf.reduce_mean(x, axis=-1, keepdims=True)
        centred = x - mean
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        return centred * (tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * self.gamma) + self.beta


class Embeddings(tf.Module):
    """Sum of word, position and segment embeddings, normalised."""

    def __init__(self, make: Parameters, config: ModelConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.word = make.normal("embeddings/word", config.vocab_size, width)  # [V, D]
        self.position = make.normal("embeddings/position", config.max_position_embeddings, width)
        self.segment = make.normal("embeddings/segment", config.type_vocab_size, width)
        self.norm = LayerNorm(make, "embeddings/layer_norm", width)
        self.rate = config.hidden_dropout_prob

    def __call__(self, ids: tf.Tensor, segments: tf.Tensor, noise: Noise) -> tf.Tensor:
        width, tokens = self.word.shape[1], tf.shape(ids)[1]
        # Few segments: a product with one-hot rows has a cheap gradient where gather's would scatter B*T rows into two.
        kinds = tf.matmul(tf.one_hot(segments, self.segment.shape[0]), self.segment)
        x = tf.gather(self.word, ids) + self.position[:tokens] + kinds  # [B, T, D]
        return noise.dropout(self.norm(tf.reshape(x, [-1, width])), self.rate)  # [B*T, D]


class Attention(tf.Module):
    """Multi-head self-attention with its output projection, residual and layer norm."""

    def __init__(self, make: Parameters, name: str, config: ModelConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads, self.head_width = config.num_attention_heads, width // config.num_attention_heads
        self.query = Dense(make, f"{name}/query", width, width)
        self.key = Dense(make, f"{name}/key", width, width)
        self.value = Dense(make, f"{name}/value", width, width)
        self.output = Dense(make, f"{name}/output", width, width)
        self.norm = LayerNorm(make, f"{name}/layer_norm", width)
        self.rates = config.attention_probs_dropout_prob, config.hidden_dropout_prob

    def __call__(self, x: tf.Tensor, mask: tf.Tensor, noise: Noise, dtype: tf.DType) -> tf.Tensor:
        """x [B*T, D], mask [B, 1, 1, T] -> [B*T, D]."""
        tokens = tf.shape(mask)[-1]

        def split(y: tf.Tensor) -> tf.Tensor:  # [B*T, D] -> [B, N, T, H]
            return tf.transpose(tf.reshape(y, [-1, tokens, self.heads, self.head_width]), [0, 2, 1, 3])

        y = tf.cast(x, dtype)
        q, k, v = split(self.query(y, dtype)), split(self.key(y, dtype)), split(self.value(y, dtype))
        scores = tf.cast(tf.matmul(q, k, transpose_b=True), tf.float32) * self.head_width**-0.5  # [B, N, T, T]
        weights = noise.dropout(tf.nn.softmax(scores + mask), self.rates[0])
        context = tf.transpose(tf.matmul(tf.cast(weights, dtype), v), [0, 2, 1, 3])  # [B, T, N, H]
        y = self.output(tf.reshape(context, [-1, self.heads * self.head_width]), dtype)
        return self.norm(x + noise.dropout(tf.cast(y, tf.float32), self.rates[1]))


class FeedForward(tf.Module):
    """Two dense layers with a GELU between, residual and layer norm."""

    def __init__(self, make: Parameters, name: str, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Dense(make, f"{name}/inner", config.hidden_size, config.intermediate_size)
        self.outer = Dense(make, f"{name}/outer", config.intermediate_size, config.hidden_size)
        self.norm = LayerNorm(make, f"{name}/layer_norm", config.hidden_size)
        self.rate = config.hidden_dropout_prob

    def __call__(self, x: tf.Tensor, noise: Noise, dtype: tf.DType) -> tf.Tensor:  # [B*T, D] -> [B*T, D]
        y = tf.nn.gelu(tf.cast(self.inner(x, dtype), tf.float32))
        y = tf.cast(self.outer(y, dtype), tf.float32)
        return self.norm(x + noise.dropout(y, self.rate))


class Encoder(tf.Module):
    """Embeddings and a stack of (attention, feed-forward) layers."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        assert config.vocab_size > 0, "the vocabulary's size is resolved before the model is built"
        make = Parameters(seed, config.initializer_range)
        self.config = config
        self.embeddings = Embeddings(make, config)
        names = [f"layer_{number}" for number in range(config.num_hidden_layers)]
        self.layers = [
            (Attention(make, f"{n}/attention", config), FeedForward(make, f"{n}/mlp", config)) for n in names
        ]

    def __call__(
        self,
        ids: tf.Tensor,  # [B, T] int32
        mask: tf.Tensor,  # [B, T] 1 for tokens, 0 for padding
        segments: tf.Tensor,  # [B, T] 0 or 1
        noise: Noise,
        dtype: tf.DType,
    ) -> tf.Tensor:  # [B, T, D] float32
        x = self.embeddings(ids, segments, noise)
        bias = (1.0 - tf.cast(mask, tf.float32))[:, None, None, :] * -1e4  # [B, 1, 1, T]
        for attention, feed_forward in self.layers:
            x = feed_forward(attention(x, bias, noise, dtype), noise, dtype)
        return tf.reshape(x, [tf.shape(ids)[0], tf.shape(ids)[1], self.config.hidden_size])


def variables(module: tf.Module) -> dict[str, tf.Variable]:
    """The module's variables by name, sorted, so that every rank sees one order."""
    found = {variable.name.removesuffix(":0"): variable for variable in module.trainable_variables}
    assert len(found) == len(module.trainable_variables), "two variables have one name"
    return dict(sorted(found.items()))
