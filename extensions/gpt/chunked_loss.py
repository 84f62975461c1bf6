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
from bert.model.cost import CHUNK_BYTES
from bert.model.losses import Measure, combine, part_gradients, part_statistics
from bert.model.model_shard import UNSHARDED, Parts
from bert.model.weights import WORDS

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
    parts: Parts = UNSHARDED,
) -> Measure:
    """Return the summed cross-entropy of the scores hidden table' with the labels, and how many are highest.

    hidden: [M, D] float32. table: word embeddings [V, D] float32. labels: [M]. dtype: of the matrix products. multiple:
    the vocabulary is rounded up to a multiple of it. training: compute the gradients with the loss; if not, they are
    computed only if they are asked for. chunk_bytes: of a chunk's scores in float32. parts: if several devices hold the
    model, the table has this one's words, and the labels are their places among them (`Parts.places`).
    """
    vocabulary = table.shape[0]
    padding = -vocabulary % multiple
    absent = tf.where(tf.range(vocabulary + padding) < vocabulary, 0.0, ABSENT)  # [U]
    largest = _most_words(vocabulary, parts)
    most_rows = max(1, chunk_bytes // (4 * (largest + -largest % multiple)))

    @tf.custom_gradient
    def differentiable(hidden: tf.Tensor, table: tf.Tensor) -> tuple[Sums, Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
        rows = tf.shape(hidden)[0]
        words = tf.pad(tf.cast(table, dtype), [[0, padding], [0, 0]]) if padding else tf.cast(table, dtype)
        count, divided = _divided(rows if hidden.shape[0] is None else hidden.shape[0], most_rows)
        chunks, numbers, counted = (divided(x) for x in (tf.cast(hidden, dtype), labels, tf.ones([rows])))

        def measure(scores: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Callable[[], tf.Tensor]]:
            own = part_statistics(scores, absent, numbers[number])
            everyone = own[None] if parts.count == 1 else parts.gather(own, "vocabulary/statistics")
            loss, correct, total = combine(everyone, counted[number])
            return loss, correct, lambda: part_gradients(scores, absent, numbers[number], counted[number], total)[0]

        def sums(gradients: bool) -> tuple[Sums, Sums]:
            totals, by_words, by_chunks = _add_chunks(chunks, words, measure, count, gradients)
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


def _most_words(vocabulary: int, parts: Parts) -> int:
    """Return the number of words of the largest part, so that all parts have the same chunks."""
    return vocabulary if parts.count == 1 else -(-parts.whole_shapes[WORDS][0] // parts.count)


def _divided(rows: tf.Tensor | int, most_rows: int) -> tuple[tf.Tensor | int, Callable[[tf.Tensor], tf.Tensor]]:
    """Return the number K of chunks of at most this many rows, and what divides [M, ...] into [K, C, ...].

    Rows of zeros fill the last chunk up.
    """
    count = -(-rows // most_rows)
    size = -(-rows // count)

    def divided(x: tf.Tensor) -> tf.Tensor:
        padded = tf.pad(x, [[0, count * size - rows], *([[0, 0]] * (x.shape.rank - 1))])
        return tf.reshape(padded, [count, size, *x.shape[1:]])

    return count, divided


def _add_chunks(
    chunks: tf.Tensor,
    words: tf.Tensor,
    measure: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor, Callable[[], tf.Tensor]]],
    count: tf.Tensor | int,
    gradients: bool,
) -> tuple[Sums, tf.Tensor, tf.Tensor]:
    """Return the sums of the loss and of the correct predictions, and the gradients by the words and by each chunk.

    chunks: [K, C, D]; `count` is K. words: [U, D], in the type of the chunks. measure: returns of a chunk's scores
    [C, U] and its number the loss, the correct predictions, and a function that returns the gradient by the scores. The
    gradients are [U, D] and [K, C, D] in float32; they are empty if `gradients` is false.
    """
    none = tf.zeros([0, words.shape[1]])

    def add(
        number: tf.Tensor, loss: tf.Tensor, correct: tf.Tensor, by_words: tf.Tensor, by_chunks: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
        chunk = chunks[number]
        more_loss, more_correct, gradient = measure(tf.matmul(chunk, words, transpose_b=True), number)
        if gradients:
            by_scores = gradient()
            by_words += _product(by_scores, chunk, transpose_a=True)
            by_chunks = by_chunks.write(number, _product(by_scores, words))
        return number + 1, loss + more_loss, correct + more_correct, by_words, by_chunks

    by_chunks = tf.TensorArray(tf.float32, count if gradients else 0, element_shape=chunks.shape[1:])
    by_words = tf.zeros(words.shape) if gradients else none
    _, loss, correct, by_words, by_chunks = tf.while_loop(
        lambda number, *_: number < count, add, (0, 0.0, 0.0, by_words, by_chunks), parallel_iterations=1
    )
    return (loss, correct), by_words, by_chunks.stack() if gradients else none


def _product(x: tf.Tensor, y: tf.Tensor, transpose_a: bool = False) -> tf.Tensor:
    """Return x y, or x' y, in float32, of x and y of one type."""
    if x.dtype == tf.float32:
        return tf.matmul(x, y, transpose_a=transpose_a)
    if has_gpu():
        return tf.raw_ops.BatchMatMulV3(x=x, y=y, adj_x=transpose_a, Tout=tf.float32)
    # The sums over rows of float16 may be more than it holds.
    wide = tf.float32 if x.dtype == tf.float16 else x.dtype
    return tf.cast(tf.matmul(tf.cast(x, wide), tf.cast(y, wide), transpose_a=transpose_a), tf.float32)
