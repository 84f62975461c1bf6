"""The plan says what the run then is."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig, ObjectiveConfig, OptimizerConfig, ParallelConfig, PretrainConfig
from bert.core.errors import UsageError
from bert.model import cost
from bert.model.encoder import variables
from bert.model.parts import Parts
from bert.pretraining import PretrainingModel
from bert.recipes import RECIPES, SIZES
from extensions.distillation.pretraining import WordTeacher
from extensions.gpt.task import CausalLM
from extensions.replaced_tokens.model import ReplacedTokensModel
from tests.bert.model.test_encoder import MODERN, NEO


@pytest.mark.parametrize(
    "changes", [{}, {"norm_placement": "pre"}, {"embedding_size": 12, "type_vocab_size": 0}, MODERN, NEO]
)
def test_parameters_are_those_of_the_model(changes: dict[str, Any], model_config: ModelConfig) -> None:
    model = dataclasses.replace(model_config, **changes)
    counted = sum(int(np.prod(weight.shape)) for weight in variables(PretrainingModel(model, seed=1)).values())
    assert cost.parameters(model) == counted


@pytest.mark.parametrize("width", [0.4, 0.6])  # 12 is the width of the embeddings: no projection
def test_parameters_of_a_model_with_a_generator_are_those_of_both(width: float, model_config: ModelConfig) -> None:
    model = dataclasses.replace(model_config, embedding_size=12)
    generator = ObjectiveConfig(name="replaced_tokens", generator_width=width, generator_layers=0.5).generator(model)
    assert generator is not None and generator.num_hidden_layers == 1
    counted = variables(ReplacedTokensModel(model, generator, seed=1)).values()
    assert cost.parameters(model, generator) == sum(int(np.prod(weight.shape)) for weight in counted)
    # Three times two operations for each product: of the encoder, the detection, and the generator with its scores.
    plain, small = cost.flops(model, 13, 0), cost.flops(generator, 13, 3, 4)
    assert cost.flops(model, 13, 3, 4, generator=generator) == plain + 6 * 13 * 20 * 21 + small
    assert cost.flops(model, 13, 3) - plain == 6 * 3 * (20 * 12 + 12 * 99)  # the head for masked words


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"embedding_size": 12}, MODERN])
def test_a_part_of_a_model_has_the_parameters_that_are_counted(changes: dict[str, Any]) -> None:
    model = ModelConfig(vocab_size=98, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=28)
    model = dataclasses.replace(model, **changes)
    part = Parts(1, 2, lambda x, name: x)

    def count(module: tf.Module) -> int:
        return sum(int(np.prod(weight.shape)) for weight in variables(module).values())

    assert cost.local_parameters(model, 2) == count(PretrainingModel(model, seed=1, parts=part))
    if model.norm_placement == "post":
        generator = ObjectiveConfig(name="replaced_tokens", generator_width=0.5).generator(model)
        assert generator is not None
        both = ReplacedTokensModel(model, generator, 1, part)
        assert cost.local_parameters(model, 2, generator) == count(both) < cost.parameters(model, generator)
        objective = ObjectiveConfig(name="replaced_tokens", generator_width=0.5, embeddings="disentangled")
        config: PretrainConfig = RECIPES["bert_tiny_phase1"].phases[0].config
        config = dataclasses.replace(config, model=model, objective=objective, parallel=ParallelConfig(tensor=2))
        apart = ReplacedTokensModel(model, generator, 1, part, disentangled=True)
        assert cost.parameters_beside(config, None) == count(apart) - count(both)
        whole = ReplacedTokensModel(model, generator, 1, disentangled=True)
        assert cost.checkpoint_bytes(config, None) == count(whole) * (4 + config.optimizer.bytes_kept)


def test_a_teacher_is_on_each_rank_with_its_weights_alone(model_config: ModelConfig) -> None:
    teacher = dataclasses.replace(model_config, hidden_size=30, embedding_size=12, num_hidden_layers=1)
    counted = sum(int(np.prod(weight.shape)) for weight in variables(WordTeacher(teacher)).values())
    for parallel in (ParallelConfig(), ParallelConfig(shard_optimizer=True)):
        for bytes_of in (cost.state_bytes, cost.update_bytes):
            more = bytes_of(model_config, 4, parallel, teacher=teacher) - bytes_of(model_config, 4, parallel)
            assert more == 4 * counted, (parallel, bytes_of)


def test_a_teacher_needs_what_the_compiler_says() -> None:
    """XLA's figures for an H100 (benchmarks/gpu_check), of a step of `tiny` without and with a teacher `small`."""
    arguments, temporaries = (35_638_660, 150_819_436), (188_535_656, 303_732_152)
    config = RECIPES["bert_tiny_phase1"].phases[0].config
    model, teacher = (dataclasses.replace(SIZES[name], vocab_size=30522) for name in ("tiny", "small"))
    batch, precision = dataclasses.replace(config.batch, per_device=48), config.precision.resolved(gpu=True)
    config = dataclasses.replace(config, model=model, batch=batch, precision=precision)
    assert 4 * cost.teacher_parameters(teacher) == arguments[1] - arguments[0]
    needed = cost.activations(config, 128, 20, teacher=teacher)["teacher"]
    assert needed == pytest.approx(temporaries[1] - temporaries[0], rel=0.05)


