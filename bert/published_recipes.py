"""Recipes of published sizes: the paper's, NVIDIA's with LAMB, Megatron-LM's, and with what came after BERT.

Sizes are those of google-research/bert's model table; the hyperparameters of `bert_base` are the paper's (Devlin et al.
2019, appendix A.2): batch 256, Adam with peak 1e-4, 10,000 warm-up steps, 900,000 steps of length 128 and 100,000 of
length 512, in one schedule. `bert_large_adam` is the same for BERT-Large.

`bert_large` is NVIDIA's LAMB recipe (DeepLearningExamples, TensorFlow2/LanguageModeling/BERT, configurations.yml and
pretrain_config.sh; for the A100 and the H100, its PyTorch recipe). Its variants for specific machines say only what
differs. NVIDIA gives learning rates per GPU and multiplies them by the number of GPUs; here they are for the whole
batch, and gradient accumulation follows from the number of ranks. What the optimizers of the sources do, and where ours
differs, is in docs/optimizers.md.
"""

from dataclasses import replace

from bert.core.config import (
    BatchConfig,
    BudgetConfig,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainConfig,
    RunConfig,
)
from bert.recipes import (
    AUTO,
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FROM_CHECKPOINT,
    LONG,
    SHORT,
    SIZES,
    Phase,
    Recipe,
    phase,
    predictions,
    recipe,
    rounded,
    variant,
)

RECIPES: dict[str, Recipe] = {}


def _published(size: str, per_device: int, steps: int, first_step: int = 0) -> PretrainConfig:
    """Return a phase of the paper's schedule of a million updates."""
    return PretrainConfig(
        model=SIZES[size],
        batch=BatchConfig(total=256, per_device=per_device),
        optimizer=OptimizerConfig(
            learning_rate=1e-4, first_step=first_step, warmup_steps=10_000, decay_steps=1_000_000
        ),
        precision=AUTO,
        run=RunConfig(steps=steps, log_every=100, save_every=5000, evaluate_every=5000),
    )


recipe(
    RECIPES,
    "bert_base",
    "BERT-Base as published: a million updates of one schedule, the last 100,000 with longer sequences",
    phase(_published("base", 32, steps=900_000), SHORT),
    phase(_published("base", 8, steps=100_000, first_step=900_000), LONG),
)
recipe(
    RECIPES,
    "bert_large_adam",
    "BERT-Large as published: a million updates of one schedule, the last 100,000 with longer sequences",
    phase(_published("large", 16, steps=900_000), SHORT),
    phase(_published("large", 4, steps=100_000, first_step=900_000), LONG),
)


def _megatron(size: str, per_device: int, steps: int) -> PretrainConfig:
    """Return the settings of Shoeybi et al. 2019, section 5.3.

    They are: batch 1,024 of 512 tokens, Adam 1e-4, sentence order, n-grams of words.
    """
    return PretrainConfig(
        model=replace(rounded(size), recompute_activations=True),
        batch=BatchConfig(total=1024, per_device=per_device),
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-4, warmup_steps=10_000, continuous=True, epsilon=1e-8),
        precision=BFLOAT16,
        run=RunConfig(steps=steps, log_every=100, save_every=5000, evaluate_every=5000),
    )


recipe(
    RECIPES,
    "bert_1b3",
    "BERT of 1.3 billion parameters, as in Megatron-LM; data of 512 tokens, made with --pairs sop --whole_word_mask "
    "true --max_ngram 3. Each device needs about 27 GB, of which 20 are state",
    phase(_megatron("1b3", 8, steps=2_000_000), LONG),
)
recipe(
    RECIPES,
    "bert_3b9",
    "BERT of 3.9 billion parameters, as in Megatron-LM; data as for bert_1b3. Each device needs about 72 GB, of which "
    "62 are state, and with several ranks 15 GB more for the sum of gradients",
    phase(_megatron("3b9", 2, steps=1_500_000), LONG),
)


