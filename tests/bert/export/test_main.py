"""The command writes a SavedModel that needs nothing of ours, once, or says in one line why not."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert.core.errors import InputError, UsageError
from bert.labels import Head
from tests.bert.export.served import HOSTILE, a_run, ask, exported
from tests.training import sign

pytest.importorskip("tensorflow_text", reason="its operations are part of the graph")

CLASSES = Head(kind="classifier", labels=("no", "yes", "perhaps"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three classes."""
    return a_run(tmp_path_factory.mktemp("main") / "run", CLASSES, length=37)


@pytest.fixture(scope="module")
def folder(run: Path) -> Path:
    """Its export."""
    return exported(run, run.with_name("served"))


@pytest.mark.slow
def test_a_fresh_process_without_this_code_serves_it(folder: Path, tmp_path: Path) -> None:
    code = """
import json, sys
import tensorflow as tf, tensorflow_text
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
found = served(text=tf.constant(json.load(sys.stdin)))
assert not {"bert", "squad", "data", "tasks"} & {name.split(".")[0] for name in sys.modules}
print(json.dumps([label.decode() for label in found["label"].numpy().tolist()]))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(folder)],
        cwd=tmp_path,
        env=os.environ,
        input=json.dumps(HOSTILE),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [label.decode() for label in ask(folder, text=HOSTILE)["label"]]


@pytest.mark.slow
def test_the_signatures_are_as_documented_and_the_folder_as_servers_want_it(folder: Path) -> None:
    signatures = tf.saved_model.load(str(folder)).signatures
    given = {name: signature.structured_input_signature[1] for name, signature in signatures.items()}
    texts = {name: tf.TensorSpec([None], tf.string, name) for name in ("text", "first", "second")}
    assert given == {
        "serving_default": {"text": texts["text"]},
        "pairs": {"first": texts["first"], "second": texts["second"]},
    }
    kinds = {"label": tf.string, "probability": tf.float32, "labels": tf.string, "probabilities": tf.float32}
    for signature in signatures.values():
        assert {name: spec.dtype for name, spec in signature.structured_outputs.items()} == kinds
    assert [path.name for path in folder.parent.iterdir()] == ["1"]
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    assert "_XlaMustCompile" not in str(saved)  # a server on CPUs could not run it


@pytest.mark.slow
def test_the_same_command_again_changes_nothing_and_another_replaces_the_whole(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = exported(run, tmp_path)
    before = (folder / "saved_model.pb").stat().st_mtime_ns
    exported(run, tmp_path)
    assert "up to date" in capfd.readouterr().err
    assert (folder / "saved_model.pb").stat().st_mtime_ns == before
    exported(run, tmp_path, "--length", 5)
    short = ask(folder, text=["a b c d e f", "a b c d e"])["probabilities"]
    np.testing.assert_allclose(short[0], short[1], rtol=1e-5)  # only three tokens are read


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "more", "error", "said"),
    [
        ({"length": "long"}, (), InputError, "length is 'long'"),
        ({"length": 3}, (), InputError, "length 3"),
        ({"stride": 0}, (), InputError, "stride 0"),
        ({"length": 74}, (), UsageError, "only 73 positions"),
        ({}, ("--length", 74), UsageError, "only 73 positions"),
        ({}, ("--length", 4), UsageError, "from 5"),
        ({}, ("--version", 0), UsageError, "from 1"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    settings: dict[str, Any], more: tuple[object, ...], error: type[Exception], said: str, tmp_path: Path
) -> None:
    run = a_run(tmp_path / "run", CLASSES, **settings)
    with pytest.raises(error, match=said):
        exported(run, tmp_path / "served", *more)
    assert not (tmp_path / "served").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (json.dumps(Head(kind="classifier").entries()), InputError, "names no classes"),
        (json.dumps(Head(kind="answer_span").entries()), UsageError, "python -m squad.export"),
        (json.dumps(CLASSES.entries()), InputError, "no variable classifier/bias"),
        (json.dumps(CLASSES.entries() | {"inputs": ["length"]}), InputError, "not the configuration of a run"),
        ("{", InputError, r"config\.json: damaged"),
    ],
)
def test_a_run_of_which_the_outputs_are_not_known_is_refused(
    content: str, error: type[Exception], said: str, tmp_path: Path
) -> None:
    run = a_run(tmp_path / "run", None)
    (run / "config.json").write_text(content)
    sign(run)
    with pytest.raises(error, match=said):
        exported(run, tmp_path / "served")
    assert not (tmp_path / "served").exists()
