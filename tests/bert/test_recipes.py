"""Recipes agree with the published ones: accumulation by number of ranks, global learning rates, lengths."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bert.recipes import RECIPES, SMOKE
from tests.training import losses, write_tokens


@pytest.mark.parametrize(
    ("recipe", "gpus", "accumulation"),  # of one node; on 1, 4, 16 and 32 of them
    [
        ("bert_large_dgx1_phase1", 8, (128, 32, 8, 4)),  # configurations.yml of NVIDIA's TensorFlow 2 recipe
        ("bert_large_dgx1_phase2", 8, (384, 96, 24, 12)),
        ("bert_large_dgx1_phase1", 16, (64, 16, 4, 2)),  # DGX-2
        ("bert_large_dgx1_phase2", 16, (192, 48, 12, 6)),
        ("bert_large_dgxa100_phase1", 8, (32, 8, 2, 1)),  # of its PyTorch recipe
        ("bert_large_dgxa100_phase2", 8, (128, 32, 8, 4)),
        ("bert_large_phase1", 16, (64, 16, 4, 2)),
    ],
)
def test_accumulation_is_that_of_the_published_tables(recipe: str, gpus: int, accumulation: tuple[int, ...]) -> None:
    batch = RECIPES[recipe]().batch
    assert tuple(batch.accumulation(nodes * gpus) for nodes in (1, 4, 16, 32)) == accumulation


@pytest.mark.parametrize(
    ("recipe", "rate_of_one", "gpus"),
    [
        ("bert_large_dgx1_phase1", 7.5e-4, 8),
        ("bert_large_dgx1_phase2", 5e-4, 8),
        ("bert_large_dgx1_phase1", 2.34375e-5, 256),
        ("bert_large_dgx1_phase2", 7.8125e-6, 512),
    ],
)
def test_rates_are_the_published_ones_times_their_gpus(recipe: str, rate_of_one: float, gpus: int) -> None:
    assert RECIPES[recipe]().optimizer.learning_rate == pytest.approx(rate_of_one * gpus)


def test_the_two_phases_of_lamb_see_as_many_tokens_as_published() -> None:
    first, second = RECIPES["bert_large_phase1"](), RECIPES["bert_large_phase2"]()
    assert first.run.steps * first.batch.total * 128 == pytest.approx(59.0e9, rel=2e-3)
    assert second.run.steps * second.batch.total * 512 == pytest.approx(26.3e9, rel=5e-3)


@pytest.mark.parametrize(
    ("source", "recipes", "optimizer"),
    [
        # NVIDIA's TensorFlow recipes adapt all variables, its PyTorch recipe and MLPerf's reference those that decay.
        ("TensorFlow 2", ["bert_large", "bert_large_dgx1", "bert_large_superpod", "bert_large_float32"], "lamb"),
        ("PyTorch", ["bert_large_dgxa100", "bert_large_dgxh100"], "nvlamb"),
    ],
)
def test_lamb_adapts_what_its_source_adapts(source: str, recipes: list[str], optimizer: str) -> None:
    for config in [RECIPES[f"{recipe}_phase{phase}"]() for recipe in recipes for phase in (1, 2)]:
        found = config.optimizer
        assert (found.name, found.decay_power, found.clip_norm, found.first_step) == (optimizer, 0.5, 1.0, 0), source
    assert RECIPES["bert_large_mlperf"]().optimizer.name == "nvlamb"


def test_megatron_s_models_have_its_epsilon() -> None:
    names = [name for name in RECIPES if name.startswith("gpt2") or name in ("bert_1b3", "bert_3b9")]
    assert len(names) == 7 and {RECIPES[name]().optimizer.epsilon for name in names} == {1e-8}


def different_in_miniature() -> list[str]:
    """One recipe of each group that the shrinking makes equal, but for rates and the length of sequences."""
    first: dict[str, str] = {}
    for name, recipe in SMOKE.items():
        config = recipe()
        model = dataclasses.replace(config.model, max_position_embeddings=512)
        optimizer = dataclasses.replace(config.optimizer, learning_rate=1.0)
        first.setdefault(repr(dataclasses.replace(config, model=model, optimizer=optimizer)), name)
    return list(first.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", different_in_miniature())
def test_every_recipe_runs_in_miniature(name: str, dataset: Path, tmp_path: Path, run_module: Any) -> None:
    # A process for each, as a user runs them: memory of compiled programs does not add up.
    xla = str(name == "bert_large_phase1").lower()  # one only, because compilation takes long
    causal = RECIPES[name]().model.causal
    data = write_tokens(tmp_path / "tokens") if causal else dataset
    flags = ["--smoke", "--data.train", data, "--precision.xla", xla, *(["--data.length", "13"] if causal else [])]
    done = run_module("bert.pretrain", name, *flags, timeout=600, BERT_WORKDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    logged = losses(tmp_path / "pretrain" / f"{name}_smoke").values()
    assert len(logged) == 4 + 2 and all(0 < loss < 20 for loss in logged)
