"""OpenVINO computes what TensorFlow computes, up to rounding, and keeps compiled models on disk."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert import api, encode, fill_mask, hidden_states
from bert.core.config import ModelConfig
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.embedding import Pool
from bert.engines import engine
from bert.export import __main__ as export
from bert.hardware.choices import Compute
from bert.hardware.choices import EngineName as EngineName
from bert.masked_words import MaskedWords
from bert.model.encoder import Encoder, variables
from bert.model.heads import TaskModel
from bert.runs import Run
from bert.training import checkpoint
from extensions.minimal_pairs import minimal_pairs, pseudo_likelihood
from extensions.search import search
from serve.models import Models
from squad import model as squad_model
from squad import predict as squad_predict
from squad.reader import Reader as SquadReader
from tasks import evaluate, loading, predict
from tasks import model as tasks_model
from tests.bert.export.served import CONFIG, HOSTILE, VOCAB
from tests.bert.model.test_encoder import MODERN, NEO
from tests.conftest import ROOT
from tests.serve import runs

pytest.importorskip("openvino", reason="it is the engine")
pytest.importorskip("onnx", reason="it has the graph that the engine reads")
pytest.importorskip("onnxruntime", reason="exports need it")

import openvino

from extensions.openvino import encoder as of_openvino
from extensions.openvino import quantizing

CLOSE = 1e-5  # the stated tolerance in float32, relative to the largest number of an output
BOTH: tuple[EngineName, ...] = ("tensorflow", "openvino")
Reader = tasks_model.Reader[Any]


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The work folder, in which compiled models are kept."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("BERT_WORKDIR", str(folder))
    return folder


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each model that OpenVINO compiles."""
    compile_model, calls = openvino.Core.compile_model, list[str]()

    def spied(self: Any, *arguments: Any) -> Any:
        calls.append("compiled")
        return compile_model(self, *arguments)

    monkeypatch.setattr(openvino.Core, "compile_model", spied)
    return calls


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = CLOSE) -> None:
    assert found.shape == expected.shape and expected.std() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1.0, np.abs(expected).max()))


def random_encoder(seed: int = 3, **changed: Any) -> Encoder:
    """An encoder whose weights, biases and norms too, are random."""
    config: ModelConfig = dataclasses.replace(CONFIG, **changed)
    made, random = Encoder(config, seed), np.random.default_rng(seed)
    for weight in variables(made).values():
        weight.assign_add(tf.constant(random.normal(0, 0.2, weight.shape), tf.float32))
    return made


