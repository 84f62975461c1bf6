"""Tensor bundles are read as TensorFlow reads them."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.convert.bundle import Bundle
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
