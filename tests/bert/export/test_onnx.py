"""The exported ONNX model has our logits, whatever head, order of the norms, activation, type and operator set."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from bert import thresholds
from bert.core import files, manifest
from bert.core.config import ModelConfig
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.export import __main__ as export
from bert.labels import Head
from bert.model.encoder import variables
from bert.runs import Run
from bert.thresholds import Tuned
from bert.training import checkpoint
from tests.bert.export.served import VOCAB
from tests.bert.model.test_encoder import NEO

pytest.importorskip("onnx", reason="it writes the model")
pytest.importorskip("onnxruntime", reason="it computes the model")

import onnx
import onnxruntime
from onnxruntime.transformers.fusion_attention import AttentionMask, FusionAttention
from onnxruntime.transformers.onnx_model import OnnxModel

from bert.engines import onnx_graph
from bert.export import onnx_files

ORACLES = Path(__file__).resolve().parents[3] / ".venv-oracles" / "bin" / "python"
CONFIG = ModelConfig(
    vocab_size=len(VOCAB),
    hidden_size=20,
    num_attention_heads=5,
    num_hidden_layers=2,
    intermediate_size=28,
    max_position_embeddings=17,
    initializer_range=0.3,
)
HEADS = {
    "answers": ("answer_span", Head(kind="answer_span")),
    "classes": ("classifier", Head(kind="classifier", labels=("no", "yes", "perhaps"))),
    "number": ("classifier", Head(kind="classifier", regression=True)),
    "choices": ("choice", Head(kind="choice")),
    "tags": ("tags", Head(kind="tags", labels=("O", "B-X", "I-X", "B-Y"))),
    "words": ("masked_lm", None),
    "nothing": ("", None),
}


def a_run(folder: Path, name: str, facts: dict[str, Any] | None = None, **changed: Any) -> Path:
    """A run directory whose weights, biases and norms too, are random. facts: other entries of config.json."""
    kind, head = HEADS[name]
    config = dataclasses.replace(CONFIG, **changed)
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    config.save(folder / "bert_config.json")
    files.write_json(folder / "config.json", (head.entries() if head else {"config": {}}) | (facts or {}))
    random = np.random.default_rng(7)
    module = onnx_files.Module(config, kind, head)
    weights = {key: tf.constant(x + random.normal(0, 0.2, x.shape), tf.float32) for key, x in variables(module).items()}
    checkpoint.save(folder, 3, weights, keep=1)
    return folder


def exported(run: Path, output: Path, *more: object, form: str = "onnx") -> Path:
    export.main([form, str(run), str(output), *map(str, more)])
    return output


def logits(folder: Path, run: Path, tokens: int) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Those of onnxruntime, ours, and the mask of three texts."""
    random = np.random.default_rng(tokens)
    mask = (np.arange(tokens) < np.array([[tokens], [1], [max(1, tokens // 2)]])).astype(np.int64)
    ids, segments = mask * random.integers(0, len(VOCAB), mask.shape), mask * random.integers(0, 2, mask.shape)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    model = onnx_files.load(run, "float32", 20)
    if model.kind == "choice":  # three questions with two choices
        ids, mask, segments = (np.stack([x, x[::-1]], axis=1) for x in (ids, mask, segments))
    found = session.run(None, onnx_files.feed(model.config, ids, mask, segments))
    return found, model.module.logits(ids, mask, segments), mask


PRE = {"norm_placement": "pre", "hidden_act": "gelu_tanh"}
IN_CI = ("answers", "words")  # all heads stand on the same encoder; that for words has an activation of its own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        *((name, {}) for name in HEADS),
        *(pytest.param(name, PRE, marks=[pytest.mark.thorough] if name not in IN_CI else []) for name in HEADS),
    ],
)
def test_onnxruntime_has_our_logits(name: str, changed: dict[str, Any], tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", name, **changed)
    opset = 17 if changed else 20  # without and with an operation for GELU
    folder = exported(run, tmp_path / "onnx", "--opset", opset)
    described = json.loads((folder / "model.json").read_text())
    assert described["largest_difference"] < 1e-5 and described["opset"] == opset and not unread(folder)
    for tokens in (7, 17, 1):
        found, ours, mask = logits(folder, run, tokens)
        assert len(found) == len(ours) == len(described["outputs"])
        for theirs, expected in zip(found, ours, strict=True):
            assert theirs.shape == expected.shape and theirs.dtype == np.float32
            inside = mask > 0 if name not in ("classes", "number", "choices") else slice(None)
            np.testing.assert_allclose(theirs[inside], expected[inside], atol=1e-4)
            assert expected.std() > 0.01
    head = HEADS[name][1]
    names = list(head.labels) if head else []
    axes = ["batch", "choices", "tokens"] if name == "choices" else ["batch", "tokens"]
    assert set(map(tuple, described["inputs"].values())) == {tuple(axes)}
    assert name != "choices" or (found[0].shape, described["outputs"]["logits"]) == ((3, 2), axes[:2])
    assert described["labels"] == names and (folder / "labels.txt").exists() == bool(names)


def unread(folder: Path) -> list[str]:
    """What nodes of a graph give to no other node, and not to a user."""
    graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
    read = {name for node in graph.node for name in node.input} | {one.name for one in graph.output}
    return [node.output[0] for node in graph.node if not read & {*node.output}]


@pytest.mark.slow
def test_the_optimizer_of_onnxruntime_takes_the_graph(tmp_path: Path) -> None:
    """A norm that no node reads ends it with a KeyError (onnxruntime 1.32); its other steps need sympy."""
    folder = exported(a_run(tmp_path / "run", "classes"), tmp_path / "onnx")
    made = OnnxModel(onnx.load(folder / "model.onnx"))
    FusionAttention(made, CONFIG.hidden_size, CONFIG.num_attention_heads, AttentionMask(made)).apply()
    assert len(made.get_nodes_by_op_type("LayerNormalization")) == 2 * CONFIG.num_hidden_layers + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("classes", {"type_vocab_size": 0, "pooler_act": "relu", "hidden_act": "silu"}),  # DistilBERT has no segments
        ("words", {"embedding_size": 12, "hidden_act": "relu"}),  # ELECTRA's embeddings are narrow
        ("choices", {"embedding_size": 12, "pooler_act": "gelu"}),
        ("choices", {"head_transform": True, "pooling": "mean", "hidden_act": "silu"}),  # ModernBERT
        ("tags", {"head_transform": True, "biases": False}),
        ("words", NEO),
        ("words", NEO | {"opset": 17}),
    ],
)
def test_onnxruntime_has_the_logits_of_other_families(name: str, changed: dict[str, Any], tmp_path: Path) -> None:
    opset = changed.get("opset", 20)
    run = a_run(tmp_path / "run", name, **{key: value for key, value in changed.items() if key != "opset"})
    found, ours, mask = logits(exported(run, tmp_path / "onnx", "--opset", opset), run, tokens=7)
    assert not unread(tmp_path / "onnx")
    inside = mask > 0 if name in ("words", "tags") else slice(None)
    np.testing.assert_allclose(found[0][inside], ours[0][inside], atol=1e-4)
    assert ours[0].std() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("segments", [0, 1, 2])
def test_the_folder_alone_reads_texts_as_the_run_does(segments: int, tmp_path: Path) -> None:
    """Its tokenizer makes the inputs that the model names, for any batch and length; no file of the run is asked."""
    run = a_run(tmp_path / "run", "classes", type_vocab_size=segments, pooler_act="tanh" if segments else "relu")
    folder = exported(run, tmp_path / "onnx")
    fields = json.loads((folder / "config.json").read_text())
    assert fields["model_type"] == ("bert" if segments else "distilbert")
    assert fields["id2label"] == {"0": "no", "1": "yes", "2": "perhaps"}
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert (settings["do_lower_case"], settings["model_max_length"], settings["pad_token"]) == (False, 17, "[PAD]")
    assert (folder / "special_tokens_map.json").exists()
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    names = ["input_ids", "attention_mask", "token_type_ids"][: 3 if segments > 1 else 2]
    assert [one.name for one in session.get_inputs()] == names
    tokenizer, model = (
        tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")),
        onnx_files.load(run, "float32", 20),
    )
    tokenizer.enable_padding()
    ours = Run.open(run).tokenizer
    for batch in ([("a river",), ("Q",), ("(cafe) #river",)], [("x river", "y"), ("z", "cafe x river, Z!")]):
        found = tokenizer.encode_batch([texts if len(texts) > 1 else texts[0] for texts in batch])
        taken = [[x.ids for x in found], [x.attention_mask for x in found], [x.type_ids for x in found]]
        (logits,) = session.run(None, {name: np.array(x) for name, x in zip(names, taken, strict=False)})
        rows = [ours.row(*(ours.encode([text])[0] for text in texts)) for texts in batch]
        arrays = np.zeros([3, len(rows), max(len(row.ids) for row in rows)], np.int64)
        for number, row in enumerate(rows):
            arrays[:, number, : len(row.ids)] = row.ids, np.ones_like(row.ids), row.segments * (segments > 1)
        np.testing.assert_allclose(logits, model.module.logits(*arrays)[0], atol=1e-5)
        assert len(logits) == len(batch) and logits.std(axis=0).min() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("form", ["onnx", "openvino"])
def test_thresholds_that_are_tuned_again_are_exported_again(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(form)
    monkeypatch.setitem(HEADS, "labels", ("multilabel", Head(kind="multilabel", labels=("toxic", "rude"))))
    run = a_run(tmp_path / "run", "labels")
    weights = manifest.content_hash(run / "checkpoints" / checkpoint.name_of(3))

    def told() -> list[float]:
        folder = exported(run, tmp_path / "served", form=form)
        found: list[float] = json.loads((folder / "model.json").read_text())["thresholds"]
        return found

    assert told() == [0.5, 0.5]
    for chosen in ({"toxic": 0.25, "rude": 0.75}, {"toxic": 0.125, "rude": 0.75}):
        tuned = Tuned(thresholds=chosen, f1={}, examples=1, dataset="dev", dataset_sha256="", weights=weights)
        thresholds.write(run, tuned)
        assert told() == [*chosen.values()]


def test_a_model_of_no_family_has_no_config_for_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path / "run", "words", embedding_size=12, hidden_act="relu")
    folder = exported(run, tmp_path / "onnx")
    assert not (folder / "config.json").exists() and (folder / "tokenizer.json").exists()
    assert "no config.json, so that optimum does not load it" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "most"), [(["--compute", "float16"], 1e-2), (["--int8", "true"], 0.3)])
