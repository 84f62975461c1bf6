"""Named pretraining runs: a recipe is a function that returns a configuration.

Sizes are those of google-research/bert's model table; the hyperparameters of `bert_base` are the paper's (Devlin et al.
2019, appendix A.2): batch 256, Adam with peak 1e-4, 10,000 warm-up steps, 900,000 steps of length 128 and 100,000 of
length 512, in one schedule. `bert_large_adam` is the same for BERT-Large.

`bert_large` and its variants for specific machines are NVIDIA's LAMB recipe (DeepLearningExamples,
TensorFlow2/LanguageModeling/BERT, configurations.yml and pretrain_config.sh; for the A100 and the H100, its PyTorch
recipe). NVIDIA gives learning rates per GPU and multiplies them by the number of GPUs; here they are for the whole
batch, and gradient accumulation follows from the number of ranks. What the optimizers of the sources do, and where ours
differs, is in docs/optimizers.md.

`gpt2_*` are causal models of the sizes in Radford et al. 2019 and Shoeybi et al. 2019 (Megatron-LM), with Megatron-LM's
settings. "State" in their descriptions is what weights, gradients and moments need, before activations.

Most recipes choose the precision for the device (`AUTO`): 16 bits with XLA on a GPU, float32 on a CPU.
"""

import functools
from collections.abc import Callable
from dataclasses import replace

from bert import cli
from bert.config import (
    BatchConfig,
    BudgetConfig,
    InitConfig,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
    PretrainConfig,
    RunConfig,
)

RECIPES: dict[str, Callable[[], PretrainConfig]] = {}  # by name
recipe = cli.registers(RECIPES)


def _model(layers: int, width: int) -> ModelConfig:
    return ModelConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64, intermediate_size=4 * width
    )


SIZES = {
    "tiny": _model(2, 128),
    "mini": _model(4, 256),
    "small": _model(4, 512),
    "medium": _model(8, 512),
    "base": _model(12, 768),
    "large": _model(24, 1024),
    "1b3": replace(_model(24, 2048), norm_placement="pre"),  # these two as in Megatron-LM
    "3b9": replace(_model(48, 2560), norm_placement="pre"),
}


AUTO = PrecisionConfig(compute="auto", xla=None)
FLOAT32 = PrecisionConfig(compute="float32", xla=False)
FLOAT16 = PrecisionConfig(compute="float16", compress=True, xla=True)
BFLOAT16 = PrecisionConfig(compute="bfloat16", xla=True)
FROM_CHECKPOINT = InitConfig(checkpoint=None)  # the recipe continues an earlier run, which the command must name


def _from_checkpoint(config: PretrainConfig) -> PretrainConfig:
    return replace(config, init=FROM_CHECKPOINT)


def _rounded(size: str) -> ModelConfig:
    """Pad the vocabulary of 30,522 for tensor cores."""
    return replace(SIZES[size], vocab_multiple=128)


def _published(size: str, per_device: int, steps: int, first_step: int = 0) -> PretrainConfig:
    """Return one of the phases that share the paper's schedule of a million updates."""
    return PretrainConfig(
        model=SIZES[size],
        batch=BatchConfig(total=256, per_device=per_device),
        optimizer=OptimizerConfig(
            learning_rate=1e-4, first_step=first_step, warmup_steps=10_000, decay_steps=1_000_000
        ),
        precision=AUTO,
        run=RunConfig(steps=steps, log_every=100, save_every=5000, evaluate_every=5000),
    )


@recipe
def bert_base_phase1() -> PretrainConfig:
    """BERT-Base, 128 tokens: the first 900,000 of a million updates, as published."""
    return _published("base", 32, steps=900_000)


@recipe
def bert_base_phase2() -> PretrainConfig:
    """BERT-Base, 512 tokens: the last 100,000 updates of the same schedule, from all weights of phase 1."""
    return _from_checkpoint(_published("base", 8, steps=100_000, first_step=900_000))


@recipe
def bert_large_adam_phase1() -> PretrainConfig:
    """BERT-Large, 128 tokens: the first 900,000 of a million updates, as published."""
    return _published("large", 16, steps=900_000)


@recipe
def bert_large_adam_phase2() -> PretrainConfig:
    """BERT-Large, 512 tokens: the last 100,000 updates of the same schedule, from all weights of phase 1."""
    return _from_checkpoint(_published("large", 4, steps=100_000, first_step=900_000))


