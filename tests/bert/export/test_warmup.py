"""The requests for warming up are messages that TensorFlow Serving knows, and the model answers them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.labels import Head
from squad import export as squad_export
from tests.bert.export.served import a_run, exported
from tests.serve import runs

pytest.importorskip("tensorflow_text", reason="its operations are part of the graph")
pytest.importorskip("tensorflow_serving", reason="it has the messages")

from tensorflow_serving.apis import prediction_log_pb2

HEADS = {
    "classes": Head(kind="classifier", labels=("no", "yes", "perhaps")),
    "choices": Head(kind="choice"),
    "tags": Head(kind="tags", labels=("O", "B-X")),
    "nothing": None,
}


def answered(folder: Path) -> list[tuple[str, dict[str, tuple[int, ...]]]]:
    """The signature of each request, and the shapes of its inputs; the model has answered all of them."""
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    signatures: Any = tf.saved_model.load(str(folder)).signatures
    found = []
    for record in tf.data.TFRecordDataset([str(path)]).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        name = request.model_spec.signature_name
        answers = signatures[name](**{key: tf.constant(value, tf.string) for key, value in inputs.items()})
        assert all(np.isfinite(x).all() for x in answers.values() if x.dtype.is_floating)
        found.append((name, {key: value.shape for key, value in inputs.items()}))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("classes", {"serving_default": {"text": (1,)}, "pairs": {"first": (1,), "second": (1,)}}),
        pytest.param("choices", {"serving_default": {"first": (1, 3), "second": (1, 3)}}, marks=pytest.mark.thorough),
        ("tags", {"serving_default": {"words": (1, 3)}}),
        ("nothing", {"serving_default": {"text": (1,)}}),
    ],
)
def test_every_signature_is_warmed_up(name: str, expected: dict[str, Any], tmp_path: Path) -> None:
    folder = exported(a_run(tmp_path / "run", HEADS[name], length=37), tmp_path / "served")
    found = answered(folder)
    assert len(found) == 2 * len(expected) and dict(found) == expected


@pytest.mark.slow
def test_questions_are_warmed_up(tmp_path: Path) -> None:
    runs.of_questions(tmp_path / "run")
    squad_export.main(["--model", str(tmp_path / "run"), "--output", str(tmp_path / "served")])
    assert answered(tmp_path / "served" / "1") == 2 * [("serving_default", {"question": (1,), "context": (1,)})]
