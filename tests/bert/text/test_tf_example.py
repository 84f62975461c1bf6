"""What is serialised by hand, protobuf reads back unchanged."""

import itertools
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bert.text import tf_example

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300) | st.sampled_from([127, 128, 16383, 16384, 2**21])


@pytest.mark.slow
@settings(deadline=None)
@given(
    rows=st.integers(1, 5),
    data=st.data(),
    names=st.lists(st.text("abc_\u00e9", min_size=1, max_size=130), min_size=1, max_size=4, unique=True),
)
def test_rows_are_the_messages_of_protobuf(rows, data, names):
    sizes = {name: data.draw(st.integers(1, 70)) for name in names}
    features = {
        name: data.draw(
            hnp.arrays(np.int64, (rows, size), elements=INTEGERS)
            | hnp.arrays(np.float32, (rows, size), elements=st.floats(width=32))
        )
        for name, size in sizes.items()
    }
    for row, serialized in enumerate(tf_example.encode_batch(features)):
        message = tf.train.Example()
        for name, values in features.items():
            feature = message.features.feature[name]
            kind = feature.float_list if values.dtype == np.float32 else feature.int64_list
            kind.value.extend(values[row].tolist())
        read = tf.train.Example.FromString(serialized)
        assert read.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)
        assert len(serialized) == message.ByteSize()  # nothing that protobuf would not have written
        assert serialized == tf_example.encode({name: values[row] for name, values in features.items()})


@pytest.mark.slow
@pytest.mark.parametrize("cells", [1, 30, tf_example.MAX_ELEMENTS])  # as many rows at once as are within that
@given(rows=st.lists(st.lists(INTEGERS, max_size=40), min_size=1, max_size=9))
def test_rows_of_different_lengths_are_as_if_each_were_alone(cells: int, rows: list[list[int]]) -> None:
    splits = np.cumsum([0, *map(len, rows)])
    ragged = tf_example.Ragged(np.array(list(itertools.chain(*rows)), np.int64), splits)
    numbers = np.arange(len(rows))[:, None]
    with mock.patch.object(tf_example, "MAX_ELEMENTS", cells):
        found = list(tf_example.encode_batch({"ids": ragged, "number": numbers}))
    for number, (row, serialized) in enumerate(zip(rows, found, strict=True)):
        message = tf.train.Example.FromString(serialized)
        assert message.features.feature["number"].int64_list.value == [number]
        assert message.features.feature["ids"].int64_list.value == row
        assert len(serialized) == message.ByteSize()