def _megatron(size: str, per_device: int, steps: int) -> PretrainConfig:
    """Shoeybi et al. 2019, section 5.3: batch 1,024 of 512 tokens, Adam 1e-4, sentence order, n-gram masking."""
    return PretrainConfig(
        model=replace(_rounded(size), recompute_activations=True),
        batch=BatchConfig(total=1024, per_device=per_device),
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-4, warmup_steps=10_000, continuous=True, epsilon=1e-8),
        precision=BFLOAT16,
        run=RunConfig(steps=steps, log_every=100, save_every=5000, evaluate_every=5000),
    )


@recipe
def bert_1b3() -> PretrainConfig:
    """BERT of 1.3 billion parameters, as in Megatron-LM; data of 512 tokens, made with --pairs sop --max_ngram 3.

    Each device needs about 27 GB, of which 20 are state.
    """
    return _megatron("1b3", 8, steps=2_000_000)


@recipe
def bert_3b9() -> PretrainConfig:
    """BERT of 3.9 billion parameters, as in Megatron-LM; data as for `bert_1b3`.

    Each device needs about 72 GB, of which 62 are state, and with several ranks 15 GB more for the sum of gradients.
    """
    return _megatron("3b9", 2, steps=1_500_000)


def _lamb(
    total: int, per_device: int, rate: float, warmup: int, steps: int, precision: PrecisionConfig
) -> PretrainConfig:
    return PretrainConfig(
        model=_rounded("large"),
        batch=BatchConfig(total=total, per_device=per_device),
        optimizer=OptimizerConfig(name="lamb", learning_rate=rate, warmup_steps=warmup, decay_power=0.5),
        precision=precision,
        run=RunConfig(steps=steps, log_every=10, save_every=200, evaluate_every=500, evaluate_sequences=10_240),
    )


@recipe
def bert_large_phase1() -> PretrainConfig:
    """BERT-Large with LAMB, 128 tokens: 7,038 updates of 65,536 sequences, as in NVIDIA's recipe."""
    return _lamb(65_536, 64, rate=6e-3, warmup=2000, steps=7038, precision=AUTO)


@recipe
def bert_large_phase2() -> PretrainConfig:
    """BERT-Large with LAMB, 512 tokens: 1,563 updates of 32,768 sequences, as in NVIDIA's recipe."""
    return _from_checkpoint(_lamb(32_768, 8, rate=4e-3, warmup=200, steps=1563, precision=AUTO))


@recipe
def bert_large_float32_phase1() -> PretrainConfig:
    """BERT-Large with LAMB, 128 tokens, in float32 without XLA: a baseline."""
    return replace(bert_large_phase1(), precision=FLOAT32)


@recipe
def bert_large_float32_phase2() -> PretrainConfig:
    """BERT-Large with LAMB, 512 tokens, in float32 without XLA: a baseline."""
    return replace(bert_large_phase2(), precision=FLOAT32)


@recipe
def bert_large_dgx1_phase1() -> PretrainConfig:
    """BERT-Large on DGX-1 or DGX-2 (V100 of 32 GB), any number of them: 128 tokens, 61,440 sequences, LAMB."""
    return _lamb(61_440, 60, rate=6e-3, warmup=2133, steps=7506, precision=FLOAT16)


@recipe
def bert_large_dgx1_phase2() -> PretrainConfig:
    """BERT-Large on DGX-1 or DGX-2 (V100 of 32 GB): 512 tokens, 30,720 sequences, LAMB."""
    return _from_checkpoint(_lamb(30_720, 10, rate=4e-3, warmup=213, steps=1668, precision=FLOAT16))


@recipe
def bert_large_superpod_phase1() -> PretrainConfig:
    """BERT-Large on 92 DGX-2H (1,472 V100), or any number of ranks: 128 tokens, LAMB, the nearest batch to 65,536."""
    config = _lamb(65_536, 60, rate=6e-3, warmup=2000, steps=7038, precision=FLOAT16)
    return replace(config, batch=replace(config.batch, fit="nearest"))


@recipe
def bert_large_superpod_phase2() -> PretrainConfig:
    """BERT-Large on 92 DGX-2H, or any number of ranks: 512 tokens, LAMB, the nearest batch to 32,768."""
    config = _lamb(32_768, 11, rate=4e-3, warmup=200, steps=1563, precision=FLOAT16)
    return _from_checkpoint(replace(config, batch=replace(config.batch, fit="nearest")))


