"""The frames of a TFRecord file are those that TensorFlow reads, and an index that disagrees is named."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from data.audit import tfrecord_audit


def test_frames_are_those_that_tensorflow_reads(finished: Path) -> None:
    path = finished / "tfrecords" / "seq37" / "train-00001-of-00003.tfrecord"
    ours = list(tfrecord_audit.walk(path, np.zeros(0, np.uint64)))
    assert [frame.payload for frame in ours] == list(tf.data.TFRecordDataset([str(path)]).as_numpy_iterator())
    assert [frame.offset for frame in ours] == tfrecord_audit.read_index(path)[:-1].tolist()
    assert len(ours) > 50 and not any(frame.damage for frame in ours)
