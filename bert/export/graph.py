"""What the graphs of exported models share: batches of similar length, padded model input, and how they are saved.

N rows, R rows per batch, S positions.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf

from bert.export import warmup
from bert.text.batches import LENGTH_MULTIPLE

ROWS = 32  # per batch


def over(total: tf.Tensor, size: tf.Tensor | int) -> tf.Tensor:
    """Return total / size, rounded up."""
    return -(-total // size)


def int32(x: tf.Tensor) -> tf.Tensor:
    """Return x as int32."""
    return tf.cast(x, tf.int32)


def in_batches(
    lengths: tf.Tensor,
    results: Sequence[tf.TensorSpec],
    compute: Callable[[tf.Tensor], Sequence[tf.Tensor]],
) -> tuple[tf.Tensor, ...]:
    """Compute all rows in batches of similar length; return the results of `compute` in the order of the rows.

    lengths: of the rows, [N]. compute: takes the indices of at most ROWS rows. results: one specification for each
    tensor that it returns; all have the rows on the first axis.
    """
    order = tf.argsort(lengths, stable=True)
    batches = over(tf.size(order), ROWS)
    arrays = [tf.TensorArray(spec.dtype, batches, infer_shape=False, element_shape=spec.shape) for spec in results]

    def step(number: tf.Tensor, *filled: tf.TensorArray) -> tuple[tf.Tensor | tf.TensorArray, ...]:
        computed = compute(order[number * ROWS : (number + 1) * ROWS])
        return number + 1, *(array.write(number, x) for array, x in zip(filled, computed, strict=True))

    _, *filled = tf.while_loop(lambda number, *_: number < batches, step, [0, *arrays], parallel_iterations=1)
    back = tf.math.invert_permutation(order)
    return tuple(tf.gather(array.concat(), back) for array in filled)


def model_input(line: tf.RaggedTensor, first: tf.Tensor, pad_id: int, longest: int) -> tuple[tf.Tensor, ...]:
    """Return ids, mask and segments [R, S] int32 of lines of ids [R, (tokens)], special tokens included.

    first: number of tokens in the first segment [R]. S is a multiple of LENGTH_MULTIPLE, or `longest`.
    """
    lengths = int32(line.row_lengths())
    most = tf.reduce_max(lengths)
    width = tf.minimum(over(most, LENGTH_MULTIPLE) * LENGTH_MULTIPLE, longest)
    ids = tf.pad(line.to_tensor(pad_id), [[0, 0], [0, width - most]], constant_values=pad_id)
    mask = tf.sequence_mask(lengths, width, tf.int32)
    return ids, mask, mask - tf.sequence_mask(first, width, tf.int32)


def save(
    module: tf.Module, signatures: dict[str, tf.types.experimental.PolymorphicFunction], longest: int, folder: Path
) -> None:
    """Write a SavedModel for TensorFlow Serving, with requests to warm it up. longest: tokens of an input."""
    for name in ("variables", "assets"):  # TensorFlow's own have 0755, whatever the umask allows
        (folder / name).mkdir(parents=True)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(folder), signatures=signatures, options=options)
    warmup.write(signatures, longest, folder)
