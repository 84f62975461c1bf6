"""A tf_model.h5, laid out here as the TensorFlow classes of transformers wrote it, gives the weights of safetensors."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from bert.convert import __main__ as convert
from bert.convert.h5 import name_of
from bert.core.errors import InputError
from bert.model.heads import TaskModel
from squad.model import AnswerSpans
from tests.bert.convert.folders import SMALL, a_run, same_bits, weights

MODEL = "tf_bert_for_question_answering"


def place_of(name: str) -> str:
    """Where TensorFlow's class keeps a tensor of PyTorch's class."""
    *path, last = name.replace("layer.", "layer_@_").split(".")
    if path[-1].endswith("_embeddings"):
        last = "weight" if path[-1].startswith("word") else "embeddings"
    elif path[-1] == "LayerNorm":
        last = {"weight": "gamma", "bias": "beta"}[last]
    elif last == "weight":
        last = "kernel"
    return "/".join([path[0], MODEL, *path, f"{last}:0"]).replace("@", ".")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The same model as a folder of safetensors, and with tf_model.h5 instead."""
    a_run(tmp_path / "run", SMALL, TaskModel(SMALL, 3, AnswerSpans.described))
    for name in ("theirs", "older"):
        convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / name)])
    tensors = load_file(tmp_path / "older" / "model.safetensors")
    (tmp_path / "older" / "model.safetensors").unlink()
    with h5py.File(tmp_path / "older" / "tf_model.h5", "w") as stored:
        for name, value in tensors.items():
            place = place_of(name)
            stored[place] = value.T if place.endswith("kernel:0") else value
        stored.create_group("dropout_37")
        words = "bert/embeddings/word_embeddings/weight:0"  # the head of masked words has them as well
        stored[f"mlm___cls/{MODEL}/{words}"] = stored[f"bert/{MODEL}/{words}"][()]
    return tmp_path / "theirs", tmp_path / "older"


def test_both_files_give_the_same_model(folders: tuple[Path, Path], tmp_path: Path) -> None:
    for folder in folders:
        convert.main(["import", "huggingface", str(folder), str(tmp_path / f"from_{folder.name}")])
    same_bits(weights(tmp_path / "from_theirs"), weights(tmp_path / "from_older"))


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("bert/tf_bert_model/bert/embeddings/word_embeddings/weight:0", "bert.embeddings.word_embeddings.weight"),
        ("bert/m/bert/embeddings/position_embeddings/embeddings:0", "bert.embeddings.position_embeddings.weight"),
        ("bert/m/bert/encoder/layer_._11/output/LayerNorm/beta:0", "bert.encoder.layer.11.output.LayerNorm.bias"),
        ("mlm___cls/m/mlm___cls/predictions/transform/dense/kernel:0", "cls.predictions.transform.dense.weight"),
        ("mlm___cls/m/mlm___cls/predictions/bias:0", "cls.predictions.bias"),
        ("nsp___cls/m/nsp___cls/seq_relationship/kernel:0", "cls.seq_relationship.weight"),
        ("classifier/m/classifier/bias:0", "classifier.bias"),
    ],
)
def test_places_are_names(place: str, name: str) -> None:
    assert name_of(place) == name


def test_what_is_no_file_of_weights_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    path = folders[1] / "tf_model.h5"
    content = path.read_bytes()

    def error() -> str:
        with pytest.raises(InputError) as raised:
            convert.main(["import", "huggingface", str(folders[1]), str(tmp_path / "run2")])
        assert not (tmp_path / "run2").exists()
        return str(raised.value)

    for damaged in (b"", b"no HDF5", content[: len(content) // 2]):
        path.write_bytes(damaged)
        assert "tf_model.h5: not a complete HDF5 file" in error()
    np.zeros(99, "<f4").tofile(tmp_path / "secret")
    outside = [(str(tmp_path / "secret"), 0, 4 * 99)]
    path.write_bytes(content)
    with h5py.File(path, "a") as stored:
        stored.create_dataset("bert/m/bert/extra:0", (99,), "<f4", external=outside)
    assert "is kept in another file" in error()
    path.write_bytes(content)
    with h5py.File(path, "a") as stored:
        stored["bert/other/bert/pooler/dense/bias:0"] = np.zeros(3, np.float32)
        stored["bert/another/bert/pooler/dense/bias:0"] = np.ones(3, np.float32)
    assert "is there twice, with other values" in error()
    path.write_bytes(content)
    with h5py.File(path, "a") as stored:  # forty gigabytes without a value, or of one value
        stored.create_dataset("bert/m/bert/extra:0", (10_000_000_000,), "<f4", chunks=(1_000_000,))
    assert "'bert/m/bert/extra:0' has fewer bytes than its shape says" in error()
    path.write_bytes(content)
    with h5py.File(path, "a") as stored:  # a link to a tensor elsewhere is no tensor
        place = place_of("bert.embeddings.position_embeddings.weight")
        del stored[place]
        stored[place] = h5py.ExternalLink(str(tmp_path / "secret"), "/x")
    assert "position_embeddings" in error()