def test_narrow_types_are_close_and_smaller(flags: list[str], most: float, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", "tags", hidden_size=60, intermediate_size=444, num_hidden_layers=3)
    whole, narrow = exported(run, tmp_path / "whole"), exported(run, tmp_path / "narrow", *flags)
    sizes = [(folder / "model.onnx").stat().st_size for folder in (whole, narrow)]
    assert sizes[1] < 0.75 * sizes[0]
    assert 0 < json.loads((narrow / "model.json").read_text())["largest_difference"] < most
    assert not list(narrow.glob("float32*"))


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--int8", "true"]])
def test_the_weights_of_a_large_model_have_a_file_of_their_own(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path / "run", "classes", intermediate_size=512)
    whole = exported(run, tmp_path / "whole", *flags)
    monkeypatch.setattr(onnx_graph, "LARGEST", 10_000)
    parted = exported(run, tmp_path / "parted", *flags)
    files_of = [{path.name for path in folder.iterdir()} for folder in (whole, parted)]
    assert files_of[1] - files_of[0] == {"model.onnx.data"} and not files_of[0] - files_of[1]
    sizes = [(folder / "model.onnx").stat().st_size for folder in (whole, parted)]
    assert sizes[1] < sizes[0] / 2
    assert np.array_equal(logits(whole, run, 7)[0], logits(parted, run, 7)[0])


def test_a_class_for_each_token_is_no_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many classes as the comparison has tokens: the logits of all classes are compared."""
    head = Head(kind="classifier", labels=tuple(f"c{number}" for number in range(7)))
    monkeypatch.setitem(HEADS, "seven", ("classifier", head))
    folder = exported(a_run(tmp_path / "run", "seven"), tmp_path / "onnx")
    assert json.loads((folder / "model.json").read_text())["largest_difference"] < 1e-5


def test_a_model_that_computes_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path / "run", "classes")
    monkeypatch.setattr(onnx_graph, "MASKED", 0.0)  # padding is attended to
    with pytest.raises(IntegrityError, match="differ from ours"):
        exported(run, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", "classes")
    module = onnx_files.Module(CONFIG, *HEADS["classes"])
    weights = {key: tf.fill(x.shape, np.float32("nan")) for key, x in variables(module).items()}
    checkpoint.save(run, 5, weights, keep=1)
    with pytest.raises(IntegrityError, match="not finite"):
        exported(run, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["onnx", "--compute", "bfloat16"], "no such products"),
        (["onnx", "--compute", "float16", "--int8", "true"], "what is not 8 bits stays float32"),
        (["onnx", "--length", "64"], "for savedmodel"),
        (["onnx", "--name", "x"], "for triton"),
        (["triton", "--name", "a/b"], "letters, digits"),
        (["savedmodel", "--int8", "true"], "for onnx and triton"),
        (["savedmodel", "--opset", "20"], "for onnx and triton"),
        (["onnx", "--opset", "16"], "opset"),
    ],
)
def test_flags_that_do_not_fit_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        export.main([words[0], str(tmp_path / "run"), str(tmp_path / "onnx"), *words[1:]])


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_packages_the_remedy_is_named(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in (("engines", "onnx_graph"), ("export", "onnx_files"), ("export", "triton")):
        monkeypatch.delitem(sys.modules, f"bert.{folder}.{name}", raising=False)
        monkeypatch.delattr(sys.modules[f"bert.{folder}"], name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"^{package} is not installed; run: make setup"):
        exported(tmp_path / "run", tmp_path / "onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name not in ("classes", "choices"))) for name in HEADS]
)
def test_triton_gets_a_repository(name: str, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", name)
    repository = exported(run, tmp_path / "models", "--name", "mine", "--version", 3, form="triton") / "mine"
    found, _, _ = logits(repository / "3", run, 7)
    text = (repository / "config.pbtxt").read_text()
    dims = [json.loads(dims) for dims in re.findall(r"TYPE_FP32 dims: (\[.*?\])", text)]
    inputs = [[-1, -1] if name == "choices" else [-1]] * 3
    free = (7, 2) if name == "choices" else (7,)  # tokens and choices
    assert [[-1 if size in free else size for size in x.shape[1:]] for x in found] == dims
    if ORACLES.exists():
        code = """
import sys
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2
found = text_format.Parse(open(sys.argv[1]).read(), model_config_pb2.ModelConfig())
print(found.name, found.platform, [list(one.dims) for one in found.input], [list(one.dims) for one in found.output])
"""
        command = [str(ORACLES), "-c", code, str(repository / "config.pbtxt")]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert told == f"mine onnxruntime_onnx {inputs} {dims}\n"
    labels = repository / "labels.txt"
    head = HEADS[name][1]
    assert (labels.read_text().split() if labels.exists() else []) == (list(head.labels) if head else [])
    assert ("labels.txt" in text) == labels.exists()
    for file in (repository / "config.pbtxt", labels):  # what was deleted comes back
        kept = file.read_text() if file.exists() else None
        file.unlink(missing_ok=True)
        exported(run, tmp_path / "models", "--name", "mine", "--version", 3, form="triton")
        assert (file.read_text() if file.exists() else None) == kept
