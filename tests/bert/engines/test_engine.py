"""Which engine computes a model, and what is said where OpenVINO cannot."""

import dataclasses
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from bert import api
from bert.core.config import ModelConfig
from bert.core.errors import UsageError
from bert.engines import engine
from bert.hardware import devices
from bert.hardware.choices import Compute, EngineName
from bert.model.encoder import Encoder
from extensions.minimal_pairs import minimal_pairs
from serve.models import Models
from tests.bert.export.served import CONFIG
from tests.extensions.gpt.runs import write_run
from tests.serve import runs


@pytest.mark.slow
@pytest.mark.parametrize("package", ["openvino", "onnx"])
def test_without_the_package_auto_is_tensorflow(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert engine.choose("auto", CONFIG, "float32") == "tensorflow"
    models = Models({"m": runs.of_task(tmp_path / "m", "classify")}, "float32", 8, "auto")
    assert [one.details["engine"] for one in models.all()] == ["tensorflow"]
    with pytest.raises(UsageError, match=rf"^--engine openvino: {package} is not installed; run make setup, or give"):
        engine.choose("openvino", CONFIG, "float32")


@pytest.mark.parametrize(
    ("changed", "compute", "message"),
    [
        ({"causal": True}, "float32", "it does not compute causal models; give --engine tensorflow"),
        ({}, "float16", "it has no float16 on CPUs; give --compute float32 or bfloat16"),
        ({"num_hidden_layers": 900, "hidden_size": 4998}, "float32", "it does not take models of more than 2 GB; give"),
    ],
)
def test_what_openvino_cannot_compute_is_refused_or_left_to_tensorflow(
    changed: dict[str, object], compute: Compute, message: str
) -> None:
    config: ModelConfig = dataclasses.replace(CONFIG, **changed)  # type: ignore[arg-type]
    assert engine.choose("auto", config, compute) == engine.choose("tensorflow", config, compute) == "tensorflow"
    asked: tuple[EngineName, ...] = ("openvino", "openvino_int8")
    for name in asked:
        with pytest.raises(UsageError, match=f"^--engine {name}: {message}"):
            engine.choose(name, config, compute)


def test_a_gpu_is_tensorflows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    assert engine.choose("auto", CONFIG, "float32") == "tensorflow"
    with pytest.raises(UsageError, match=r"the device is a GPU; give --device cpu, or --engine tensorflow$"):
        engine.choose("openvino", CONFIG, "float32")


def test_commands_refuse_the_engine_for_a_causal_model(tmp_path: Path) -> None:
    run, data = write_run(tmp_path / "run"), tmp_path / "pairs.txt"
    data.write_text("the the\nthe cat\n")
    with pytest.raises(UsageError, match=r"^--engine openvino: it does not compute causal models"):
        minimal_pairs.main([str(run), "--data", str(data), "--engine", "openvino"])
    with pytest.raises(UsageError, match=r"^--engine openvino: it does not compute causal models"):
        api.load(run, engine="openvino")


@pytest.mark.parametrize(("flags", "warned"), [("fpu avx512f avx512bw", 1), ("fpu avx512_bf16", 0), ("amx_bf16", 0)])
def test_bfloat16_that_the_processor_emulates_is_warned_of_once(
    flags: str, warned: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    monkeypatch.setattr(engine, "CPU", tmp_path / "cpuinfo")
    engine.warn_of_emulation.cache_clear()
    encoder = Encoder(CONFIG, 1)
    for compute in ("float32", "bfloat16", "bfloat16"):
        assert engine.make(encoder, compute, "tensorflow").dtype == tf.as_dtype(compute)
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("warning: --compute bfloat16: this processor emulates it") for line in lines] == [
        True
    ] * warned
