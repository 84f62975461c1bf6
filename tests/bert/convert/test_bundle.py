"""Tensor bundles are read as TensorFlow reads them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.convert.bundle import Bundle, Damaged
from bert.training import checkpoint


@pytest.mark.slow
def test_values_shapes_and_types_are_those_that_tensorflow_reads(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    values = {f"layer_{number}/kernel/adam_{'mv'[number % 2]}": random.normal(size=3) for number in range(9000)}
    values |= {"scalar": np.array(7, np.int64), "empty": np.zeros((0, 5), "f"), "half": random.normal(size=(3, 5, 7))}
    tensors = {name: tf.constant(value) for name, value in values.items()}
    tensors["half"] = tf.cast(tensors["half"], tf.bfloat16)
    checkpoint.write_bundle(tmp_path / "model.ckpt-20", tensors)
    assert (tmp_path / "model.ckpt-20.index").stat().st_size > 2**18  # TensorFlow's size of a block
    ours, theirs = Bundle(tmp_path / "model.ckpt-20"), tf.train.load_checkpoint(str(tmp_path / "model.ckpt-20"))
    assert ours.shapes() == {name: tuple(shape) for name, shape in theirs.get_variable_to_shape_map().items()}
    assert {name: ours.dtype(name) for name in ours.shapes()} == theirs.get_variable_to_dtype_map()
    for name in tensors:
        assert ours.get(name).tobytes() == theirs.get_tensor(name).tobytes(), name


def test_variables_in_parts_are_those_that_tensorflow_reads(tmp_path: Path) -> None:
    random, tf1 = np.random.default_rng(1), tf.compat.v1
    axes = {"rows": (0, 4), "columns": (1, 2), "bert/long": (0, 3), "whole": (0, 1)}  # axis and number of the parts
    shapes = {"rows": (21, 3), "columns": (2, 5), "bert/long": (20_003, 2), "whole": (4, 1)}
    values = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}

    def initial(name: str) -> Callable[..., tf.Tensor]:
        def part(shape: list[int], dtype: tf.DType, partition_info: Any = None) -> tf.Tensor:
            begin = partition_info.var_offset if partition_info else [0, 0]
            return tf.constant(values[name][tuple(slice(a, a + n) for a, n in zip(begin, shape, strict=True))], dtype)

        return part

    with tf.Graph().as_default(), tf1.Session() as session:
        for name, (axis, parts) in axes.items():
            partitioner = tf1.fixed_size_partitioner(parts, axis)
            tf1.get_variable(name, shapes[name], tf.float32, initial(name), partitioner=partitioner)
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver().save(session, str(tmp_path / "model.ckpt"), write_meta_graph=False)
    ours, theirs = Bundle(tmp_path / "model.ckpt"), tf.train.load_checkpoint(str(tmp_path / "model.ckpt"))
    assert ours.shapes() == shapes
    for name, value in values.items():
        assert ours.get(name).tobytes() == theirs.get_tensor(name).tobytes() == value.tobytes()
    (content,) = [entry for entry in ours._entries.values() if len(entry.slices) == 4]
    last = content.slices.pop()
    with pytest.raises(Damaged, match="are not those that it names"):
        ours.get("rows")
    content.slices.append(content.slices[-1])
    with pytest.raises(Damaged, match="overlap"):
        ours.get("rows")
    content.slices.pop()
    last.extent[0].start = 17
    content.slices.append(last)
    with pytest.raises(Damaged, match="outside"):
        ours.get("rows")
