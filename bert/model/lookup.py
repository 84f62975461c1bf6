"""Rows of a table by number, with a gradient that has the same bits each time, on a GPU too.

The gradient adds the upstream rows of each number. On a GPU XLA does that by a scatter with atomic additions, whose
order varies from run to run, or, asked to be deterministic, by a loop over the rows one by one. Here it is sorting and
matrix products instead, in a fixed order.

Shapes: N rows of the table, D width, M rows looked up, K blocks of C rows.
"""

from collections.abc import Callable

import tensorflow as tf

from bert.hardware.devices import has_gpu

BLOCK = 128  # rows that are added by one matrix product


def lookup(table: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Rows of table [N, D] whose numbers are given, of any shape [...] -> [..., D]."""
    if not has_gpu():
        return tf.gather(table, numbers)

    @tf.custom_gradient
    def differentiable(table: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            rows = tf.cast(tf.reshape(upstream, [-1, table.shape[1]]), tf.float32)
            return tf.cast(sum_rows(rows, tf.reshape(numbers, [-1]), tf.shape(table)[0]), table.dtype)

        return tf.gather(table, numbers), gradient

    return differentiable(tf.convert_to_tensor(table))


def sum_rows(rows: tf.Tensor, numbers: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Sum of the rows [M, D] float32 of each number, [count, D]; numbers [M] are from 0 to count - 1."""
    width, size = rows.shape[1], tf.size(numbers)
    order = tf.argsort(numbers, stable=True)
    missing = -size % BLOCK
    keys = tf.pad(tf.gather(numbers, order), [[0, missing]], constant_values=tf.int32.max)  # [K*C]
    sorted_rows = tf.pad(tf.gather(rows, order), [[0, missing], [0, 0]])
    blocks = tf.reshape(keys, [-1, BLOCK])  # [K, C]
    # The sum over a block of the rows with the number of each row, [K*C, D]: equal within a block for equal numbers.
    same = tf.cast(blocks[:, :, None] == blocks[:, None, :], tf.float32)
    within = tf.reshape(tf.matmul(same, tf.reshape(sorted_rows, [-1, BLOCK, width])), [-1, width])
    # Of each number the block in which it begins, and those that it goes on in from their first row.
    number = tf.range(count)
    first = tf.searchsorted(keys, number)  # [N]
    there = tf.gather(keys, tf.minimum(first, tf.size(keys) - 1)) == number
    starts = tf.range(tf.shape(blocks)[0]) * BLOCK
    goes_on = (blocks[:, 0] == number[:, None]) & (starts > first[:, None])  # [N, K]
    begun = tf.where(there[:, None], tf.gather(within, tf.minimum(first, tf.size(keys) - 1)), 0.0)
    return begun + tf.matmul(tf.cast(goes_on, tf.float32), tf.gather(within, starts))