def rows(texts: int = 3, tokens: int = 13) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, mask and segments of texts of different lengths."""
    random = np.random.default_rng(tokens)
    mask = (np.arange(tokens) < np.array([tokens, 1, tokens // 2])[:texts, None]).astype(np.int32)
    ids = random.integers(0, len(VOCAB), mask.shape, dtype=np.int32) * mask
    return ids, mask, random.integers(0, 2, mask.shape, dtype=np.int32) * mask


def states(made: Encoder, name: EngineName, compute: Compute = "float32", **how: Any) -> list[np.ndarray]:
    """The hidden states of `rows` at their tokens."""
    function = engine.make(made, compute, name).function(lambda states, mask: states, compiled=False, **how)
    arrays = rows()
    return [state.numpy()[arrays[1] > 0] for state in function(*arrays)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"norm_placement": "pre", "hidden_act": "gelu_tanh"},
        {"hidden_act": "relu", "type_vocab_size": 1, "num_hidden_layers": 1},
        {"hidden_act": "silu", "type_vocab_size": 0, "embedding_size": 12},
        MODERN,
        NEO,
    ],
)
def test_hidden_states_are_those_of_tensorflow(changed: dict[str, Any]) -> None:
    made = random_encoder(**changed)
    for layers in ((-1,), (0, -1, 1, -1)):
        found, expected = (states(made, name, layers=layers) for name in BOTH[::-1])
        assert len(found) == len(layers)
        for ours, theirs in zip(found, expected, strict=True):
            close(ours, theirs)
    places = np.array([[2, 0], [0, 12], [2, 5], [0, 12]], np.int32)
    at = [
        engine.make(made, "float32", name).function(lambda x, mask: x, at_places=True, compiled=False) for name in BOTH
    ]
    expected, found = (function(*rows(), places).numpy() for function in at)
    close(found, expected)


def of_task(folder: Path, name: EngineName) -> Reader:
    run = Run.open(folder)
    if run.head and run.head.kind == "answer_span":
        model = squad_model.load(run, engine=name)
        return SquadReader(model, batch=2, n_best=3, max_answer_length=5, limit=None, compiled=False)
    return tasks_model.Reader(loading.load(run, engine=name), 2, compiled=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["answer", "classify", "choose", "tag", "label", "regress"])
def test_each_head_has_the_outputs_of_tensorflow(kind: str, tmp_path: Path) -> None:
    folder = runs.of_questions(tmp_path / kind) if kind == "answer" else runs.of_task(tmp_path / kind, kind)
    arrays = dict(zip(("input_ids", "input_mask", "segment_ids"), rows(tokens=17), strict=True))
    if kind == "choose":
        arrays = {name: np.stack([array, array[::-1], array], axis=1) for name, array in arrays.items()}
    expected, found = (of_task(folder, name).outputs(arrays) for name in BOTH)
    assert len(found) == len(expected) == (2 if kind == "answer" else 1)
    inside = arrays["input_mask"] > 0 if kind in ("answer", "tag") else slice(None)
    for ours, theirs in zip(found, expected, strict=True):
        close(ours[inside], theirs[inside])


@pytest.mark.slow
def test_words_and_features_are_those_of_tensorflow(tmp_path: Path) -> None:
    run = Run.open(runs.of_pretraining(tmp_path / "run"))
    models = [MaskedWords(run, batch=2, engine=name, compiled=False) for name in BOTH]
    ids, mask, _ = rows(tokens=11)
    texts = [ids[0], ids[2][: mask[2].sum()]]
    expected, found = (list(model.log_probabilities(texts, [[1, 4], [3]], [5, 2])) for model in models)
    for ours, theirs in zip(found, expected, strict=True):
        close(ours, theirs)
    theirs_by_number, ours_by_number = (
        dict(pseudo_likelihood.log_probabilities(model, texts, "masked")) for model in models
    )
    for number, theirs in theirs_by_number.items():
        close(ours_by_number[number], theirs)
    pools: tuple[Pool, ...] = ("mean", "cls", "max", "none")
    for pool in pools:
        encoders = [run.encoder(engine=name) for name in BOTH]
        readers = [hidden_states.Reader(run, one, layers=(-1, 1), pool=pool, compiled=False) for one in encoders]
        for theirs, ours in zip(*(reader.encode(HOSTILE) for reader in readers), strict=True):
            close(ours.features, theirs.features)


@pytest.fixture
def unquantised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports in 8 bits keep float32, so that the engine that reads them can be compared exactly, without NNCF."""
    monkeypatch.setattr(quantizing, "check", lambda *_: None)
    monkeypatch.setattr(quantizing, "narrowed", lambda *_: lambda model: (model, {}))


def in_8_bits(run: Path) -> Path:
    """Export a run to where the engine reads it."""
    (run.parent / "dev.txt").write_text("a river\n")
    calibration = ["--calibration", str(run.parent / "dev.txt"), "--score", "false"]
    export.main(["openvino", str(run), str(run / "int8"), "--int8", "true", *calibration])
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["answer", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("choose", "tag"))]
)
def test_the_file_in_8_bits_gives_the_states_to_each_head(kind: str, tmp_path: Path, unquantised: None) -> None:
    folder = runs.of_questions(tmp_path / kind) if kind == "answer" else runs.of_task(tmp_path / kind, kind)
    in_8_bits(folder)
    arrays = dict(zip(("input_ids", "input_mask", "segment_ids"), rows(tokens=17), strict=True))
    if kind == "choose":
        arrays = {name: np.stack([array, array[::-1], array], axis=1) for name, array in arrays.items()}
    expected, found = (of_task(folder, name).outputs(arrays) for name in ("tensorflow", "openvino_int8"))
    inside = arrays["input_mask"] > 0 if kind in ("answer", "tag") else slice(None)
    for ours, theirs in zip(found, expected, strict=True):
        close(ours[inside], theirs[inside])


