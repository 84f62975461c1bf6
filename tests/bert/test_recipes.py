"""Recipes agree with the published ones: accumulation by number of ranks, global learning rates, lengths."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core.config import PretrainConfig, flatten
from bert.core.errors import UsageError
from bert.recipes import RECIPES, SIZES, choose
from tests.training import losses, train_here, write_dataset, write_tokens

# The fields that a configuration had when a recipe was a function, and the first digits of the SHA-256 of each
# configuration, as recipe and in miniature. Fields that came later are not of it.
FIELDS = """
    batch.bucket_by_length batch.fit batch.max_per_device batch.pack batch.per_device batch.total budget.hours
    data.length data.skip_bad data.train init.checkpoint init.frozen_layers model.attention_probs_dropout_prob
    model.causal model.fused_attention model.hidden_act model.hidden_dropout_prob model.hidden_size
    model.initializer_range model.intermediate_size model.layer_norm_epsilon model.max_position_embeddings
    model.norm_placement model.num_attention_heads model.num_hidden_layers model.position_initializer
    model.recompute_activations model.type_vocab_size model.vocab_multiple model.vocab_size optimizer.beta_1
    optimizer.beta_2 optimizer.clip_norm optimizer.continuous optimizer.decay_power optimizer.decay_steps
    optimizer.epsilon optimizer.first_step optimizer.layer_decay optimizer.learning_rate optimizer.minimum_rate
    optimizer.name optimizer.schedule optimizer.warmup_start optimizer.warmup_steps optimizer.weight_decay
    parallel.bucket_megabytes parallel.overlap parallel.shard_optimizer parallel.tensor precision.compress
    precision.compute precision.xla run.deterministic run.device run.directory run.evaluate_every
    run.evaluate_sequences run.keep run.keep_every run.log_every run.max_skipped run.on_spike run.patience
    run.peak_teraflops run.profile run.save_every run.seed run.spike_factor run.stall_seconds run.steps
    run.target_accuracy