def _pytorch_lamb(config: PretrainConfig, per_device: int) -> PretrainConfig:
    """Return a phase as in NVIDIA's PyTorch recipe, whose LAMB leaves biases and layer norms to Adam."""
    batch = replace(config.batch, per_device=per_device)
    return replace(config, batch=batch, optimizer=replace(config.optimizer, name="nvlamb"), precision=FLOAT16)


@recipe
def bert_large_dgxa100_phase1() -> PretrainConfig:
    """BERT-Large on DGX A100 (80 GB), any number of them: 128 tokens, 65,536 sequences, LAMB as in PyTorch."""
    return _pytorch_lamb(bert_large_phase1(), per_device=256)


@recipe
def bert_large_dgxa100_phase2() -> PretrainConfig:
    """BERT-Large on DGX A100 (80 GB): 512 tokens, 32,768 sequences, LAMB as in PyTorch."""
    return _pytorch_lamb(bert_large_phase2(), per_device=32)


@recipe
def bert_large_dgxh100_phase1() -> PretrainConfig:
    """BERT-Large on DGX H100: as on DGX A100, but in bfloat16, which needs no loss scale."""
    return replace(bert_large_dgxa100_phase1(), precision=BFLOAT16)


@recipe
def bert_large_dgxh100_phase2() -> PretrainConfig:
    """BERT-Large on DGX H100, 512 tokens: as on DGX A100, but in bfloat16."""
    return replace(bert_large_dgxa100_phase2(), precision=BFLOAT16)


@recipe
def bert_large_mlperf() -> PretrainConfig:
    """BERT-Large to MLPerf's target, 72 % accuracy on held-out words, from the weights of a run; 512 tokens.

    The example of the reference of MLPerf Training: 76 predictions, 8,192 sequences, LAMB, 600 updates, of which the
    first is update 76 of the 287 of the warm-up. The run is evaluated every 225,000 sequences, on 10,000.
    """
    return PretrainConfig(
        model=_rounded("large"),
        batch=BatchConfig(total=8192, per_device=16),
        optimizer=OptimizerConfig(
            name="nvlamb",
            learning_rate=2.88293e-3,
            warmup_steps=287,
            warmup_start=-76,
            beta_1=0.88,
            beta_2=0.88,
            weight_decay=0.0166629,
        ),
        precision=BFLOAT16,
        run=RunConfig(
            steps=600, log_every=10, save_every=100, evaluate_every=27, evaluate_sequences=10_000, target_accuracy=0.72
        ),
        init=FROM_CHECKPOINT,
    )


@recipe
def bert_large_24h() -> PretrainConfig:
    """BERT-Large in a day on one machine: Izsak et al. 2021, "How to Train BERT with an Academic Budget".

    Layer norm before the sub-layers, 4,096 sequences of 128 tokens, masked words only (data made with --pairs none),
    Adam at 1e-3 with a warm-up of 6 % and a linear decay to zero. The schedule follows the clock: `--budget.hours` is
    the length of the run, and run.steps is only the unit of the warm-up.
    """
    return PretrainConfig(
        model=replace(_rounded("large"), norm_placement="pre"),
        batch=BatchConfig(total=4096, per_device=32),
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-3, warmup_steps=60_000, continuous=True, beta_2=0.98),
        precision=BFLOAT16,
        run=RunConfig(steps=1_000_000, log_every=20, save_every=500, evaluate_every=500, evaluate_sequences=10_240),
        budget=BudgetConfig(hours=24.0),
    )


@recipe
def bert_small_corpus() -> PretrainConfig:
    """A small corpus on one GPU: Huebner et al. 2021, "BabyBERTa", for some 5 million words, 8,192 word pieces.

    8 layers x 256 with 8 heads, 16 sequences of 128 tokens, masked words only (data made with --pairs none and
    --records documents, so that every pass masks other words), Adam at 1e-4.
    """
    return PretrainConfig(
        model=ModelConfig(hidden_size=256, num_hidden_layers=8, num_attention_heads=8, intermediate_size=1024),
        batch=BatchConfig(total=16, per_device=16),
        optimizer=OptimizerConfig(
            name="adamw", learning_rate=1e-4, warmup_steps=24_000, continuous=True, weight_decay=0.0
        ),
        precision=AUTO,
        run=RunConfig(steps=260_000, log_every=100, save_every=5000, evaluate_every=5000),
    )


