"""The cross-entropy of scores of a large vocabulary that are computed at every token, without all scores in memory.

The scores of GPT-2's 50,257 words at 1,024 tokens take 206 MB in float32 for each sequence, and their gradient as much.
Here rows of hidden states are taken in chunks. Of each chunk the scores, the loss and the gradients are computed at
once, as the gradient by the scores is known up to a factor before the backward pass begins. So there are as many matrix
products as without chunks.

Shapes: M rows, C rows of a chunk, K chunks, D width, V vocabulary, U scores: V rounded up.
"""

from collections.abc import Callable

import tensorflow as tf

from bert.hardware.devices import has_gpu
from bert.model.losses import Measure

CHUNK_BYTES = 1 << 27  # of the float32 scores of a chunk
ABSENT = -1e9  # score of an entry that rounds up the vocabulary: its probability is 0
Sums = tuple[tf.Tensor, ...]


def tied(
    hidden: tf.Tensor,
    table: tf.Tensor,
    labels: tf.Tensor,
    dtype: tf.DType,
    *,
    multiple: int = 1,
    training: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
) -> Measure:
    """Return the summed cross-entropy of the scores hidden table' with the labels, and how many are highest.

    hidden: [M, D] float32. table: word embeddings [V, D] float32. labels: [M]. dtype: of the matrix products. multiple:
    the vocabulary is rounded up to a multiple of it. training: compute the gradients with the loss; if not, they are
    computed only if they are asked for. chunk_bytes: of a chunk's scores in float32.
    """
    vocabulary = table.shape[0]
    padding = -vocabulary % multiple
    most_rows = max(1, chunk_bytes // (4 * (vocabulary + padding)))

    @tf.custom_gradient
    def differentiable(hidden: tf.Tensor, table: tf.Tensor) -> tuple[Sums, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
        rows = tf.shape(hidden)[0]
        words = tf.pad(tf.cast(table, dtype), [[0, padding], [0, 0]]) if padding else tf.cast(table, dtype)
        chunks, numbers = _divided(tf.cast(hidden, dtype), labels, most_rows)

        def sums(gradients: bool) -> tuple[Sums, Sums]:
            totals, by_words, by_chunks = _add_chunks(chunks, numbers, words, vocabulary, gradients)
            if not gradients:
                return totals, ()
            by_rows = tf.reshape(by_chunks, [-1, hidden.shape[-1]])[:rows]
            return totals, (by_rows, by_words[:vocabulary])

        totals, ready = sums(training)

        def gradient(by_loss: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            by_hidden, by_table = ready or sums(True)[1]
            return by_hidden * by_loss, by_table * by_loss

        return totals, gradient

    return Measure(*differentiable(tf.convert_to_tensor(hidden), tf.convert_to_tensor(table)))


def _divided(hidden: tf.Tensor, labels: tf.Tensor, most_rows: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return hidden states [K, C, D] and labels [K, C] of chunks of at most so many rows; rows that fill up have -1."""
    static = hidden.shape[0]
    rows = tf.shape(hidden)[0] if static is None else static
    count = -(-rows // most_rows)
    size = -(-rows // count)
    missing = count * size - rows
    chunks = tf.reshape(tf.pad(hidden, [[0, missing], [0, 0]]), [count, size, hidden.shape[-1]])
    return chunks, tf.reshape(tf.pad(labels, [[0, missing]], constant_values=-1), [count, size])


def _add_chunks(
    chunks: tf.Tensor, labels: tf.Tensor, words: tf.Tensor, vocabulary: int, gradients: bool
) -> tuple[Sums, tf.Tensor, tf.Tensor]:
    """Return the sums of the loss and of the correct predictions, and their gradients by words and by each chunk.

    chunks: [K, C, D]. labels: [K, C]. words: [U, D], in the type of the chunks. The gradients are [U, D] and [K, C, D]
    in float32; they are empty if `gradients` is false.
    """
    none = tf.zeros([0, words.shape[1]])

    def add(
        number: tf.Tensor, loss: tf.Tensor, correct: tf.Tensor, by_words: tf.Tensor, by_chunks: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
        chunk = chunks[number]
        scores = tf.matmul(chunk, words, transpose_b=True)  # [C, U]
        more_loss, more_correct, by_scores = _cross_entropy(scores, labels[number], vocabulary)
        if gradients:
            by_words += _product(by_scores, chunk, transpose_a=True)
            by_chunks = by_chunks.write(number, _product(by_scores, words))
        return number + 1, loss + more_loss, correct + more_correct, by_words, by_chunks

    count = tf.shape(chunks)[0] if chunks.shape[0] is None else chunks.shape[0]
    by_chunks = tf.TensorArray(tf.float32, count if gradients else 0, element_shape=chunks.shape[1:])
    by_words = tf.zeros(words.shape) if gradients else none
    _, loss, correct, by_words, by_chunks = tf.while_loop(
        lambda number, *_: number < count, add, (0, 0.0, 0.0, by_words, by_chunks), parallel_iterations=1
    )
    return (loss, correct), by_words, by_chunks.stack() if gradients else none


@tf.function(jit_compile=True)
def _cross_entropy(scores: tf.Tensor, labels: tf.Tensor, vocabulary: int) -> Sums:
    """Return the summed cross-entropy of scores [C, U] with labels [C], the correct predictions, and the gradient.

    The gradient by the scores is in their type. Rows with label -1 count nothing.
    """
    wide = tf.cast(scores, tf.float32)
    entries = tf.range(tf.shape(scores)[1])
    if scores.shape[1] != vocabulary:
        wide = tf.where(entries < vocabulary, wide, ABSENT)
    counted = tf.cast(labels >= 0, tf.float32)
    is_label = entries == labels[:, None]
    highest = tf.reduce_max(wide, axis=-1)
    powers = tf.exp(wide - highest[:, None])
    total = tf.reduce_sum(powers, axis=-1)
    label_scores = tf.reduce_sum(tf.where(is_label, wide, 0.0), axis=-1)
    loss = (tf.math.log(total) + highest - label_scores) * counted
    correct = tf.cast(label_scores >= highest, tf.float32) * counted
    by_scores = (powers / total[:, None] - tf.cast(is_label, tf.float32)) * counted[:, None]
    return tf.reduce_sum(loss), tf.reduce_sum(correct), tf.cast(by_scores, scores.dtype)


def _product(x: tf.Tensor, y: tf.Tensor, transpose_a: bool = False) -> tf.Tensor:
    """Return x y, or x' y, in float32, of x and y of one type."""
    if x.dtype == tf.float32:
        return tf.matmul(x, y, transpose_a=transpose_a)
    if has_gpu():
        return tf.raw_ops.BatchMatMulV3(x=x, y=y, adj_x=transpose_a, Tout=tf.float32)
    # The sums over rows of float16 may be more than it holds.
    wide = tf.float32 if x.dtype == tf.float16 else x.dtype
    return tf.cast(tf.matmul(tf.cast(x, wide), tf.cast(y, wide), transpose_a=transpose_a), tf.float32)