"""
FROZEN = {
    "bert_base_phase1": ("faebb5d5f676", "545c560a5593"),
    "bert_base_phase2": ("c69db9711afb", "545c560a5593"),
    "bert_large_adam_phase1": ("48eeada6cc58", "545c560a5593"),
    "bert_large_adam_phase2": ("0bf6430aa717", "545c560a5593"),
    "bert_1b3": ("fb4a0a46ddab", "80ee18630f83"),
    "bert_3b9": ("bfd303732bc2", "80ee18630f83"),
    "bert_large_phase1": ("82f3daddfb36", "ece79e37594e"),
    "bert_large_phase2": ("23d510cf523e", "da496f78f8d9"),
    "bert_large_float32_phase1": ("075d3d73c76d", "2091c869c08b"),
    "bert_large_float32_phase2": ("9e2dbab8641a", "15bfb5f52088"),
    "bert_large_dgx1_phase1": ("f36342146623", "b354b237390b"),
    "bert_large_dgx1_phase2": ("bb9879848d63", "7e7176fdc662"),
    "bert_large_superpod_phase1": ("e1356ffd0233", "b354b237390b"),
    "bert_large_superpod_phase2": ("b6a61a5ed68a", "7e7176fdc662"),
    "bert_large_dgxa100_phase1": ("b2422cbd5d5b", "7fa21717cdec"),
    "bert_large_dgxa100_phase2": ("b3e77e98374b", "6c3be8fad991"),
    "bert_large_dgxh100_phase1": ("1816dc32eedd", "6e3d301f2090"),
    "bert_large_dgxh100_phase2": ("ad12fbf4b30b", "83c973b7ad9e"),
    "bert_large_mlperf": ("85ab9a30cbc1", "bc927b5444cf"),
    "bert_large_24h": ("1ef9f51a255c", "e29cc56fd9a0"),
    "bert_small_corpus": ("30f3337f4bd0", "ec295eb5bfbf"),
    "electra_small": ("81f8794287a9", "a78a2af374b3"),
    "electra_tiny": ("7843ac4b99fd", "9799c41546a7"),
    "bert_domain": ("e53953e1fff8", "b9f6bdab7073"),
    "bert_tiny_phase1": ("a98411038562", "20116a01ad81"),
    "bert_tiny_phase2": ("5beb42921664", "2b77f8db5e7a"),
    "bert_mini_phase1": ("ac734c0333c4", "98b6ce2b157c"),
    "bert_mini_phase2": ("c945b3b284fd", "63bc9245cd17"),
    "demo_phase1": ("04244bca92e6", "44bd92a6e08c"),
    "demo_phase2": ("40ad3404116b", "0039987f11e6"),
    "gpt2_smoke": ("dc53dd3f3cbf", "ae81a4dc49da"),
    "gpt2_117m": ("76ba4cfa51b8", "89c6b2bede51"),
    "gpt2_345m": ("365f3ad1979f", "087f04a9c8d5"),
    "gpt2_2b5": ("690dbc688571", "90a7be864db5"),
    "gpt2_8b3": ("c0d3e661e553", "90a7be864db5"),
}
WHOLE = {"bert_base", "bert_large_adam", "bert_large", "bert_large_float32", "bert_large_dgx1", "bert_large_superpod",
         "bert_large_dgxa100", "bert_large_dgxh100", "bert_tiny", "bert_mini", "demo"}  # fmt: skip

DISTILLED = {"distilbert", "tinybert_4x312", "tinybert_6x768", "minilm_6x384", "minilm_12x384"}
MODERN = {"bert_modern_small", "bert_modern_base", "bert_modern_large"}


def config(name: str) -> PretrainConfig:
    (phase,) = RECIPES[name].phases
    return phase.config


def digest(config: PretrainConfig) -> str:
    needs_weights = config.init.checkpoint is None  # which `flatten` does not distinguish from random weights
    values = flatten(config)
    values["run.target_accuracy"] /= 100  # it was a share
    text = json.dumps([{name: values[name] for name in FIELDS.split()}, needs_weights], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def test_every_name_has_the_configuration_that_it_had() -> None:
    for name, (recipe, miniature) in FROZEN.items():
        (small,) = RECIPES[name].miniature().phases
        assert (digest(config(name)), digest(small.config)) == (recipe, miniature), name


def test_a_name_without_phase_has_both_and_each_phase_has_a_name() -> None:
    assert RECIPES.keys() == FROZEN.keys() | WHOLE | MODERN | DISTILLED
    for name in WHOLE:
        first, second = RECIPES[name].phases
        assert (first, second) == tuple(RECIPES[f"{name}_phase{number}"].phases[0] for number in (1, 2))
        assert (first.name, second.name) == (f"{name}_phase1", f"{name}_phase2")
        assert (first.after, second.after) == ("", first.name)
        assert first.config.init.checkpoint is not None and second.config.init.checkpoint is None
    assert all(phase.config.run.evaluate_every > 0 for recipe in RECIPES.values() for phase in recipe.phases)


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("bert_base", [(128, 20), (512, 77)]),  # as data.tfrecords makes them: 15 %, rounded up
        ("demo", [(48, 8), (64, 10)]),
        ("bert_large_24h", [(128, 20)]),
        ("bert_large_mlperf", [(512, 76)]),  # of the reference
        ("gpt2_345m", [(1024, 1024)]),
        ("gpt2_smoke", [(64, 64)]),
        ("bert_modern_base", [(128, 39)]),  # 30 %
    ],
)
def test_each_phase_knows_the_lengths_of_its_data(name: str, lengths: list[tuple[int, int]]) -> None:
    assert [(phase.sequence, phase.predictions) for phase in RECIPES[name].phases] == lengths


def test_modern_recipes_have_rotary_positions_and_the_published_schedule() -> None:
    """mosaicml/examples, mosaic-bert-base-uncased.yaml: 286,720,000 samples, warm-up 6 %, decay to 2 % of the peak.

    That and modernbert-base-pretrain.yaml of AnswerDotAI/ModernBERT have equal betas, epsilon and decay; the latter has
    decoupled_stableadamw, whose weights shrink by lr / max_lr * weight_decay in an update.
    """
    for name in MODERN:
        model, optimizer = config(name).model, config(name).optimizer
        assert (model.positions, model.attention_probs_dropout_prob, model.gated) == ("rotary", 0.0, False)
        assert (optimizer.name, optimizer.beta_1, optimizer.beta_2) == ("stableadamw", 0.9, 0.98)
        assert optimizer.epsilon == 1e-6
        assert optimizer.learning_rate * optimizer.weight_decay == pytest.approx(1e-5)
    assert config("bert_modern_small").model.hidden_dropout_prob == 0.0
    for name in MODERN - {"bert_modern_small"}:
        made = config(name)
        assert made.run.steps * made.batch.total == 286_720_000
        assert made.optimizer.warmup_steps == 0.06 * made.run.steps
        assert made.optimizer.minimum_rate == pytest.approx(0.02 * made.optimizer.learning_rate)


def chosen(flags: str) -> list[PretrainConfig]:
    return [phase.config for phase in choose(flags.split(), prog="p", description="")]


def test_flags_are_for_all_phases_or_for_one() -> None:
    first, second = chosen("bert_tiny --run.seed 7 --phase2.run.steps 5 --phase1.batch.total=96 --data.train a b")
    assert (first.run.seed, second.run.seed) == (7, 7)
    assert (first.run.steps, second.run.steps) == (8000, 5)
    assert (first.batch.total, second.batch.total) == (96, 32)
    assert (first.data.train, second.data.train) == (Path("a"), Path("b"))
    for flag in ("--run.directory r", "--run.directory=r"):
        assert [config.run.directory for config in chosen(f"demo {flag}")] == [Path("r/phase1"), Path("r/phase2")]
    assert chosen("bert_tiny_phase2 --run.directory r --data.train a")[0].run.directory == Path("r")
    assert chosen("demo --phase1.init.checkpoint c")[0].init.checkpoint == Path("c")
    taken = chosen("demo --phase1.init.checkpoint c --phase1.init.layers 0 2 --model.num_hidden_layers 2")
    assert [config.init.layers for config in taken] == [(0, 2), ()]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            "bert_tiny --data.train a",
            "1 of 2 folders; give one for each phase of bert_tiny, with sequences of 128 and 512",
        ),
        ("bert_tiny --data.train=a b c", "3 of 2 folders"),
        ("bert_tiny --init.checkpoint r", "each phase starts from the one before; give --phase1.init.checkpoint"),
        ("bert_tiny --phase2.init.checkpoint r", "leave it out, or run bert_tiny_phase2"),
        ("bert_tiny --init.layers 0 1", "all layers of the one before; give --phase1.init.layers"),
        ("bert_tiny --phase2.init.layers 1", "leave it out, or run bert_tiny_phase2"),
        ("bert_base --optimizer.first_step 5", "different places in the schedule"),
        ("bert_tiny --phase3.run.steps 5", "has 2 phases"),
        ("bert_tiny --phase2.run.device cpu", "one process runs all phases; give --run.device"),
        ("bert_tiny --phase2.run.communicator tensorflow", "one process runs all phases; give --run.communicator"),
        ("bert_tiny --phase2.parallel.tensor=2", "give --parallel.tensor"),
        ("bert_tiny --phase2.run.stepz 5", "unknown argument '--run.stepz'; did you mean --run.steps"),
        ("bert_tiny_phase1 --phase1.run.steps 5", "unknown argument '--phase1.run.steps'"),
        ("bert_tiny more", "unknown argument 'more'"),
    ],
)
def test_a_flag_that_cannot_be_meant_is_refused_by_name(flags: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        chosen(flags)


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
    batch = config(recipe).batch
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
    assert config(recipe).optimizer.learning_rate == pytest.approx(rate_of_one * gpus)


def test_the_two_phases_of_lamb_see_as_many_tokens_as_published() -> None:
    first, second = config("bert_large_phase1"), config("bert_large_phase2")
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
    for found in [phase.config.optimizer for recipe in recipes for phase in RECIPES[recipe].phases]:
        assert (found.name, found.decay_power, found.clip_norm, found.first_step) == (optimizer, 0.5, 1.0, 0), source
    assert config("bert_large_mlperf").optimizer.name == "nvlamb"


def test_megatron_s_models_have_its_epsilon() -> None:
    names = [name for name in RECIPES if name.startswith("gpt2") or name in ("bert_1b3", "bert_3b9")]
    assert len(names) == 7 and {config(name).optimizer.epsilon for name in names} == {1e-8}


def test_the_small_corpus_has_the_settings_of_babyberta() -> None:
    # babyberta/params.py and job.py of github.com/phueb/BabyBERTa, commit 050688b
    config = RECIPES["bert_small_corpus"].phases[0].config
    model, optimizer = config.model, config.optimizer
    sizes = (model.num_hidden_layers, model.hidden_size, model.num_attention_heads, model.intermediate_size)
    assert sizes == (8, 256, 8, 1024) and model.layer_norm_epsilon == 1e-5 and model.initializer_range == 0.02
    assert (config.batch.total, model.max_position_embeddings, config.run.steps) == (16, 128, 260_000)
    assert (optimizer.name, optimizer.learning_rate, optimizer.warmup_steps) == ("adam", 1e-4, 24_000)
    assert (optimizer.weight_decay, optimizer.epsilon, optimizer.clip_norm) == (0.0, 1e-6, 1.0)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.continuous) == (0.9, 0.999, True)
    assert config.data.mask_shares == (0.9, 0.1, 0.0)


def test_electra_small_has_the_published_settings() -> None:
    # configure_pretraining.py, run_pretraining.py and training_utils.py of google-research/electra, commit 4e0f2a5
    (phase,) = RECIPES["electra_small"].phases
    config, model, generator = phase.config, phase.config.model, phase.config.further
    assert generator is not None
    sizes = [
        (
            each.num_hidden_layers,
            each.hidden_size,
            each.num_attention_heads,
            each.intermediate_size,
            each.embedding_width,
        )
        for each in (model, generator)
    ]
    assert sizes == [(12, 256, 4, 1024, 128), (12, 64, 1, 256, 128)]
    assert (config.batch.total, phase.sequence, phase.predictions, config.run.steps) == (128, 128, 19, 1_000_000)
    assert config.objective.detection_weight == 50 and config.data.mask_shares == (0.85, 0.0, 0.15)
    optimizer = config.optimizer
    assert (optimizer.name, optimizer.learning_rate, optimizer.warmup_steps) == ("adam", 5e-4, 10_000)
    assert (optimizer.weight_decay, optimizer.epsilon, optimizer.clip_norm) == (0.01, 1e-6, 1.0)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.decay_power, optimizer.decay_steps) == (0.9, 0.999, 1.0, 0)


def test_students_have_the_published_losses() -> None:
    """Of the papers, scripts/extract.py and train.py of DistilBERT, general_distill.py of TinyBERT, MiniLMv2's 4.1."""
    distil = config("distilbert")
    factors = distil.distill.outputs * np.array([distil.distill.weight, 1 - distil.distill.weight])
    np.testing.assert_allclose([*factors, distil.distill.cosine], [5, 2, 1])
    assert (distil.distill.temperature, distil.init.layers) == (2, (0, 2, 4, 7, 9, 11))
    sizes = {}
    for name in DISTILLED:
        model, distill = config(name).model, config(name).distill
        sizes[name] = model.num_hidden_layers, model.hidden_size, model.num_attention_heads, model.intermediate_size
        if name.startswith("tinybert"):
            assert (distill.outputs, distill.distances) == (0, {"hidden": 1, "attention": 1})
            assert distill.teacher_layers(model, SIZES["base"])[:2] == (
                (2, 5) if model.num_hidden_layers == 4 else (1, 3)
            )
        if name.startswith("minilm"):
            assert (distill.outputs, distill.distances) == (0, {"relations": 1})
            assert distill.relation(SIZES["base"]) == (11, 48)
            large = dataclasses.replace(distill, relation_layer=20, relation_heads=64)
            large.check_fit(model, SIZES["large"])
            batch, optimizer, run = config(name).batch, config(name).optimizer, config(name).run
            assert (batch.total, optimizer.learning_rate, optimizer.warmup_steps) == (256, 6e-4, 4000)
            assert (optimizer.weight_decay, optimizer.beta_1, optimizer.beta_2, run.steps) == (
                0.01,
                0.9,
                0.999,
                400_000,
            )
        distill.check_fit(model, SIZES["base"])
    six, narrow = (6, 768, 12, 3072), (384, 12, 1536)
    assert sizes == {
        "distilbert": six,
        "tinybert_6x768": six,
        "tinybert_4x312": (4, 312, 12, 1200),
        "minilm_6x384": (6, *narrow),
        "minilm_12x384": (12, *narrow),
    }


