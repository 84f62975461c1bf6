"""Who may read and write what is written: what the umask says, and of trusted files nobody else; test_page_commands.py
has the files of all commands.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core import files, library_log, outputs, paths
from bert.training import checkpoint, metrics

pytestmark = pytest.mark.faults


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def make(folder: Path) -> outputs.StageResult:
    (folder / "inner").mkdir()
    (folder / "inner" / "part.jsonl").write_text("{}\n")
    with files.atomic_write(folder / "table.npy", "wb") as stream:
        np.save(stream, np.ones(3))
    return outputs.StageResult(counts={})


class Lower(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def lower(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"lower": tf.strings.lower(text)}


def unlike(root: Path, umask: int) -> dict[str, str]:
    """The files and folders whose permissions are not those of the umask."""
    found = {path: path.stat().st_mode & 0o777 for path in [root, *root.rglob("*")]}
    assert len(found) > 6
    expected = {path: (0o777 if path.is_dir() else 0o666) & ~umask for path in found}
    return {str(path): oct(mode) for path, mode in found.items() if mode != expected[path]}


def test_outputs_have_the_permissions_of_the_umask(umask: int, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with files.atomic_write(root / "text") as stream:
        stream.write("text")
    files.write_json(root / "deep" / "value.json", {})
    files.write_json(root / "deep" / "value.json", {"a": 1})  # replaced
    outputs.build(root / "stage", stage="text", parameters={}, inputs=[], make=make)
    outputs.build(root / "stage", stage="text", parameters={"other": 1}, inputs=[], make=make)  # replaced
    checkpoint.save(root / "run", 3, {"weight": tf.ones([2, 3])}, keep=1)
    with files.exclusive(root / "run"):
        pass
    log = metrics.Log(root / "run", steps=3, first=0, active=True)
    log.write(1, "train", {"loss": 1.0})
    log.close()
    assert not unlike(root, umask)


def test_a_saved_model_has_the_permissions_of_the_umask(umask: int, tmp_path: Path) -> None:
    for package in ("tensorflow_text", "tensorflow_serving"):
        pytest.importorskip(package, reason="exports need it")
    from bert.export import graph

    module = Lower()
    graph.save(module, {"serving_default": module.lower}, 3, tmp_path / "served")
    assert not unlike(tmp_path / "served", umask)


def test_what_is_trusted_is_private(umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(library_log, "_path", paths.temporary("logs") / "one.log")
    os.close(library_log._open())
    assert {path.stat().st_mode & 0o777 for path in [paths.temporary("logs"), paths.temporary("logs") / "one.log"]} == {
        0o700,
        0o600,
    }