@pytest.mark.slow
def test_the_file_in_8_bits_of_an_encoder_alone_gives_its_states(tmp_path: Path, unquantised: None) -> None:
    folder = runs.save(tmp_path / "run", variables(random_encoder()), {"embedding": {"pool": "cls"}})
    run = Run.open(in_8_bits(folder))
    found, expected = (
        run.encoder(engine=name).function(lambda x, mask: x[0], compiled=False)(*rows()).numpy()[rows()[1] > 0]
        for name in ("openvino_int8", "tensorflow")
    )
    close(found, expected)


@pytest.mark.slow
def test_the_file_in_8_bits_gives_words_and_embeddings(tmp_path: Path, unquantised: None) -> None:
    run = Run.open(in_8_bits(runs.of_pretraining(tmp_path / "run")))
    names: tuple[EngineName, ...] = ("tensorflow", "openvino_int8")
    models = [MaskedWords(run, batch=2, engine=name, compiled=False) for name in names]
    ids, mask, _ = rows(tokens=11)
    texts = [ids[0], ids[2][: mask[2].sum()]]
    for theirs, ours in zip(*(one.log_probabilities(texts, [[1, 4], [3]], [5, 2]) for one in models), strict=True):
        close(ours, theirs)
    encoders = [run.encoder(engine=name) for name in names]
    readers = [hidden_states.Reader(run, one, pool="mean", compiled=False) for one in encoders]
    for theirs, ours in zip(*(reader.encode(HOSTILE) for reader in readers), strict=True):
        close(ours.features, theirs.features)
    with pytest.raises(UsageError, match="gives the last layer alone"):
        hidden_states.Reader(run, encoders[1], layers=(1,), pool="mean", compiled=False)


@pytest.mark.slow
def test_8_bits_of_other_weights_are_refused(tmp_path: Path, unquantised: None) -> None:
    run = runs.of_task(tmp_path / "run", "classify")
    with pytest.raises(InputError, match=r"int8: no such folder, .*; run python -m bert.export openvino"):
        loading.load(run, engine="openvino_int8")
    loading.load(in_8_bits(run), engine="openvino_int8")
    damaged = run / "int8" / "openvino_model.bin"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(IntegrityError, match=r"model\.bin"):
        loading.load(run, engine="openvino_int8")
    damaged.write_bytes(content)
    head = Run.open(run).head
    assert head is not None
    weights = {name: weight + 1 for name, weight in variables(TaskModel(CONFIG, 5, head)).items()}
    checkpoint.save(run, 4, weights, keep=1)
    with pytest.raises(InputError, match="not the 8 bits of the checkpoint that is used; remove it"):
        loading.load(run, engine="openvino_int8")


@pytest.mark.slow
def test_a_service_takes_a_new_checkpoint_once_its_8_bits_are_there(
    tmp_path: Path, unquantised: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run = in_8_bits(runs.of_task(tmp_path / "run", "classify"))
    served = Models({"run": run}, "float32", 8, "openvino_int8")
    assert served.reload() == []
    head = Run.open(run).head
    assert head is not None
    checkpoint.save(run, 4, variables(TaskModel(CONFIG, 5, head)), keep=1)
    assert served.reload() == [] and "remove it and run python -m bert.export openvino" in capsys.readouterr().err
    shutil.rmtree(run / "int8")  # what the message asks for
    in_8_bits(run)
    assert served.reload() == ["run"] and served.all()[0].details["checkpoint"] == "step-00000004"
    assert served.reload() == []


@pytest.mark.slow
def test_8_bits_that_are_not_served_load_nothing_again(tmp_path: Path, unquantised: None) -> None:
    run = runs.of_task(tmp_path / "run", "classify")
    served = Models({"run": run}, "float32", 8, "tensorflow")
    in_8_bits(run)
    assert served.reload() == []


@pytest.mark.slow
def test_vectors_in_8_bits_do_not_stand_beside_others_in_an_index(tmp_path: Path, unquantised: None) -> None:
    run, texts, made = in_8_bits(runs.of_pretraining(tmp_path / "run")), tmp_path / "texts.txt", tmp_path / "library"
    texts.write_text("a river\n")
    index = ["index", str(texts), str(made), "--model", str(run), "--engine"]
    search.main([*index, "openvino_int8"])
    vectors = np.load(made / "vectors.npy")
    search.main([*index, "openvino_int8"])  # up to date
    for name in BOTH:
        with pytest.raises(InputError, match="an index with another compute; remove it, or choose another folder"):
            search.main([*index, name])
    np.testing.assert_array_equal(np.load(made / "vectors.npy"), vectors)


def test_the_type_of_products_is_that_of_the_flag() -> None:
    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor has no bfloat16")
    made = random_encoder()
    (expected,), (exact,), (rounded,) = (
        states(made, "tensorflow"),
        states(made, "openvino"),
        states(made, "openvino", "bfloat16"),
    )
    close(exact, expected)
    assert 1e-3 < np.abs(rounded - expected).max() < 0.1


def test_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, compiled: list[str]) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise AssertionError("telemetry was started")

    monkeypatch.setattr("openvino_telemetry.Telemetry.__new__", fail)
    monkeypatch.setattr("socket.socket.connect", fail)
    assert len(states(random_encoder(), "openvino")) == len(compiled) == 1


