"""Damaged and hostile weights are refused by name, nothing is written, and no more memory is taken than they have."""

import contextlib
import json
import os
import pickle
import resource
import shutil
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert.convert import __main__ as convert
from bert.core import cli
from bert.core.config import ModelConfig
from bert.core.errors import IntegrityError
from bert.model.encoder import variables
from bert.pretraining import PretrainingModel
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint

pytestmark = pytest.mark.faults

CONFIG = ModelConfig(
    vocab_size=97,
    hidden_size=36,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=60,
    max_position_embeddings=51,
)
QUERY = "bert.encoder.layer.1.attention.self.query.weight"
WEIGHTS = "model.safetensors"
BUNDLE = "bert_model.ckpt"
Change = Callable[[dict[str, np.ndarray]], None]
Header = dict[str, Any]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in both formats: huggingface/ and google/."""
    root = tmp_path_factory.mktemp("good")
    run = root / "run"
    run.mkdir()
    CONFIG.save(run / "bert_config.json")
    (run / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{number}" for number in range(92))]) + "\n")
    checkpoint.save(run, 0, variables(PretrainingModel(CONFIG, 0)), keep=1)
    for form in ("huggingface", "google"):
        convert.main(["export", form, str(run), str(root / form)])
    return root


@pytest.fixture
def theirs(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good / "huggingface", tmp_path / "huggingface"))


@pytest.fixture
def original(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good / "google", tmp_path / "google"))


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Two gigabytes more than the process has: what a lie claims is not to be had."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def refused(folder: Path, *said: str) -> None:
    """The import fails as bad input, in a line in which all of `said` stands, and leaves nothing."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(Exception) as caught, little_memory():
        convert.main(["import", folder.name, str(folder), str(folder.parent / "run")])
    assert cli.exit_code(caught.value) == 3, repr(caught.value)
    assert not [word for word in said if word not in str(caught.value)], str(caught.value)
    assert sorted(folder.parent.rglob("*")) == before


def header(path: Path) -> tuple[Header, bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def rewrite(path: Path, fields: Header | bytes, data: bytes, length: int | None = None) -> None:
    text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop(QUERY), [QUERY, "missing tensor"]),
        (lambda t: [t.pop(name) for name in list(t) if "layer.2" in name], ["layer.2", "more"]),
        (lambda t: t.pop("cls.predictions.transform.LayerNorm.bias"), ["cls.predictions.transform.LayerNorm.bias"]),
        (lambda t: t.update({QUERY: t[QUERY][:, :-1].copy()}), [QUERY, "[36, 35]", "[36, 36]"]),
        (lambda t: t.update({"bert.pooler.dense.weight": t[QUERY][None].copy()}), ["bert.pooler.dense.weight"]),
        (
            lambda t: t.update({"bert.encoder.layer.3.output.dense.bias": np.ones(3, "f")}),
            ["layer.3", "unknown"],
        ),
        (lambda t: t.update({"lora.weight": np.ones(3, "f")}), ["lora.weight", "unknown tensor"]),
        (lambda t: t.update({QUERY: t[QUERY].astype(np.float64)}), [QUERY, "F64"]),
        (lambda t: t.update({QUERY: t[QUERY].astype(np.int8)}), [QUERY, "I8"]),
        (lambda t: t.update({QUERY: np.where(t[QUERY] > 0, np.nan, t[QUERY])}), [QUERY, "not finite"]),
        (lambda t: t.update({"cls.predictions.decoder.weight": np.ones((97, 36), "f")}), ["decoder.weight"]),
        (lambda t: t.update({"pooler.dense.bias": np.ones(36, "f")}), ["pooler.dense.bias", "is also in"]),
    ],
    ids=[
        "missing",
        "a layer missing",
        "part of a head",
        "shape",
        "rank",
        "a layer more",
        "unknown",
        "float64",
        "int8",
        "nan",
        "not tied",
        "twice",
    ],
)
def test_tensors_that_are_not_the_models_are_refused_by_name(change: Change, said: list[str], theirs: Path) -> None:
    tensors = load_file(theirs / WEIGHTS)
    change(tensors)
    save_file(tensors, theirs / WEIGHTS)
    refused(theirs, *said)


def moved(name: str, by: int) -> Callable[[Header, bytes], Any]:
    def change(fields: Header, data: bytes) -> Any:
        fields[name]["data_offsets"] = [place + by for place in fields[name]["data_offsets"]]
        return fields, data

    return change


def claimed(**facts: Any) -> Callable[[Header, bytes], Any]:
    return lambda fields, data: (fields | {QUERY: fields[QUERY] | facts}, data)


