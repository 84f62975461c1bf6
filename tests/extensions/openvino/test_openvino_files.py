"""The exported model of OpenVINO has our logits; in 8 bits it is taken only if its score is nearly as good."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from bert import encode
from bert.convert import sentence
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.embedding import Embedding
from bert.export import __main__ as export
from bert.runs import Run
from tasks import loading
from tasks import model as tasks_model
from tests.bert.export.served import VOCAB
from tests.conftest import ROOT

pytest.importorskip("onnx", reason="it has the graph that OpenVINO reads")
pytest.importorskip("onnxruntime", reason="it is the other program that computes exports")
pytest.importorskip("openvino", reason="it computes the model")

import onnxruntime

from bert.engines import onnx_graph
from bert.export import onnx_files
from extensions.openvino import quantizing
from extensions.openvino.encoder import settings_for, shared_core
from tests.bert.export.test_onnx import CONFIG, HEADS, IN_CI, a_run, exported

TEXTS = ["a river", "Q", "(cafe) #river river", "z y x"]
INPUTS, READ = ("input_ids", "attention_mask", "token_type_ids"), ("input_ids", "input_mask", "segment_ids")
IN_8_BITS = ["openvino", "--int8", "true", "--calibration", "dev.tsv"]
FULL = (np.arange(7) < np.array([[7], [1], [3]])).astype(np.int64)


@pytest.fixture
def nncf() -> Any:
    """NNCF, where it is installed."""
    pytest.importorskip("nncf", reason="it quantises: pip install nncf==3.4.0")
    return quantizing.library()


def outputs_of(folder: Path, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What OpenVINO gives of the files alone, by the names of the outputs."""
    model = shared_core().read_model(folder / "openvino_model.xml")
    found = shared_core().compile_model(model, "CPU", settings_for("float32"))(given)
    (names,) = zip(*(output.get_names() for output in model.outputs), strict=True)
    return {name: np.array(found[name]) for name in names}


