"""An activation is a row of one table: with that alone a model is trained, answers, and is exported or refused."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.activations import ACTIVATIONS, Activation
from bert.core.config import BatchConfig, ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig
from bert.core.errors import InputError, UsageError
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, TokenBatch, variables
from bert.model.inference import InferenceEncoder
from bert.pretraining import Pretraining
from bert.recipes import choose
from bert.text.records import Dataset
from bert.text.sampler import BatchSampler
from bert.training.communicator import Communicator
from bert.training.optimizer import Optimizer
from bert.training.step import Step


def relu(tf: Any, x: Any) -> Any:
    return tf.maximum(x, 0.0)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu", "silu"])
def test_a_row_is_its_published_formula(name: str) -> None:
    x = np.linspace(-6, 6, 97)
    gaussian = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x])
    formulas = {
        "gelu": x * gaussian,
        "gelu_tanh": 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        "relu": np.where(x > 0, x, 0),
        "silu": x / (1 + np.exp(-x)),
    }
    found = ACTIVATIONS[name].formula(tf, tf.constant(x, tf.float32))
    np.testing.assert_allclose(found, formulas[name], atol=1e-6)


@pytest.fixture(params=[None, lambda graph, x: graph.node("Relu", x)], ids=["without ONNX", "with ONNX"])
def row(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Activation:
    row = Activation(relu, onnx=request.param)
    monkeypatch.setitem(ACTIVATIONS, "ramp", row)
    return row


@pytest.mark.slow
def test_a_model_with_it_is_trained_and_answers(row: Activation, model_config: ModelConfig, dataset: Path) -> None:
    config = dataclasses.replace(model_config, hidden_act="ramp", hidden_dropout_prob=0.0)
    task = Pretraining(config, seed=3)
    weights = variables(task.module)
    step = Step(
        task,
        Optimizer(weights, OptimizerConfig(learning_rate=1.0)),
        Communicator(),
        PrecisionConfig(),
        RunConfig(seed=4),
    )
    batches = BatchSampler(Dataset(dataset, "train"), BatchConfig(total=6, per_device=6), seed=1).read(0)
    losses = [step.update(number, batches, rate=1e-2)["loss"] for number in range(1, 9)]
    assert losses[-1] < 0.9 * losses[0]
    encoder, kernel = task.module.encoder, weights["layer_1/mlp/outer/kernel"]
    ids, mask, segments = (batches[0][name] for name in ("input_ids", "input_mask", "segment_ids"))

    def hidden() -> tf.Tensor:
        return encoder(TokenBatch(ids, mask, segments), Mode(tf.float32, DropoutRng(None)))

    before = hidden()
    np.testing.assert_allclose(InferenceEncoder(encoder, tf.float32)(ids, mask, segments), before, atol=1e-5)
    kernel.assign_add(tf.ones_like(kernel))
    assert not np.allclose(hidden(), before)
    weights["layer_1/mlp/inner/bias"].assign(tf.fill(weights["layer_1/mlp/inner/bias"].shape, -1e3))
    silent = hidden()  # all inner values of the last layer are 0 now, whatever the outer kernel is
    kernel.assign_add(tf.ones_like(kernel))
    np.testing.assert_array_equal(hidden(), silent)


def test_its_name_is_a_value_of_the_flag_and_of_the_file(row: Activation, tmp_path: Path) -> None:
    config = choose(["demo_phase1", "--model.hidden_act", "ramp"], prog="bert.pretrain", description="")[0].config
    assert config.model.hidden_act == "ramp"
    config.model.save(tmp_path / "bert_config.json")
    assert ModelConfig.load(tmp_path / "bert_config.json") == config.model


def test_a_name_that_no_row_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"hidden_act.*'ramp'.*gelu"):
        choose(["demo_phase1", "--model.hidden_act", "ramp"], prog="bert.pretrain", description="")
    (tmp_path / "bert_config.json").write_text(json.dumps({"hidden_act": "ramp"}))
    with pytest.raises(InputError, match="hidden_act 'ramp': must be one of gelu, gelu_tanh, relu, silu"):
        ModelConfig.load(tmp_path / "bert_config.json")


@pytest.mark.slow
def test_a_model_with_it_is_exported_as_its_row_says_or_refused(row: Activation, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="it writes the model")
    pytest.importorskip("onnxruntime", reason="it computes the model")
    from tests.bert.export.test_onnx import a_run, exported, logits

    run = a_run(tmp_path / "run", "words", hidden_act="ramp")
    if row.onnx is None:
        with pytest.raises(InputError, match="hidden_act ramp has no form in ONNX"):
            exported(run, tmp_path / "onnx")
        return
    found, ours, mask = logits(exported(run, tmp_path / "onnx"), run, tokens=7)
    np.testing.assert_allclose(found[0][mask > 0], ours[0][mask > 0], atol=1e-4)