SIGNALLED = """
import gc, os, signal, threading
from tests.extensions.openvino.test_openvino import of_openvino, random_encoder
made = [of_openvino.OpenVINOEncoder(random_encoder(seed=n), "float32") for n in range(3)]
for one in made:
    one._model((1,), False)
thread = threading.Thread(target=lambda: (made.append(of_openvino.OpenVINOEncoder(random_encoder(seed=7), "float32")),
    made[-1]._model((1,), False), made.pop(0)))
thread.start()
thread.join()
del one, made[0]
gc.collect()
made.clear()
gc.collect()
signal.signal(signal.SIGTERM, lambda number, frame: print("received"))
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.slow
def test_a_signal_is_received_after_models_were_freed_in_any_order() -> None:
    """Each of OpenVINO's cores puts another stack for handlers of signals in place, and back when it is freed."""
    process = [sys.executable, "-X", "faulthandler", "-c", SIGNALLED]  # faulthandler makes the first such stack
    done = subprocess.run(process, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "received\n"), done.stderr[-2000:]


@pytest.mark.slow
def test_a_compiled_model_is_read_by_the_next_start(workdir: Path, compiled: list[str]) -> None:
    first = states(random_encoder(), "openvino")[0]
    assert len(compiled) == 1 and len(kept(workdir)) == 1
    second = states(random_encoder(), "openvino")[0]
    assert len(compiled) == 1, "it is read from the disk"
    np.testing.assert_array_equal(first, second)
    other = states(random_encoder(seed=4), "openvino")[0]  # other weights
    states(random_encoder(), "openvino", "bfloat16")
    assert len(compiled) == len(kept(workdir)) == 3
    close(other, states(random_encoder(seed=4), "tensorflow")[0])