def inputs_of(folder: Path, texts: list[str]) -> dict[str, np.ndarray]:
    """What the tokenizer of the folder makes of texts."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(texts)
    every = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    names = json.loads((folder / "model.json").read_text())["inputs"]
    return {name: np.array([getattr(row, every[name]) for row in rows], np.int64) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name not in (*IN_CI, "choices"))) for name in HEADS]
)
def test_openvino_has_our_logits(name: str, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", name)
    folder = exported(run, tmp_path / "served", form="openvino")
    described = json.loads((folder / "model.json").read_text())
    assert described["largest_difference"] < 1e-5 and described["compute"] == "float32"
    files = {"openvino_model.xml", "openvino_model.bin", "tokenizer.json", "config.json"}
    assert files <= {path.name for path in folder.iterdir()}
    assert not list(folder.glob("float32*"))
    random = np.random.default_rng(5)
    mask = FULL
    ids, segments = mask * random.integers(0, len(VOCAB), mask.shape), mask * random.integers(0, 2, mask.shape)
    if name == "choices":
        ids, mask, segments = (np.stack([x, x[::-1]], axis=1) for x in (ids, mask, segments))
    model = onnx_files.load(run, "float32", 20)
    found = outputs_of(folder, onnx_files.feed(model.config, ids, mask, segments))
    assert sorted(found) == sorted(described["outputs"])
    for theirs, ours in zip(found.values(), model.module.logits(ids, mask, segments), strict=True):
        inside = mask > 0 if name not in ("classes", "number", "choices") else slice(None)
        np.testing.assert_allclose(theirs[inside], ours[inside], atol=1e-5 * max(1, np.abs(ours).max()))
        assert ours.std() > 0.01


def test_another_model_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path / "run", "classes")
    monkeypatch.setattr(onnx_graph, "MASKED", 0.0)  # padding is attended to
    with pytest.raises(IntegrityError, match="the logits of OpenVINO differ from ours"):
        exported(run, tmp_path / "served", form="openvino")
    assert not (tmp_path / "served").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pool", "normalize", "width", "opset"),
    [("mean", True, 0, 20), ("cls", False, 3, 17), ("max", True, 0, 17), ("max", False, 5, 20), ("mean", False, 0, 18)],
)
def test_the_embedding_is_that_of_encode(pool: str, normalize: bool, width: int, opset: int, tmp_path: Path) -> None:
    made = Embedding(pool=pool, normalize=normalize, dimensions=width or None)
    run = a_run(tmp_path / "run", "nothing", made.entries())
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    encode.main(["--model", str(run), "--input", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "x.npz")])
    ours = np.load(tmp_path / "x.npz")["features"][:, 0]
    onnx = exported(run, tmp_path / "onnx", "--opset", opset)
    served = exported(run, tmp_path / "served", form="openvino")
    session = onnxruntime.InferenceSession(str(onnx / "model.onnx"), providers=["CPUExecutionProvider"])
    given = inputs_of(onnx, TEXTS)
    assert given["attention_mask"].min() == 0
    names = ["last_hidden_state", "sentence_embedding"]
    assert [one.name for one in session.get_outputs()] == names
    found = dict(zip(names, session.run(None, given), strict=True)), outputs_of(served, given)
    for theirs in found:
        np.testing.assert_allclose(theirs["sentence_embedding"], ours, rtol=0, atol=1e-5)
        assert np.abs(np.linalg.norm(theirs["sentence_embedding"], axis=1) - 1).max() < (1e-5 if normalize else 99)
    assert ours.shape == (len(TEXTS), width or CONFIG.hidden_size) and ours.std(axis=0).min() > 1e-3
    described = json.loads((served / "model.json").read_text())
    assert described["outputs"]["sentence_embedding"] == ["batch", width or CONFIG.hidden_size]
    assert described["embedding"]["pool"] == pool
    assert [sentence.read(folder, True, CONFIG) for folder in (onnx, served)] == [made, made]


def labelled(path: Path, count: int = 90) -> list[tuple[str, str]]:
    """A development set whose labels are those of a random model, but for some."""
    random = np.random.default_rng(11)
    words = ["river", "cafe", "x", "Q", "#", "river cafe", "zz"]
    rows = [(" ".join(random.choice(words, random.integers(1, 6))), str(random.choice(["no", "yes", "perhaps"])))]
    rows += [(" ".join(random.choice(words, n % 5 + 1)), ("no", "yes", "perhaps")[n % 3]) for n in range(count - 1)]
    with path.open("w", newline="") as stream:
        csv.writer(stream, delimiter="\t").writerows([("text", "label"), *rows])
    return rows


def a_classifier(folder: Path) -> Path:
    """A run of classes whose config.json names the columns of its data."""
    data = {"task": "classify", "text": ["text"], "label": "label", "length": 17}
    return a_run(folder, "classes", {"inputs": data})


@pytest.mark.slow
def test_both_scores_are_those_of_the_models(
    nncf: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, rows = a_classifier(tmp_path / "run"), labelled(tmp_path / "dev.tsv")
    monkeypatch.setattr(quantizing, "SAMPLES", 20)
    more = ("--int8", "true", "--calibration", tmp_path / "dev.tsv", "--max_loss", 100)
    folders = {
        "float32": exported(run, tmp_path / "whole", form="openvino"),
        "int8": exported(run, run / "int8", *more, form="openvino"),
    }
    described = json.loads((folders["int8"] / "model.json").read_text())
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed == described["scores"] | {"put_back": []}
    assert described["compute"] == "int8" and described["calibrated_on"] == 20
    logits = {}
    for name, folder in folders.items():
        logits[name] = outputs_of(folder, inputs_of(folder, [text for text, _ in rows]))["logits"]
        best = [described["labels"][place] for place in logits[name].argmax(axis=1)]
        right = [found == label for found, (_, label) in zip(best, rows, strict=True)]
        assert described["scores"][name]["accuracy"] == pytest.approx(100 * np.mean(right), abs=1.2)  # one of 90
        assert next(iter(described["scores"][name])) == "accuracy"
    change = np.abs(logits["int8"] - logits["float32"]).max() / np.abs(logits["float32"]).max()
    assert 1e-4 < change < 0.3
    model = loading.load(run, engine="openvino_int8")
    given = inputs_of(run / "int8", [text for text, _ in rows])
    tokens = [given[name].astype(np.int32) for name in INPUTS]
    (found,) = tasks_model.Reader(model, 90, compiled=False).outputs(dict(zip(READ, tokens, strict=True)))
    assert 1e-4 < np.abs(found - logits["float32"]).max() / np.abs(logits["float32"]).max() < 0.3
    sizes = {name: (folder / "openvino_model.bin").stat().st_size for name, folder in folders.items()}
    assert sizes["int8"] < 0.6 * sizes["float32"]


def parts_in_8_bits(folder: Path) -> set[str]:
    """The parts of a model whose matrix products have weights of 8 bits."""
    parts = set()
    for node in shared_core().read_model(folder / "openvino_model.xml").get_ops():
        if node.get_type_name() == "MatMul":
            weight, name = node.input_value(1).get_node(), node.friendly_name
            for _ in range(3):  # scale, zero point, type
                weight = weight.input_value(0).get_node() if weight.get_input_size() else weight
            if weight.get_type_name() == "Constant" and weight.get_element_type().size == 1:
                parts.add(name.split("/")[0] if name.startswith("layer_") else "outside")
    return parts


@pytest.mark.slow
def test_the_worst_part_is_put_back_first(
    nncf: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_classifier(tmp_path / "run")
    labelled(tmp_path / "dev.tsv")
    real, told = quantizing._scores, iter([80.0, 70.0, 79.8])

    def scores(*arguments: Any) -> dict[str, float]:
        return real(*arguments) | {"accuracy": next(told)}

    monkeypatch.setattr(quantizing, "_scores", scores)
    monkeypatch.setattr(quantizing, "SAMPLES", 9)
    folder = exported(
        run, tmp_path / "served", "--int8", "true", "--calibration", tmp_path / "dev.tsv", form="openvino"
    )
    described = json.loads((folder / "model.json").read_text())
    (put_back,) = described["put_back"]
    assert described["scores"]["int8"]["accuracy"] == 79.8
    assert [json.loads(line)["put_back"] for line in capsys.readouterr().out.splitlines()] == [[], [put_back]]
    everything = {"layer_0", "layer_1", "outside"}
    part = put_back if put_back.startswith("layer_") else "outside"
    assert parts_in_8_bits(folder) == everything - {part}


@pytest.mark.slow
def test_a_score_that_stays_too_low_leaves_nothing(nncf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_classifier(tmp_path / "run")
    labelled(tmp_path / "dev.tsv")
    told = iter([80.0, *[70.0] * 9])
    real = quantizing._scores
    monkeypatch.setattr(quantizing, "_scores", lambda *given: real(*given) | {"accuracy": next(told)})
    monkeypatch.setattr(quantizing, "SAMPLES", 9)
    more = ("--int8", "true", "--calibration", tmp_path / "dev.tsv", "--max_loss", 2)
    with pytest.raises(UsageError, match=r"accuracy is 70.00 and not 80.00, also with 2 of 3 parts .* than 2, or"):
        exported(run, tmp_path / "served", *more, form="openvino")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev.tsv", "run"]


@pytest.mark.slow
def test_a_model_without_a_score_needs_the_word_of_its_user(
    nncf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, path = a_run(tmp_path / "run", "words"), tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n\n")
    more = ("--int8", "true", "--calibration", path)
    with pytest.raises(UsageError, match=r"nothing scores this model; give --score false"):
        exported(run, tmp_path / "served", *more, form="openvino")
    folder = exported(run, tmp_path / "served", *more, "--score", "false", form="openvino")
    described = json.loads((folder / "model.json").read_text())
    assert described["calibrated_on"] == len(TEXTS) and "scores" not in described
    assert parts_in_8_bits(folder) == {"layer_0", "layer_1", "outside"}
    path.write_text("\n \n")
    with pytest.raises(InputError, match=r"texts.txt: has no text"):
        exported(run, tmp_path / "other", *more, "--score", "false", form="openvino")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["openvino", "--int8", "true"], "belong together"),
        (["openvino", "--calibration", "x"], "belong together"),
        (["openvino", "--max_loss", "1"], "in 8 bits"),
        (["openvino", "--compute", "bfloat16"], "INFERENCE_PRECISION_HINT"),
        (["openvino", "--opset", "20"], "INFERENCE_PRECISION_HINT"),
        (
            [*IN_8_BITS, "--score", "false", "--max_loss", "1"],
            "that of a score",
        ),
        ([*IN_8_BITS, "--max_loss", "-1"], "max_loss"),
        (["onnx", "--calibration", "x"], "are for openvino"),
        (["savedmodel", "--score", "false"], "are for openvino"),
    ],
)
def test_flags_that_do_not_fit_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        export.main([words[0], str(tmp_path / "run"), str(tmp_path / "served"), *words[1:]])


def test_without_nncf_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)
    run = a_classifier(tmp_path / "run")
    labelled(tmp_path / "dev.tsv")
    with pytest.raises(InputError, match=r"^nncf is not installed; run: pip install (nncf==\S+)$") as raised:
        exported(run, tmp_path / "served", "--int8", "true", "--calibration", tmp_path / "dev.tsv", form="openvino")
    assert str(raised.value).rpartition(" ")[2] in (ROOT / "pyproject.toml").read_text()
    assert not (tmp_path / "served").exists()


@pytest.mark.slow
def test_nncf_sends_nothing(nncf: Any) -> None:
    """In a process without pytest, in which it would send nothing anyway."""
    code = """
from extensions.openvino import quantizing
import socket
socket.socket.connect = None
quantizing.library()
from nncf.telemetry import wrapper
print(type(wrapper.telemetry).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "MagicMock\n"), done.stderr[-2000:]


@pytest.mark.slow
def test_the_example_of_the_page_needs_openvino_and_tokenizers_alone(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```\n(import json\n[^`]*openvino[^`]*)```", page)
    run = a_run(tmp_path / "run", "classes")
    exported(run, tmp_path / "served_openvino", form="openvino")
    code += "\nimport sys\nassert not {'tensorflow', 'torch', 'onnx', 'bert'} & set(sys.modules)\n"
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    model, tokenizer = onnx_files.load(run, "float32", 20), Run.open(run).tokenizer
    row = tokenizer.row(tokenizer.encode(["a fine film"])[0])
    (logits,) = model.module.logits(row.ids[None], np.ones_like(row.ids)[None], row.segments[None])
    label, probability = done.stdout.split()
    likely = np.exp(logits[0]) / np.exp(logits[0]).sum()
    assert label == ("no", "yes", "perhaps")[likely.argmax()]
    assert float(probability) == pytest.approx(likely.max(), abs=1e-3)