def test_recomputed_activations_are_inputs_random_bits_and_one_layer() -> None:
    config = RECIPES["bert_1b3"].phases[0].config
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30522))
    kept = dataclasses.replace(config, model=dataclasses.replace(config.model, recompute_activations=False))
    less, more = (cost.activations(one, 512, 80) for one in (config, kept))
    tokens = config.batch.per_device * 512
    assert less["inputs of the layers"] == 24 * tokens * 2048 * 4
    same = ("narrow kernels", "sum of embeddings", "dropout bits")
    assert [less[name] for name in same] == [more[name] for name in same]
    assert sum(less.values()) < sum(more.values()) / 3


@pytest.mark.parametrize(("gated", "temporaries"), [(False, 1_157_372_264), (True, 1_650_204_136)])
def test_a_recomputed_layer_is_what_the_compiler_needs(gated: bool, temporaries: int) -> None:
    """XLA's figure for an H100 (benchmarks/gpu_check), with few predictions, so that the layer is what counts."""
    model = dataclasses.replace(
        SIZES["small"],
        vocab_size=30522,
        vocab_multiple=128,
        attention_probs_dropout_prob=0.0,
        fused_attention=True,
        recompute_activations=True,
        gated=gated,
    )
    config = RECIPES["bert_large_dgxh100_phase2"].phases[0].config
    config = dataclasses.replace(config, model=model, batch=dataclasses.replace(config.batch, per_device=64))
    assert sum(cost.activations(config, 512, 8).values()) == pytest.approx(temporaries, rel=0.10)


def test_fused_attention_keeps_no_weights() -> None:
    config = RECIPES["bert_large_dgxh100_phase2"].phases[0].config
    model = dataclasses.replace(config.model, attention_probs_dropout_prob=0.0, fused_attention=True)
    kept, less = (cost.activations(one, 512, 80) for one in (config, dataclasses.replace(config, model=model)))
    rows, pairs = config.batch.per_device, config.batch.per_device * 16 * 512**2
    assert kept["attention weights"] == 24 * pairs * 2 * 2  # before and after dropout, in 16 bits
    assert kept["dropout bits"] - less["dropout bits"] == 24 * pairs
    assert less["attention weights"] == 24 * rows * 16 * 512 * 4 + rows * 512**2 * 2  # statistics, and the mask