@recipe
def bert_domain() -> PretrainConfig:
    """Continue a trained BERT-Base on text of your domain: Gururangan et al. 2020, "Don't Stop Pretraining", table 13.

    2,048 sequences, 12,500 updates, Adam at 5e-4 with a warm-up of 6 %. Make the data with the vocabulary of the
    weights.
    """
    return PretrainConfig(
        model=_rounded("base"),
        batch=BatchConfig(total=2048, per_device=32),
        optimizer=OptimizerConfig(name="adamw", learning_rate=5e-4, warmup_steps=750, continuous=True, beta_2=0.98),
        precision=BFLOAT16,
        run=RunConfig(steps=12_500, log_every=20, save_every=500, evaluate_every=500),
        init=FROM_CHECKPOINT,
    )


def _short_run(size: str, deviation: float) -> ModelConfig:
    """Return a model for runs of an hour instead of days.

    There is no dropout: such a run does not see the corpus often enough to overfit. Early in training a model predicts
    words by their frequency only; some runs stayed there with the published initialisation and optimizer. Two changes
    help: initial weights with a standard deviation above the published 0.02, which suits a width of 768, and (in the
    optimizer) a beta_2 below 0.999. With sinusoidal positions, heads of the first layer start by attending to
    neighbouring tokens: after 500 updates on real text the tiny model predicts 19.5 % of held-out words instead of
    12.9 %.
    """
    return replace(
        SIZES[size],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=deviation,
        position_initializer="sinusoidal",
    )


TINY, MINI = _short_run("tiny", 0.05), _short_run("mini", 0.04)