@pytest.mark.parametrize(
    "lie",
    [
        lambda fields, data: (fields, data, 2**63 - 1),
        lambda fields, data: (fields, data, 2**40),
        lambda fields, data: (fields, data, 7),
        lambda fields, data: (fields, data, 0),
        lambda fields, data: (fields, data[:-1]),
        lambda fields, data: (fields, data + b"\0"),
        lambda fields, data: (fields, b""),
        lambda fields, data: (b"[" * 100_000, data),
        lambda fields, data: (json.dumps(fields).encode() + b"}", data),
        lambda fields, data: (b"\xff" * 64, data),
        lambda fields, data: ([], data),
        lambda fields, data: ({**fields, QUERY: 5}, data),
        moved(QUERY, 4),
        moved(QUERY, -4),
        moved(QUERY, 2**40),
        moved(QUERY, -(2**20)),
        claimed(dtype="F16"),
        claimed(dtype="F64"),
        claimed(dtype="Q3"),
        claimed(dtype=None),
        claimed(shape=[36, 37]),
        claimed(shape=[2**62, 2**62]),
        claimed(shape=[-36, -36]),
        claimed(shape=[36.0, 36.0]),
        claimed(shape=[2**33, 1], data_offsets=[0, 2**35]),
    ],
)
def test_a_header_that_lies_is_found_out(lie: Callable[..., Any], theirs: Path) -> None:
    rewrite(theirs / WEIGHTS, *lie(*header(theirs / WEIGHTS)))
    refused(theirs, WEIGHTS)


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
def test_a_pickle_is_never_opened(name: str, theirs: Path, tmp_path: Path) -> None:
    (theirs / WEIGHTS).unlink()
    (theirs / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    refused(theirs, name, "pickle", "save_pretrained")
    shutil.copyfile(theirs / name, theirs / WEIGHTS)  # nor under another name
    refused(theirs, WEIGHTS)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", WEIGHTS])
@pytest.mark.parametrize("what", ["missing", "a folder"])
def test_a_file_that_is_not_there_is_named(name: str, what: str, theirs: Path) -> None:
    (theirs / name).unlink()
    (theirs / "tokenizer.json").unlink()
    if what == "a folder":
        (theirs / name).mkdir()
    refused(theirs, "tokenizer.json" if (name, what) == ("vocab.txt", "missing") else name)


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings"])
@pytest.mark.parametrize("form", ["huggingface", "google"])
def test_sizes_beyond_all_measure_cost_nothing(key: str, form: str, good: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(good / form, tmp_path / form))
    path = folder / ("config.json" if form == "huggingface" else "bert_config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: 4 * 10**15}))
    refused(folder)


def bundle(folder: Path) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(str(folder / BUNDLE))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("bert/encoder/layer_1/output/dense/bias"), "bert/encoder/layer_1/output/dense/bias"),
        (lambda t: t.pop("cls/predictions/output_bias"), "cls/predictions/output_bias"),
        (lambda t: t.update({"bert/pooler/dense/bias": np.ones(35, "f")}), "bert/pooler/dense/bias has shape [35]"),
        (lambda t: t.update({"bert/pooler/dense/bias": np.ones(36)}), "bert/pooler/dense/bias is stored as float64"),
        (lambda t: t.update({"bert/pooler/dense/bias": np.full(36, np.inf, "f")}), "not finite"),
        (lambda t: t.update({"bert/adapter/kernel": np.ones(35, "f")}), "unknown tensors: bert/adapter/kernel"),
        (lambda t: t.update({"model/.ATTRIBUTES/VARIABLE_VALUE": np.ones(35, "f")}), "unknown tensor"),
    ],
)
def test_variables_that_are_not_the_models_are_refused_by_name(change: Change, said: str, original: Path) -> None:
    values = bundle(original)
    change(values)
    checkpoint.write_bundle(original / BUNDLE, values)
    refused(original, said)


@pytest.mark.parametrize("name", [f"{BUNDLE}.index", f"{BUNDLE}.data-00000-of-00001"])
def test_a_missing_file_of_a_checkpoint_is_refused(name: str, original: Path) -> None:
    (original / name).unlink()
    refused(original, BUNDLE)


def test_a_damaged_run_is_not_exported(good: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(good / "run", tmp_path / "run"))
    path = next(run.rglob("variables.data*"))
    content = bytearray(path.read_bytes())
    content[1000] ^= 8
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match="all 1 checkpoints are damaged"):
        convert.main(["export", "huggingface", str(run), str(tmp_path / "theirs")])
    assert not (tmp_path / "theirs").exists()


def test_a_full_disk_leaves_nothing(good: Path, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for way, form in (("export", "huggingface"), ("export", "google"), ("import", "huggingface")):
        source = good / (form if way == "import" else "run")
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
        try:
            with pytest.raises(Exception) as caught:
                convert.main([way, form, str(source), str(tmp_path / "made")])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert cli.exit_code(caught.value) == 5, repr(caught.value)
        assert not list(tmp_path.iterdir())