def test_other_code_of_the_graph_compiles_anew(
    workdir: Path, compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states(random_encoder(), "openvino")
    (tmp_path / "other.py").write_text("# a version between two releases")
    monkeypatch.setattr(of_openvino, "GRAPH", (tmp_path / "other.py",))
    states(random_encoder(), "openvino")
    assert len(compiled) == len(kept(workdir)) == 2


def kept(workdir: Path) -> list[Path]:
    return sorted((workdir / "cache" / "openvino").glob("*.blob"), key=lambda path: path.stat().st_mtime)


@pytest.mark.slow
def test_a_damaged_compiled_model_is_compiled_anew(workdir: Path, compiled: list[str]) -> None:
    expected = states(random_encoder(), "openvino")[0]
    (path,) = kept(workdir)
    content = bytearray(path.read_bytes())
    for damaged in (content[:-100], content[:20], b"", bytes([*content[:-200], content[-200] ^ 1, *content[-199:]])):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(states(random_encoder(), "openvino")[0], expected)
    assert len(compiled) == 5 and len(path.read_bytes()) == len(content)


def test_compiled_models_have_a_bounded_size(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states(random_encoder(), "openvino")
    (first,) = kept(workdir)
    os.utime(first, (0, 0))
    monkeypatch.setattr(of_openvino, "KEPT", int(2.5 * first.stat().st_size))
    for seed in (4, 5):
        states(random_encoder(seed), "openvino")
    assert len(kept(workdir)) == 2 and not first.exists()


def test_a_folder_that_others_may_write_to_is_not_read(workdir: Path, compiled: list[str]) -> None:
    states(random_encoder(), "openvino")
    (workdir / "cache" / "openvino").chmod(0o777)
    states(random_encoder(), "openvino")
    assert len(compiled) == 2


def test_without_a_work_folder_compiled_models_are_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "nothing"))
    monkeypatch.setattr(of_openvino.paths.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    states(random_encoder(), "openvino")
    (folder,) = (tmp_path / "temporary").iterdir()
    assert not folder.stat().st_mode & 0o077 and len(list(folder.glob("*.blob"))) == 1
    assert not (tmp_path / "nothing").exists()


def written(folder: Path, main: Callable[[list[str]], None], *words: object, suffix: str = ".jsonl") -> list[Any]:
    """What a command writes by each engine."""
    found = []
    for name in BOTH:
        output = folder / f"{name}{suffix}"
        main([*map(str, words), "--output", str(output), "--engine", name])
        text = output.read_text()
        found.append(json.loads(text) if suffix == ".json" else [json.loads(line) for line in text.splitlines()])
    return found


def alike(found: Any, expected: Any) -> None:
    """Check that numbers are close and everything else is equal."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            alike(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            alike(one, other)
    else:
        assert found == (pytest.approx(expected, abs=CLOSE) if isinstance(expected, float) else expected)


@pytest.mark.slow
def test_commands_write_the_same_with_both_engines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [text for text in HOSTILE if text.strip() and "\n" not in text]
    lines, classes, words = tmp_path / "lines.txt", tmp_path / "classes.jsonl", tmp_path / "words.txt"
    lines.write_text("".join(f"{text}\n" for text in texts))
    words.write_text("".join(f"{text} [MASK] a [MASK]\n" for text in texts[:4]))
    labels = ["no", "yes", "perhaps"] * len(texts)
    rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=False)]
    classes.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fill, classify = runs.of_pretraining(tmp_path / "fill"), runs.of_task(tmp_path / "classify", "classify")
    answer = runs.of_questions(tmp_path / "answer")
    alike(*written(tmp_path, encode.main, fill, "--input", lines)[::-1])
    alike(*written(tmp_path, fill_mask.main, fill, "--input", words)[::-1])
    alike(*written(tmp_path, predict.main, classify, "--input", classes)[::-1])
    questions = tmp_path / "questions.json"
    asked = [{"id": str(number), "question": "Which river?"} for number in range(len(texts))]
    paragraphs = [{"context": text, "qas": [one]} for text, one in zip(texts, asked, strict=True)]
    questions.write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]}))
    alike(*written(tmp_path, squad_predict.main, answer, "--dataset", questions, suffix=".json")[::-1])
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("the river\nthe cat river\na b\nb a\n")
    alike(*written(tmp_path, minimal_pairs.main, fill, "--data", pairs, suffix=".json")[::-1])
    capsys.readouterr()
    for name in BOTH:
        evaluate.main([str(classify), "--input", str(classes), "--engine", name])
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == second and first["examples"] == len(texts)


@pytest.mark.slow
def test_python_and_the_service_take_the_engine(tmp_path: Path, compiled: list[str]) -> None:
    folder = runs.of_task(tmp_path / "classify", "classify")
    theirs, ours = (api.load(folder, engine=name) for name in BOTH)
    expected, found = theirs.classify("the river"), ours.classify("the river")
    assert found.probabilities == pytest.approx(expected.probabilities, abs=CLOSE)
    close(ours.embed(["the river", "a"]), theirs.embed(["the river", "a"]))
    assert len(compiled) == 1, "both uses have one model"
    for name, told in (("auto", "openvino"), ("openvino", "openvino"), ("tensorflow", "tensorflow")):
        (served,) = Models({"m": folder}, "float32", 8, name).all()  # type: ignore[arg-type]
        assert served.details["engine"] == told