def _lamb(total: int, per_device: int, rate: float, warmup: int, steps: int) -> PretrainConfig:
    return PretrainConfig(
        model=rounded("large"),
        batch=BatchConfig(total=total, per_device=per_device),
        optimizer=OptimizerConfig(name="lamb", learning_rate=rate, warmup_steps=warmup, decay_power=0.5),
        precision=AUTO,
        run=RunConfig(steps=steps, log_every=10, save_every=200, evaluate_every=500, evaluate_sequences=10_240),
    )


LARGE = recipe(
    RECIPES,
    "bert_large",
    "BERT-Large with LAMB, as in NVIDIA's recipe",
    phase(_lamb(65_536, 64, rate=6e-3, warmup=2000, steps=7038), SHORT),
    phase(_lamb(32_768, 8, rate=4e-3, warmup=200, steps=1563), LONG),
)
variant(RECIPES, LARGE, "bert_large_float32", "bert_large in float32 without XLA: a baseline", precision=FLOAT32)
variant(
    RECIPES,
    LARGE,
    "bert_large_dgx1",
    "bert_large on DGX-1 or DGX-2 (V100 of 32 GB), any number of them",
    {"batch.total": 61_440, "batch.per_device": 60, "optimizer.warmup_steps": 2133, "run.steps": 7506},
    {"batch.total": 30_720, "batch.per_device": 10, "optimizer.warmup_steps": 213, "run.steps": 1668},
    precision=FLOAT16,
)
variant(
    RECIPES,
    LARGE,
    "bert_large_superpod",
    "bert_large on 92 DGX-2H (1,472 V100), or any number of ranks, with the nearest batch that they divide",
    {"batch.per_device": 60, "batch.fit": "nearest"},
    {"batch.per_device": 11, "batch.fit": "nearest"},
    precision=FLOAT16,
)
# LAMB of NVIDIA's PyTorch recipe leaves biases and layer norms to Adam.
A100 = variant(
    RECIPES,
    LARGE,
    "bert_large_dgxa100",
    "bert_large on DGX A100 (80 GB), any number of them, with LAMB as in NVIDIA's PyTorch recipe",
    {"batch.per_device": 256, "optimizer.name": "nvlamb"},
    {"batch.per_device": 32, "optimizer.name": "nvlamb"},
    precision=FLOAT16,
)
variant(
    RECIPES,
    A100,
    "bert_large_dgxh100",
    "bert_large on DGX H100: as on DGX A100, but in bfloat16, which needs no loss scale",
    precision=BFLOAT16,
)
recipe(
    RECIPES,
    "bert_large_mlperf",
    # The example of the reference of MLPerf Training. The first update is update 76 of the 287 of the warm-up. The run
    # is evaluated every 225,000 sequences, on 10,000.
    "BERT-Large to MLPerf's target, 72 % accuracy on held-out words, from the weights of a run; 512 tokens, of which "
    "76 are predicted",
    phase(
        PretrainConfig(
            model=rounded("large"),
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
                steps=600,
                log_every=10,
                save_every=100,
                evaluate_every=27,
                evaluate_sequences=10_000,
                target_accuracy=72.0,
            ),
            init=FROM_CHECKPOINT,
        ),
        LONG,
        predicted=76,
    ),
)
recipe(
    RECIPES,
    "bert_large_24h",
    # Izsak et al. 2021, "How to Train BERT with an Academic Budget": layer norm before the sub-layers, masked words
    # only, Adam at 1e-3 with a warm-up of 6 % and a linear decay to zero. The schedule follows the clock:
    # `--budget.hours` is the length of the run, and run.steps is only the unit of the warm-up.
    "BERT-Large in a day on one machine (Izsak et al. 2021): 4,096 sequences of 128 tokens, made with --pairs none; "
    "--budget.hours is the length of the run",
    phase(
        PretrainConfig(
            model=replace(rounded("large"), norm_placement="pre"),
            batch=BatchConfig(total=4096, per_device=32),
            optimizer=OptimizerConfig(
                name="adamw", learning_rate=1e-3, warmup_steps=60_000, continuous=True, beta_2=0.98
            ),
            precision=BFLOAT16,
            run=RunConfig(steps=1_000_000, log_every=20, save_every=500, evaluate_every=500, evaluate_sequences=10_240),
            budget=BudgetConfig(hours=24.0),
        ),
        SHORT,
    ),
)
recipe(
    RECIPES,
    "bert_small_corpus",
    # The settings of babyberta/params.py and job.py (github.com/phueb/BabyBERTa), whose Adam has no bias correction.
    # There the rate ends with the corpus, here at the 260,000 updates that the paper reports. Documents, because
    # every pass then masks other words.
    'A small corpus on one GPU: Huebner et al. 2021, "BabyBERTa", for some 5 million words and 8,192 word pieces; 8 '
    "layers x 256, 16 sentences of at most 128 tokens, made with --pairs none, --single_sentences true and --kind "
    "documents; of the selected words 90 % become [MASK], 10 % a random one, and none stays",
    phase(
        PretrainConfig(
            model=ModelConfig(
                hidden_size=256,
                num_hidden_layers=8,
                num_attention_heads=8,
                intermediate_size=1024,
                layer_norm_epsilon=1e-5,
                max_position_embeddings=128,
            ),
            batch=BatchConfig(total=16, per_device=16, pack=True),  # sentences differ much in length
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=24_000, continuous=True, weight_decay=0.0),
            precision=AUTO,
            run=RunConfig(steps=260_000, log_every=100, save_every=5000, evaluate_every=5000),
            data=DataConfig(mask_shares=(0.9, 0.1, 0.0)),
        ),
        SHORT,
    ),
)
MODERN = "made with --pairs none and --masked_lm_prob 0.3"


