"""Finished folders of random words, for the tests of what checks them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from bert.core import checked_json
from bert.text import frames, tf_example

SEQUENCE, PREDICTIONS = 37, 7  # of the records in `finished`


def sign(folder: Path, **changes: object) -> None:
    """Makes the manifest say what the files are now: the content is what a wrong stage would have written."""
    content = json.loads((folder / "manifest.json").read_text()) | changes
    for name, listed in content["files"].items():
        data = (folder / name).read_bytes()
        listed |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    del content[checked_json.KEY]
    checked_json.write(folder / "manifest.json", content)


def examples(path: Path) -> list[dict[str, np.ndarray]]:
    """The features of each record, read by TensorFlow."""
    rows = []
    for payload in tf.data.TFRecordDataset([str(path)]).as_numpy_iterator():
        fields = tf.train.Example.FromString(payload).features.feature
        rows.append({k: np.array(v.int64_list.value or v.float_list.value) for k, v in fields.items()})
    return rows


def encode(row: dict[str, np.ndarray]) -> bytes:
    return tf_example.encode(row | {"masked_lm_weights": row["masked_lm_weights"].astype(np.float32)})


def write(path: Path, rows: list[dict[str, np.ndarray]]) -> None:
    with frames.RecordWriter(path) as writer:
        for row in rows:
            writer.write(encode(row))
