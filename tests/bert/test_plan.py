"""The plan says what the run then is."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert import plan
from bert.config import ModelConfig
from bert.errors import UsageError
from bert.model import variables
from bert.pretrain import PretrainingModel
from bert.recipes import RECIPES, SIZES


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_parameters_are_those_of_the_model(placement: Any, model_config: ModelConfig) -> None:
    model = dataclasses.replace(model_config, norm_placement=placement)
    counted = sum(int(np.prod(weight.shape)) for weight in variables(PretrainingModel(model, seed=1)).values())
    assert plan.parameters(model) == counted


def test_recomputed_activations_need_little_more_than_one_layer() -> None:
    config = RECIPES["bert_1300m"]()
    kept = dataclasses.replace(config, model=dataclasses.replace(config.model, recompute_activations=False))
    less, more = (plan.activations(one, 512, 80) for one in (config, kept))
    assert more / 24 < less < more / 6


def test_fused_attention_keeps_no_weights() -> None:
    config = RECIPES["bert_large_dgxh100_phase2"]()
    model = dataclasses.replace(config.model, attention_probs_dropout_prob=0.0, fused_attention=True)
    kept, less = (plan.activations(one, 512, 80) for one in (config, dataclasses.replace(config, model=model)))
    assert kept - less == 24 * config.batch.per_device * 5 * 16 * 512**2


def test_the_plan_of_the_published_run() -> None:
    config = RECIPES["bert_large_dgx1_phase1"]()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30528))
    said = plan.describe(config, 256, sequence=128, predictions=20, available=1_000_000)
    assert said["ranks"] == "256, each 4 micro-batches of 60 an update"
    assert said["tokens"].startswith("59,029,585,920")
    assert said["data"] == "1,000,000 sequences, gone through 461.17 times"
    with pytest.raises(UsageError, match="not a multiple"):
        plan.describe(config, 7, sequence=128, predictions=20, available=1)


def test_the_command_prints_it_and_starts_nothing(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bert import pretrain

    run = tmp_path / "run"
    pretrain.main(["demo_phase1", "--data.train", str(dataset), "--run.directory", str(run), "--print", "2"])
    assert "ranks              2, each 1 micro-batches of 32" in capsys.readouterr().out and not run.exists()
    with pytest.raises(UsageError, match="--print x"):
        pretrain.main(["demo_phase1", "--print", "x"])


@pytest.mark.parametrize(("size", "millions"), [("large", 336), ("1300m", 1280), ("3900m", 3869)])
def test_large_models_have_the_published_sizes(size: str, millions: int) -> None:
    model = dataclasses.replace(SIZES[size], vocab_size=30522)
    assert plan.parameters(model) == pytest.approx(millions * 1e6, rel=2e-3)


@pytest.mark.parametrize(("sequence", "predictions", "teraflops"), [(128, 20, 0.242), (512, 80, 1.02)])
def test_the_arithmetic_of_bert_large_is_what_others_count(sequence: int, predictions: int, teraflops: float) -> None:
    model = dataclasses.replace(SIZES["large"], vocab_size=30522)
    assert plan.flops(model, sequence, predictions) == pytest.approx(teraflops * 1e12, rel=0.01)
    read = predictions + 1
    spared = 3 * 2 * (sequence - read) * (1024 * 1024 + 2 * 1024 * 4096)  # past the attention of one layer
    whole = plan.flops(model, sequence, predictions)
    assert whole - plan.flops(model, sequence, predictions, states=read) == pytest.approx(spared)
