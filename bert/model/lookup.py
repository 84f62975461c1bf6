"""Embedding lookup with a gradient that is deterministic on a GPU too.

The gradient adds the upstream rows of each index. XLA does that on a GPU by a scatter with atomic additions, whose
order varies from run to run; or, with deterministic kernels, by a loop over single rows, which is slow. Here the rows
are sorted and added by matrix products, in a fixed order.

Shapes: N rows of the table, D width, M rows looked up, K blocks of C rows.
"""

from collections.abc import Callable

import tensorflow as tf

from bert.hardware.devices import has_gpu
from bert.model.model_shard import Parts

BLOCK = 128  # C: rows that one matrix product adds


def lookup(table: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Return the rows of table [N, D] at `indices` of any shape [...], as [..., D]."""
    if not has_gpu():
        return tf.gather(table, indices)

    @tf.custom_gradient
    def differentiable(table: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            rows = tf.cast(tf.reshape(upstream, [-1, table.shape[1]]), tf.float32)
            return tf.cast(sum_rows(rows, tf.reshape(indices, [-1]), tf.shape(table)[0]), table.dtype)

        return tf.gather(table, indices), gradient

    return differentiable(tf.convert_to_tensor(table))


def divided_lookup(table: tf.Tensor, indices: tf.Tensor, count: int, parts: Parts, name: str) -> tf.Tensor:
    """Return the rows at `indices` of a table whose `count` rows are divided among the parts of a model.

    name: of the sum over the parts.
    """
    if parts.count == 1:
        return lookup(table, indices)
    places = parts.places(indices, count)
    rows = lookup(table, tf.maximum(places, 0))
    return parts.all_reduce_forward(rows * tf.cast(places >= 0, tf.float32)[..., None], name)


def sum_rows(rows: tf.Tensor, indices: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return, for each index from 0 to count - 1, the sum of the rows with this index, [count, D].

    rows: [M, D] float32. indices: [M], the index of each row.
    """
    width, size = rows.shape[1], tf.size(indices)
    order = tf.argsort(indices, stable=True)
    missing = -size % BLOCK
    keys = tf.pad(tf.gather(indices, order), [[0, missing]], constant_values=tf.int32.max)  # [K*C]
    sorted_rows = tf.pad(tf.gather(rows, order), [[0, missing], [0, 0]])
    blocks = tf.reshape(keys, [-1, BLOCK])  # [K, C]
    # For each row the sum of those rows of its block that have the same index, [K*C, D].
    same = tf.cast(blocks[:, :, None] == blocks[:, None, :], tf.float32)
    block_sums = tf.reshape(tf.matmul(same, tf.reshape(sorted_rows, [-1, BLOCK, width])), [-1, width])
    # An index has its first row in one block, and may continue from the first row of the blocks after that.
    index = tf.range(count)
    first = tf.searchsorted(keys, index)  # [N]
    occurs = tf.gather(keys, tf.minimum(first, tf.size(keys) - 1)) == index
    starts = tf.range(tf.shape(blocks)[0]) * BLOCK
    continues = (blocks[:, 0] == index[:, None]) & (starts > first[:, None])  # [N, K]
    in_first_block = tf.where(occurs[:, None], tf.gather(block_sums, tf.minimum(first, tf.size(keys) - 1)), 0.0)
    return in_first_block + tf.matmul(tf.cast(continues, tf.float32), tf.gather(block_sums, starts))