@recipe
def bert_tiny_phase1() -> PretrainConfig:
    """2 layers x 128, 128 tokens, for a vocabulary of about 8,000: half an hour on two CPU cores."""
    return PretrainConfig(
        model=TINY,
        batch=BatchConfig(total=64, per_device=32),
        optimizer=OptimizerConfig(learning_rate=1.5e-3, warmup_steps=300, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(steps=8000, log_every=100, save_every=500, evaluate_every=500, evaluate_sequences=1024),
    )


@recipe
def bert_tiny_phase2() -> PretrainConfig:
    """2 layers x 128, longer sequences, from all weights of phase 1: another two minutes."""
    return PretrainConfig(
        model=TINY,
        batch=BatchConfig(total=32, per_device=16),
        optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=50, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(steps=500, log_every=100, save_every=250, evaluate_every=250, evaluate_sequences=512),
        init=FROM_CHECKPOINT,
    )


@recipe
def bert_mini_phase1() -> PretrainConfig:
    """4 layers x 256, 128 tokens: an hour on two CPU cores."""
    return PretrainConfig(
        model=MINI,
        batch=BatchConfig(total=32, per_device=16),
        optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=150, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(steps=4200, log_every=50, save_every=500, evaluate_every=250, evaluate_sequences=1024),
    )


@recipe
def bert_mini_phase2() -> PretrainConfig:
    """4 layers x 256, longer sequences, from all weights of phase 1: another few minutes."""
    return PretrainConfig(
        model=MINI,
        batch=BatchConfig(total=16, per_device=8),
        optimizer=OptimizerConfig(learning_rate=3e-4, warmup_steps=25, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(steps=400, log_every=50, save_every=200, evaluate_every=200, evaluate_sequences=512),
        init=FROM_CHECKPOINT,
    )


DEMO_MODEL = replace(SIZES["tiny"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.06)


@recipe
def demo_phase1() -> PretrainConfig:
    """First phase of the demo: 2 layers x 128, 48 tokens, a minute and a half on two CPU cores."""
    return PretrainConfig(
        model=DEMO_MODEL,
        batch=BatchConfig(total=64, per_device=32),
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=80, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(steps=900, log_every=20, save_every=300, evaluate_every=100, evaluate_sequences=384),
    )


@recipe
def demo_phase2() -> PretrainConfig:
    """Second phase of the demo: 64 tokens, from all weights of the first."""
    return PretrainConfig(
        model=DEMO_MODEL,
        batch=BatchConfig(total=64, per_device=32),
        optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=20, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(steps=200, log_every=20, save_every=200, evaluate_every=100, evaluate_sequences=256),
        init=FROM_CHECKPOINT,
    )


def _gpt2(layers: int, width: int, heads: int) -> ModelConfig:
    """Return a model of GPT-2's kind: 1,024 tokens; its 50,257 scores are padded for tensor cores."""
    return ModelConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_act="gelu_tanh",
        layer_norm_epsilon=1e-5,
        norm_placement="pre",
        max_position_embeddings=1024,
        type_vocab_size=0,
        causal=True,
        vocab_multiple=128,
    )


def _causal(
    model: ModelConfig, total: int, per_device: int, steps: int, warmup: int, decay: int, precision: PrecisionConfig
) -> PretrainConfig:
    """Return a run with what all of Megatron-LM's have in common: Adam with 1.5e-4, along a cosine to 1e-5."""
    return PretrainConfig(
        model=model,
        batch=BatchConfig(total=total, per_device=per_device),
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=1.5e-4,
            warmup_steps=warmup,
            schedule="cosine",
            decay_steps=decay,
            minimum_rate=1e-5,
            epsilon=1e-8,
        ),
        precision=precision,
        run=RunConfig(steps=steps, log_every=100, save_every=5000, evaluate_every=5000),
    )


@recipe
def gpt2_smoke() -> PretrainConfig:
    """A causal model of 2 layers x 128 and 64 tokens, for a small vocabulary: two minutes on two CPU cores."""
    config = _causal(_gpt2(2, 128, 2), 32, 16, steps=600, warmup=30, decay=0, precision=AUTO)
    return replace(
        config,
        model=replace(
            config.model,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.05,
            vocab_multiple=1,
        ),
        optimizer=replace(config.optimizer, learning_rate=3e-3, minimum_rate=3e-4, beta_2=0.98),
        run=replace(config.run, log_every=20, save_every=200, evaluate_every=100, evaluate_sequences=256),
    )


@recipe
def gpt2_117m() -> PretrainConfig:
    """GPT-2 of 12 layers x 768, 1,024 tokens: the "117M" of Radford et al. 2019, which has 124 million parameters.

    500,000 updates of 64 sequences, as Megatron-LM's example for 345 million. State: 2 GB; with the activations of 8
    sequences 12 GB.
    """
    return _causal(_gpt2(12, 768, 12), 64, 8, steps=500_000, warmup=3200, decay=320_000, precision=AUTO)


@recipe
def gpt2_345m() -> PretrainConfig:
    """GPT-2 of 24 layers x 1,024, 1,024 tokens: 355 million parameters, as in Megatron-LM's example.

    500,000 updates of 64 sequences, with recomputed activations. State: 5.7 GB; with the activations of 4
    sequences 9 GB.
    """
    model = replace(_gpt2(24, 1024, 16), recompute_activations=True)
    return _causal(model, 64, 4, steps=500_000, warmup=3200, decay=320_000, precision=AUTO)


@recipe
def gpt2_2b5() -> PretrainConfig:
    """GPT-2 of 54 layers x 1,920: 2.5 billion parameters, as in Shoeybi et al. 2019.

    300,000 updates of 512 sequences, with recomputed activations. State: 40 GB; with the activations of 4
    sequences 53 GB.
    """
    model = replace(_gpt2(54, 1920, 20), recompute_activations=True)
    return _causal(model, 512, 4, steps=300_000, warmup=3000, decay=300_000, precision=BFLOAT16)


@recipe
def gpt2_8b3() -> PretrainConfig:
    """GPT-2 of 72 layers x 3,072: 8.3 billion parameters, as in Shoeybi et al. 2019.

    300,000 updates of 512 sequences, with recomputed activations. State: 133 GB; with the activations of 2
    sequences 157 GB, which no common device has: divide it with --parallel.tensor.
    """
    model = replace(_gpt2(72, 3072, 24), recompute_activations=True)
    return _causal(model, 512, 2, steps=300_000, warmup=3000, decay=300_000, precision=BFLOAT16)


def _smoke(recipe: Callable[[], PretrainConfig]) -> Callable[[], PretrainConfig]:
    """Return a recipe with its model, batch and length shrunk, to check that it runs: a minute on two CPU cores."""

    @functools.wraps(recipe)
    def small() -> PretrainConfig:
        config = recipe()
        small_model = replace(
            config.model, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128
        )
        return replace(
            config,
            model=small_model,
            batch=BatchConfig(total=16, per_device=4),
            optimizer=replace(config.optimizer, first_step=0, warmup_steps=2, warmup_start=0, decay_steps=0),
            run=replace(config.run, steps=8, log_every=2, save_every=4, evaluate_every=4, evaluate_sequences=16),
            init=InitConfig(),
        )

    return small


SMOKE: dict[str, Callable[[], PretrainConfig]] = {name: _smoke(function) for name, function in RECIPES.items()}
