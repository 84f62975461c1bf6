"""Requests that TensorFlow Serving computes when it has loaded a model, before it takes those of clients.

They lie in assets.extra/tf_serving_warmup_requests of the SavedModel, as TFRecords of PredictionLog
(tensorflow/serving, apis/prediction_log.proto). These messages are written here byte by byte: the package that has
them, tensorflow-serving-api, is needed by the tests only.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

NAME = Path("assets.extra") / "tf_serving_warmup_requests"
WORD = "word "
COLUMNS = 3  # of an input whose rows have any number of texts
# Field numbers of the messages.
PREDICT_LOG, REQUEST, MODEL_SPEC, INPUTS, SIGNATURE, KEY, VALUE = 6, 1, 1, 2, 3, 1, 2


def write(signatures: Mapping[str, Any], longest: int, folder: Path) -> None:
    """Write requests for all signatures, which take strings, beside a SavedModel: a short text and a long one.

    longest: words of the long text.
    """
    (folder / NAME).parent.mkdir()
    with tf.io.TFRecordWriter(str(folder / NAME)) as writer:
        for name, function in signatures.items():
            for words in (1, longest):
                writer.write(_request(name, dict(_inputs(function.input_signature, WORD * words))))


def _inputs(specs: Any, text: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each input of a signature with one row of texts."""
    for spec in specs:
        shape = [1, *(COLUMNS if size is None else size for size in spec.shape[1:])]
        yield spec.name, np.full(shape, text, object)


def _request(signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    """Return a PredictionLog."""
    request = _field(MODEL_SPEC, _field(SIGNATURE, signature.encode()))
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value, tf.string).SerializeToString()
        request += _field(INPUTS, _field(KEY, name.encode()) + _field(VALUE, tensor))
    return _field(PREDICT_LOG, _field(REQUEST, request))


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a message: its number and type, its length as a varint, its content."""
    length, left = bytearray(), len(content)
    while left > 127:
        length.append(left & 127 | 128)
        left >>= 7
    length.append(left)
    return bytes([number << 3 | 2, *length]) + content