@pytest.mark.parametrize(
    ("tokens", "sequences", "changes", "gib"),
    [  # docs/results/2026-11-gpu-h100.md
        (128, 192, {}, 31.75),
        (512, 48, {}, 48.71),
        (512, 48, {"attention_probs_dropout_prob": 0.0}, 35.12),
        (512, 48, {"recompute_activations": True}, 15.18),
    ],
)
def test_memory_is_what_an_h100_measured(tokens: int, sequences: int, changes: dict[str, Any], gib: float) -> None:
    config = RECIPES["bert_large_phase1"].phases[0].config
    config = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, vocab_size=30522, **changes),
        batch=dataclasses.replace(config.batch, per_device=sequences),
        precision=dataclasses.replace(config.precision, compute="bfloat16", xla=True),
    )
    state = cost.state_bytes(config.model, 1, config.parallel)
    planned = state + sum(cost.activations(config, tokens, 20 * tokens // 128).values())
    assert planned / 2**30 == pytest.approx(gib, rel=0.02)


@pytest.mark.parametrize(
    ("compute", "residual", "more"),
    [("float32", "float32", 0), ("bfloat16", "float32", 4), ("bfloat16", "bfloat16", 0)],
)
def test_on_cpus_a_stream_in_float32_stays_beside_its_narrow_copy(compute: Any, residual: Any, more: int) -> None:
    config = RECIPES["bert_large_dgxh100_phase2"].phases[0].config
    precision = dataclasses.replace(config.precision, compute=compute, residual=residual)
    config = dataclasses.replace(config, precision=precision)
    gpu, cpu = (cost.activations(config, 512, 80, cpu=where) for where in (False, True))
    past = config.batch.per_device * (23 * 512 + 81)  # tokens of all layers after their attention
    assert cpu.pop("residual stream") - gpu.pop("residual stream") == 2 * past * 1024 * more
    assert cpu == gpu


def test_packed_rows_hold_more_predictions() -> None:
    config = RECIPES["bert_large_dgxh100_phase2"].phases[0].config
    separate, packed = (cost.activations(config, 512, 80, rows=rows) for rows in (0, config.batch.per_device // 2))
    assert packed["feed-forward"] < separate["feed-forward"] * 0.52
    assert packed["vocabulary logits"] == separate["vocabulary logits"]


def test_the_plan_of_the_published_run() -> None:
    config = RECIPES["bert_large_dgx1_phase1"].phases[0].config
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30528))
    said = cost.describe(config, 256, sequence=128, predictions=20, available=1_000_000)
    assert said["ranks"] == "256, each 4 micro-batches of 60 per update"
    assert said["tokens"].startswith("59,029,585,920")
    assert said["data"] == "1,000,000 sequences, 461.17 epochs"
    with pytest.raises(UsageError, match="not a multiple"):
        cost.describe(config, 7, sequence=128, predictions=20, available=1)


def test_a_sharded_optimizer_leaves_a_share_of_the_moments_on_each_rank() -> None:
    model = dataclasses.replace(SIZES["large"], vocab_size=30522)
    count, whole, sharded = cost.parameters(model), ParallelConfig(), ParallelConfig(shard_optimizer=True)
    weights = gradients = 4 * count
    moments = 8 * count
    assert cost.state_bytes(model, 4, whole) == weights + gradients + moments
    assert cost.state_bytes(model, 4, sharded) == pytest.approx(weights + gradients + moments / 4, abs=1)
    assert cost.update_bytes(model, 1, sharded) == weights + gradients + moments
    assert cost.update_bytes(model, 4, whole) == weights + gradients + moments + 4 * count  # the summed gradients
    word = 4 * 30522 * 1024  # larger than a bucket of 25 MB, so it has its own
    rows = moments / 4 + 4 * count / 4 + 4 * count / 4  # moments, summed gradients and new weights
    assert cost.update_bytes(model, 4, sharded) == pytest.approx(weights + gradients + rows + word, abs=4)
    kept = OptimizerConfig(learning_rate=1.0, ema=0.9).bytes_kept  # and a moving average of the weights
    with_average = weights + gradients + (moments + 4 * count) / 4
    assert cost.state_bytes(model, 4, sharded, kept=kept) == pytest.approx(with_average, abs=1)


def test_in_parts_a_rank_holds_its_share_of_what_is_divided() -> None:
    model = dataclasses.replace(SIZES["large"], vocab_size=30522)
    # Divided: all kernels of the layers, biases but those of outputs, and words. Whole: norms, positions, other heads.
    whole = ParallelConfig(tensor=1)
    divided = 24 * (4 * 1024**2 + 3 * 1024 + 2 * 1024 * 4096 + 4096) + 30522 * (1024 + 1)
    held = cost.parameters(model) - divided / 2
    parts, both = ParallelConfig(tensor=2), ParallelConfig(tensor=2, shard_optimizer=True)
    assert cost.state_bytes(model, 1, parts) == 16 * held
    assert cost.state_bytes(model, 4, both) == pytest.approx(8 * held + 8 * held / 4, abs=1)
    assert cost.update_bytes(model, 1, parts) == 16 * held  # one replica: nothing to sum
    words = 4 * 15261 * 1024
    assert cost.update_bytes(model, 4, both) == pytest.approx(12 * held + words, abs=8)
    assert cost.state_bytes(model, 8, whole) == 16 * cost.parameters(model)


def test_scores_by_a_table_of_their_own_are_counted_once_more(model_config: ModelConfig) -> None:
    tied, own = (dataclasses.replace(model_config, masked_lm_head=head) for head in ("tied", "linear"))
    width, words = model_config.hidden_size, model_config.vocab_size
    transform = width * width + 3 * width  # with its bias and norm
    assert cost.parameters(own) - cost.parameters(tied) == words * width - transform
    assert cost.flops(tied, 13, 3) - cost.flops(own, 13, 3) == 6 * 3 * width * width
    divided = [cost.parameters(one) - cost.local_parameters(one, 3) for one in (tied, own)]
    assert divided[1] - divided[0] == pytest.approx(words * width * 2 / 3, abs=1)


def test_ranks_that_hold_one_model_share_its_micro_batches() -> None:
    config = RECIPES["bert_large_dgx1_phase1"].phases[0].config
    model = dataclasses.replace(config.model, vocab_size=30528)
    config = dataclasses.replace(config, model=model, parallel=ParallelConfig(tensor=2))
    said = cost.describe(config, 512, sequence=128, predictions=20, available=1)
    assert said["ranks"] == "512, in groups of 2; each group 4 micro-batches of 60 per update"


def test_the_plan_of_a_sharded_run_says_what_is_gathered() -> None:
    config = RECIPES["bert_large_dgx1_phase1"].phases[0].config
    config = dataclasses.replace(
        config, model=dataclasses.replace(config.model, vocab_size=30528), parallel=ParallelConfig(shard_optimizer=True)
    )
    count = cost.parameters(config.model)
    said = cost.describe(config, 256, sequence=128, predictions=20, available=1)
    # That recipe sends gradients in float16.
    assert said["communication"] == (
        f"per update {count * 2 / 1e6:,.0f} MB of gradients summed, {count * 4 / 1e6:,.0f} MB of new weights gathered"
    )
    assert f"{count * (8 + 8 / 256) / 2**30:,.1f} of weights, gradients and" in said["memory per rank"]


def test_the_command_prints_it_and_starts_nothing(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bert import pretrain

    run = tmp_path / "run"
    pretrain.main(["demo_phase1", "--data.train", str(dataset), "--run.directory", str(run), "--print", "2"])
    assert "ranks              2, each 1 micro-batches of 32" in capsys.readouterr().out and not run.exists()
    flags = ["--data.train", str(dataset), "--run.directory", str(run), "--batch.fit", "nearest", "--print", "1472"]
    pretrain.main(["bert_large_phase1", *flags])
    assert "66,240 sequences per update instead of 65,536" in capsys.readouterr().out
    with pytest.raises(UsageError, match="--print: invalid int value: 'x'"):
        pretrain.main(["demo_phase1", "--print", "x"])


PUBLISHED = {  # by size, with 30,522 words
    "tiny": pytest.approx(4.43e6, rel=0.02),  # these four without the heads of pretraining
    "mini": pytest.approx(11.2e6, rel=0.02),
    "small": pytest.approx(28.8e6, rel=0.02),
    "medium": pytest.approx(41.4e6, rel=0.02),
    "base": 110_106_428,
    "large": 336_226_108,
    "1b3": pytest.approx(1280e6, rel=2e-3),
    "3b9": pytest.approx(3869e6, rel=2e-3),
}
CAUSAL = {  # by recipe, with 50,257 words; the first two as transformers counts gpt2 and gpt2-medium
    "gpt2_117m": 124_439_808,
    "gpt2_345m": 354_823_168,
    "gpt2_2b5": pytest.approx(2.5e9, rel=0.01),
    "gpt2_8b3": pytest.approx(8.3e9, rel=0.01),
}


def test_models_have_the_published_sizes() -> None:
    found = {size: cost.parameters(dataclasses.replace(SIZES[size], vocab_size=30_522)) for size in PUBLISHED}
    assert found == PUBLISHED
    models = {name: dataclasses.replace(RECIPES[name].phases[0].config.model, vocab_size=50_257) for name in CAUSAL}
    assert {name: cost.parameters(model) for name, model in models.items()} == CAUSAL


def test_parameters_and_arithmetic_of_a_causal_model_are_those_of_its_matrices() -> None:
    model = dataclasses.replace(RECIPES["gpt2_smoke"].phases[0].config.model, vocab_size=257)
    weights = variables(CausalLM(model, seed=1).module)
    assert cost.parameters(model) == sum(int(np.prod(weight.shape)) for weight in weights.values())
    kernels = sum(int(np.prod(weight.shape)) for name, weight in weights.items() if name.endswith("kernel"))
    products = kernels + 257 * 128  # of each token, and of its scores
    attention = 2 * 2 * 13 * 128  # of each token: the scores of 13 others, and the sum of their values, in two layers
    assert cost.flops(model, 13, predictions=13) == 3 * 2 * 13 * (products + attention)


@pytest.mark.parametrize(("sequence", "predictions", "teraflops"), [(128, 20, 0.242), (512, 80, 1.02)])
def test_the_arithmetic_of_bert_large_is_what_others_count(sequence: int, predictions: int, teraflops: float) -> None:
    model = dataclasses.replace(SIZES["large"], vocab_size=30522)
    assert cost.flops(model, sequence, predictions) == pytest.approx(teraflops * 1e12, rel=0.01)
    read = predictions + 1
    spared = 3 * 2 * (sequence - read) * (1024 * 1024 + 2 * 1024 * 4096)  # past the attention of one layer
    whole = cost.flops(model, sequence, predictions)
    assert whole - cost.flops(model, sequence, predictions, states=read) == pytest.approx(spared)


def test_the_embeddings_are_a_tenth_of_bert_large_and_all_parts_of_a_model_have_theirs() -> None:
    large = dataclasses.replace(RECIPES["bert_large_phase1"].phases[0].config.model, vocab_size=30_522)
    embeddings = (30_522 + 512 + 2) * 1024
    assert cost.embeddings_share(large) == pytest.approx(embeddings / cost.parameters(large))
    assert 0.09 < cost.embeddings_share(large) < 0.1
    half = (15_261 + 512 + 2) * 1024 / cost.local_parameters(large, 2)
    assert cost.embeddings_share(large, 2) == pytest.approx(half)


def test_nothing_hides_the_embeddings_and_one_bucket() -> None:
    large = dataclasses.replace(RECIPES["bert_large_phase1"].phases[0].config.model, vocab_size=30_522)
    embeddings, gradients = cost.embeddings_share(large), 4 * cost.parameters(large)
    for megabytes, bucket in ((0.0, 25e6 / gradients), (100.0, 100e6 / gradients), (1e5, 1.0)):
        parallel = ParallelConfig(overlap=True, bucket_megabytes=megabytes)
        assert cost.exposed_share(large, parallel) == pytest.approx(min(1, embeddings + bucket))
    assert cost.exposed_share(large, ParallelConfig()) == 1  # all gradients are in one bucket