def _modern(model: ModelConfig, batch: BatchConfig, optimizer: OptimizerConfig, steps: int) -> Phase:
    """Return the phase of a recipe with rotary positions that predicts 39 of 128 tokens.

    Of the changes since BERT, only rotary positions helped a small model (docs/results/2026-11-modern-blocks.md).
    Attention weights have no dropout, because fused attention has none.
    """
    rotary = replace(model, positions="rotary", attention_probs_dropout_prob=0.0)
    run = RunConfig(steps=steps, log_every=20, save_every=500, evaluate_every=500, evaluate_sequences=10_240)
    config = PretrainConfig(model=rotary, batch=batch, optimizer=optimizer, precision=AUTO, run=run)
    return phase(config, SHORT, predicted=predictions(rotary, SHORT, 0.3))


def _mosaic(size: str, per_device: int) -> Phase:
    """Return MosaicBERT's phase (Portes et al. 2023): batch, rates and length of mosaicml/examples, for both sizes.

    StableAdamW is ModernBERT's (Warner et al. 2024). Neither clips gradients. Both have this beta, epsilon and decay.
    They state the decay of an update at the peak rate, 1e-5; here it is the product of rate and weight_decay.
    """
    optimizer = OptimizerConfig(
        name="stableadamw",
        learning_rate=5e-4,
        warmup_steps=4200,
        minimum_rate=1e-5,
        continuous=True,
        beta_2=0.98,
        weight_decay=0.02,
    )
    return _modern(rounded(size), BatchConfig(total=4096, per_device=per_device), optimizer, steps=70_000)


recipe(
    RECIPES,
    "bert_modern_small",
    "4 layers x 512 with rotary positions, masked words only and 30 % of them, no dropout, for one GPU or a CPU with "
    f"patience; data {MODERN}",
    _modern(
        replace(SIZES["small"], hidden_dropout_prob=0.0),  # less than an epoch (docs/results/2026-11-modern-recipe.md)
        BatchConfig(total=256, per_device=64),
        OptimizerConfig(name="stableadamw", learning_rate=1e-3, warmup_steps=1200, continuous=True, beta_2=0.98),
        steps=20_000,
    ),
)
recipe(
    RECIPES,
    "bert_modern_base",
    "BERT-Base with rotary positions, masked words only and 30 % of them; batch and rates are those of MosaicBERT "
    f"(Portes et al. 2023), the optimizer is ModernBERT's; data {MODERN}",
    _mosaic("base", 256),
)
recipe(
    RECIPES,
    "bert_modern_large",
    f"BERT-Large with the settings of bert_modern_base; data {MODERN}",
    _mosaic("large", 128),
)
