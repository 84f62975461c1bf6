"""Dropout without state: each mask is a function of (seed, step, micro-batch, layer, place in the layer).

A resumed run therefore has the masks of the uninterrupted run, and a micro-batch has the same masks on every rank.
"""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from bert.hardware import graphs
from bert.hardware.devices import has_gpu

PLACES_PER_BRANCH = 64  # masks in one branch (a layer, or the embeddings)
MICRO_BATCHES = 2**24  # of one update, at most
LEVELS = 256  # eight random bits per element cost a quarter of the generator's work for 32 bits
ROUNDS, MULTIPLIER, WEYL = 7, 0xD256D193, 0x9E3779B9


class DropoutRng:
    """Source of the dropout masks of one forward pass. Each call of `bits` returns random bytes for the next mask."""

    def __init__(self, seed: tf.Tensor | None, unfolded: bool = False) -> None:
        """seed: [2] int64, unique to (run, step, micro-batch); None: inference, without dropout.

        unfolded: keep TensorFlow from folding the counters of the masks into constants. They would take some hundred
        megabytes in a program that XLA compiles outside a loop.
        """
        self.seed, self.unfolded, self.place = seed, unfolded, 0

    def branch(self, number: int) -> "DropoutRng":
        """Return the source for branch `number` of the model: 0 is the embeddings, 1 is layer 0, ...

        Each call with the same number returns a source of the same masks.
        """
        if self.seed is None:
            return DropoutRng(None)
        return DropoutRng(self.seed + tf.constant([number * PLACES_PER_BRANCH, 0], tf.int64), self.unfolded)

    def update(self) -> tf.Tensor:
        """Return a seed [2] int64 of this branch that all micro-batches of an update share; zeros without a seed."""
        if self.seed is None:
            return tf.zeros([2], tf.int64)
        return tf.stack([self.seed[0], self.seed[1] // MICRO_BATCHES])

    def bits(self, shape: tf.Tensor, rate: float, heads: tuple[int, int] | None = None) -> tuple[tf.Tensor, ...]:
        """Return random bytes for `apply_dropout`: one uint8 tensor of this shape, or () if nothing is dropped.

        heads: if `shape` is [B, n, T, T] for some of the N attention heads, the number of the first one, and N. The
        bytes are then the same as those heads have in the bytes for all heads [B, N, T, T].
        """
        seed = self.next_seed(rate)
        if seed is None:
            return ()
        if heads:
            return (_bytes_of_heads(seed, shape, *heads),)
        size = tf.reduce_prod(shape)
        words = random_words(seed, (size + 7) // 8, self.unfolded)
        each = tf.reshape(tf.bitcast(words, tf.uint8), [-1])
        return (tf.reshape((_materialised(each) if has_gpu() else each)[:size], shape),)

    def next_seed(self, rate: float) -> tf.Tensor | None:
        """Return the seed [2] int64 of the next mask, or None if nothing is dropped."""
        if self.seed is None or dropped_levels(rate) == 0:
            return None
        self.place += 1
        return self.seed + tf.constant([self.place, 0], tf.int64)


@graphs.function(jit_compile=True)
def random_words(seed: tf.Tensor, count: tf.Tensor, unfolded: bool = False) -> tf.Tensor:
    """Return `count` random numbers [count] uint64 that depend on the seed [2] int64 only.

    unfolded: as in `DropoutRng`.
    """
    counters = tf.range(count)
    return _words_at(seed, gen_xla_ops.xla_optimization_barrier(input=[counters])[0] if unfolded else counters)


def _words_at(seed: tf.Tensor, counters: tf.Tensor) -> tf.Tensor:
    """Return one random number for each of the counters [M], [M] uint64. Call this within a compiled function."""
    (a, b), (c, d) = (tf.unstack(half) for half in tf.unstack(tf.bitcast(seed, tf.uint32)))
    stream, key = philox(*philox(a, b, c), d)
    x, y = philox(tf.cast(counters, tf.uint32), tf.fill([tf.size(counters)], stream), key)
    return tf.bitwise.left_shift(tf.cast(x, tf.uint64), tf.constant(32, tf.uint64)) + tf.cast(y, tf.uint64)


def _bytes_of_heads(seed: tf.Tensor, shape: tf.Tensor, first: int, whole: int) -> tf.Tensor:
    """Return the bytes [B, n, T, T] of n heads: those from head `first` on, among `whole` heads.

    The bytes of a sequence's heads are contiguous in the stream, but may begin within a 64-bit word.
    """
    batch, count, rows, columns = tf.unstack(shape)
    pairs = rows * columns  # in one head
    begin = (tf.range(batch) * whole + first) * pairs  # [B], in bytes
    words = (count * pairs + 7) // 8 + 1
    stream = word_rows(seed, begin // 8, words)  # [B, words]
    stream = tf.reshape(tf.bitcast(stream, tf.uint8), [batch, -1])
    if (static := tf.get_static_value(pairs)) is not None and static % 8 == 0:
        return tf.reshape(stream[:, : count * pairs], shape)
    places = (begin % 8)[:, None] + tf.range(count * pairs)
    return tf.reshape(tf.gather(stream, places, batch_dims=1), shape)


@graphs.function(jit_compile=True)
def word_rows(seed: tf.Tensor, begin: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return [B, count] uint64: for each b, the random numbers of `count` counters, from begin[b] on. begin: [B]."""
    counters = begin[:, None] + tf.range(count)
    return tf.reshape(_words_at(seed, tf.reshape(counters, [-1])), tf.shape(counters))


@graphs.function(jit_compile=True)
def _materialised(x: tf.Tensor) -> tf.Tensor:
    """Return x, but make XLA write it to memory first where XLA compiles the whole step.

    XLA's fastest fusions for GPUs cannot contain the conversion of words to bytes. Without this barrier, they could not
    contain the operation that reads the bytes either.
    """
    return gen_xla_ops.xla_optimization_barrier(input=[x])[0]


def philox(x: tf.Tensor, y: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return two random words for each pair of counters x and y under a key, all uint32: Philox-2x32-7.

    Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3": seven rounds pass all tests of BigCrush.
    """
    for _ in range(ROUNDS):
        product = tf.cast(x, tf.uint64) * MULTIPLIER
        high = tf.cast(tf.bitwise.right_shift(product, tf.constant(32, tf.uint64)), tf.uint32)
        x, y = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(high, key), y), tf.cast(product, tf.uint32)
        key += tf.constant(WEYL, tf.uint32)
    return x, y


def apply_dropout(x: tf.Tensor, bits: tuple[tf.Tensor, ...], rate: float) -> tf.Tensor:
    """Set elements of x to 0 with probability `rate`, rounded to 1/256; scale the others to keep the mean.

    bits: what `DropoutRng.bits` returns for x's shape; if empty, return x.
    """
    if not bits:
        return x
    scaled = x * tf.cast(kept_scale(rate), x.dtype)
    return tf.where(bits[0] >= tf.constant(dropped_levels(rate), tf.uint8), scaled, tf.zeros([], x.dtype))


def kept_scale(rate: float) -> float:
    """Return the factor for the elements that dropout keeps."""
    return LEVELS / (LEVELS - dropped_levels(rate))


def dropped_levels(rate: float) -> int:
    """Return how many of the 256 values of a random byte mean that the element is dropped."""
    return round(rate * LEVELS)


def micro_batch_seed(seed: int, step: tf.Tensor, micro_batch: tf.Tensor) -> tf.Tensor:
    """Return the seed of a `DropoutRng`, [2] int64. micro_batch: its number in the update, over all ranks.

    The first numbers of two seeds are at least 2**20 apart, which leaves room for the numbers of the masks.
    """
    first = tf.constant(seed * 2**20, tf.int64)
    return tf.stack([first, tf.cast(step, tf.int64) * MICRO_BATCHES + tf.cast(micro_batch, tf.int64)])