def different_in_miniature() -> list[str]:
    """One recipe of each group that the shrinking makes equal, but for rates and the length of sequences."""
    first: dict[str, str] = {}
    for name in (*FROZEN, *sorted(DISTILLED)):
        small = RECIPES[name].miniature().phases[0].config
        model = dataclasses.replace(small.model, max_position_embeddings=512)
        optimizer = dataclasses.replace(small.optimizer, learning_rate=1.0)
        first.setdefault(repr(dataclasses.replace(small, model=model, optimizer=optimizer)), name)
    return list(first.values())


# A causal model. LAMB with XLA has tests of its own, of commands too (tests/bert/hardware/test_devices.py).
EXAMPLES = ("gpt2_smoke",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.thorough] * (name not in EXAMPLES)) for name in different_in_miniature()],
)
def test_every_recipe_runs_in_miniature(name: str, dataset: Path, tmp_path: Path, run_module: Any) -> None:
    # A process for each, as a user runs them: memory of compiled programs does not add up.
    xla = str(name == "bert_large_phase1").lower()  # one only, because compilation takes long
    causal = config(name).model.causal
    data = write_tokens(tmp_path / "tokens") if causal else dataset
    if config(name).further:
        data = write_dataset(tmp_path / "data", pairs="none")
    flags = ["--smoke", "--data.train", data, "--precision.xla", xla]
    if config(name).distill.distances:
        teacher = ["--model.hidden_size", "64", "--model.num_attention_heads", "2", "--run.steps", "1"]
        train_here(dataset, tmp_path / "teacher", *teacher)
        flags += ["--distill.teacher", tmp_path / "teacher"]
    flags += ["--data.length", "13"] if causal else ["--data.mask_shares", "0.8", "0.1", "0.1"]  # of these data
    done = run_module("bert.pretrain", name, *flags, timeout=600, BERT_WORKDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    logged = losses(tmp_path / "pretrain" / f"{name}_smoke").values()
    most = 60 if config(name).further else 20  # 50 times the loss of the detection, which begins at log 2
    assert len(logged) == 4 + 2 and all(0 < loss < most for loss in logged)
