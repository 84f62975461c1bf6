"""Named pretraining runs: a recipe is a function that returns a configuration, a variant is `dataclasses.replace`.

Sizes are those of google-research/bert's model table; the hyperparameters of `bert_base` are the paper's (Devlin et al.
2019, appendix A.2): batch 256, Adam with peak 1e-4, 10,000 warm-up steps, 900,000 steps of length 128 and 100,000 of
length 512.

`bert_large` and its variants for certain machines are NVIDIA's LAMB recipe (DeepLearningExamples,
TensorFlow2/LanguageModeling/BERT, configurations.yml and pretrain_config.sh; for the A100, its PyTorch recipe). There,
rates are given for one GPU and multiplied by their number; here they are the whole batch's, and accumulation follows
from the number of ranks. The paper's million updates for BERT-Large are `bert_large_adam`.

Recipes compute in the precision that suits the device (`AUTO`): 16 bits with XLA on a GPU, float32 on a CPU.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

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
    "1300m": replace(_model(24, 2048), norm_placement="pre"),  # these two as in Megatron-LM
    "3900m": replace(_model(48, 2560), norm_placement="pre"),
}


AUTO = PrecisionConfig(compute="auto", xla=None)
FLOAT32 = PrecisionConfig(compute="float32", xla=False)
FLOAT16 = PrecisionConfig(compute="float16", compress=True, xla=True)
BFLOAT16 = PrecisionConfig(compute="bfloat16", xla=True)


def _going_on(config: PretrainConfig) -> PretrainConfig:
    """For a recipe that makes no sense without the weights of an earlier run: the command has to name one."""
    return replace(config, init=InitConfig(checkpoint=Path()))


def _rounded(size: str) -> ModelConfig:
    """For GPUs: 30,522 words are no multiple of what tensor cores work on at once."""
    return replace(SIZES[size], vocab_multiple=128)


def _published(size: str, per_device: int, steps: int, warmup: int) -> PretrainConfig:
    return PretrainConfig(
        model=SIZES[size],
        batch=BatchConfig(total=256, per_device=per_device),
        optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=warmup),
        precision=AUTO,
        run=RunConfig(steps=steps, log_every=100, save_every=5000, evaluate_every=5000),
    )


def bert_base_phase1() -> PretrainConfig:
    """BERT-Base, 128 tokens: the first nine tenths of a million updates, as published."""
    return _published("base", 32, steps=900_000, warmup=10_000)


def bert_base_phase2() -> PretrainConfig:
    """BERT-Base, 512 tokens: the last tenth, from all weights of phase 1."""
    return _going_on(_published("base", 8, steps=100_000, warmup=1_000))


def bert_large_adam_phase1() -> PretrainConfig:
    """BERT-Large, 128 tokens: the first nine tenths of a million updates, as published."""
    return _published("large", 16, steps=900_000, warmup=10_000)


def bert_large_adam_phase2() -> PretrainConfig:
    """BERT-Large, 512 tokens: the last tenth, from all weights of phase 1."""
    return _going_on(_published("large", 4, steps=100_000, warmup=1_000))


def _megatron(size: str, per_device: int, steps: int) -> PretrainConfig:
    """Shoeybi et al. 2019, section 5.3: batch 1,024 of 512 tokens, Adam 1e-4, sentence order, n-grams masked."""
    return PretrainConfig(
        model=replace(_rounded(size), recompute_activations=True),
        batch=BatchConfig(total=1024, per_device=per_device),
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-4, warmup_steps=10_000, continuous=True),
        precision=BFLOAT16,
        run=RunConfig(steps=steps, log_every=100, save_every=5000, evaluate_every=5000),
    )


def bert_1300m() -> PretrainConfig:
    """BERT of 1.3 billion parameters as in Megatron-LM; data of 512 tokens, --pairs sop --max_ngram 3."""
    return _megatron("1300m", 8, steps=2_000_000)


def bert_3900m() -> PretrainConfig:
    """BERT of 3.9 billion parameters as in Megatron-LM; on devices of more than 80 GB, whole on each."""
    return _megatron("3900m", 2, steps=1_500_000)


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


def bert_large_phase1() -> PretrainConfig:
    """BERT-Large with LAMB, 128 tokens: 7,038 updates of 65,536 sequences, as in NVIDIA's recipe."""
    return _lamb(65_536, 64, rate=6e-3, warmup=2000, steps=7038, precision=AUTO)


def bert_large_phase2() -> PretrainConfig:
    """BERT-Large with LAMB, 512 tokens: 1,563 updates of 32,768 sequences, as in NVIDIA's recipe."""
    return _going_on(_lamb(32_768, 8, rate=4e-3, warmup=200, steps=1563, precision=AUTO))


def bert_large_float32_phase1() -> PretrainConfig:
    """BERT-Large with LAMB, 128 tokens, in plain float32 without XLA: to compare with."""
    return replace(bert_large_phase1(), precision=FLOAT32)


def bert_large_float32_phase2() -> PretrainConfig:
    """BERT-Large with LAMB, 512 tokens, in plain float32 without XLA: to compare with."""
    return replace(bert_large_phase2(), precision=FLOAT32)


def bert_large_dgx1_phase1() -> PretrainConfig:
    """BERT-Large on DGX-1 or DGX-2 (V100 of 32 GB), any number of them: 128 tokens, 61,440 sequences, LAMB."""
    return _lamb(61_440, 60, rate=6e-3, warmup=2133, steps=7506, precision=FLOAT16)


def bert_large_dgx1_phase2() -> PretrainConfig:
    """BERT-Large on DGX-1 or DGX-2 (V100 of 32 GB): 512 tokens, 30,720 sequences, LAMB."""
    return _going_on(_lamb(30_720, 10, rate=4e-3, warmup=213, steps=1668, precision=FLOAT16))


def bert_large_dgxa100_phase1() -> PretrainConfig:
    """BERT-Large on DGX A100 (80 GB), any number of them: 128 tokens, 65,536 sequences, LAMB."""
    return replace(bert_large_phase1(), batch=BatchConfig(total=65_536, per_device=256), precision=FLOAT16)


def bert_large_dgxa100_phase2() -> PretrainConfig:
    """BERT-Large on DGX A100 (80 GB): 512 tokens, 32,768 sequences, LAMB."""
    return replace(bert_large_phase2(), batch=BatchConfig(total=32_768, per_device=32), precision=FLOAT16)


def bert_large_dgxh100_phase1() -> PretrainConfig:
    """BERT-Large on DGX H100: as on DGX A100, but in bfloat16, which needs no loss scale."""
    return replace(bert_large_dgxa100_phase1(), precision=BFLOAT16)


def bert_large_dgxh100_phase2() -> PretrainConfig:
    """BERT-Large on DGX H100, 512 tokens: as on DGX A100, but in bfloat16."""
    return replace(bert_large_dgxa100_phase2(), precision=BFLOAT16)


def bert_large_mlperf() -> PretrainConfig:
    """BERT-Large to MLPerf's target, 72 % of held-out words, from the weights of a run: 512 tokens, 76 predictions.

    The example of the training benchmark's reference: 8,192 sequences, LAMB, 600 updates. That begins in the middle of
    its warm-up, at a quarter of the peak; here the rate rises from zero over the same number of updates. It looks at
    the target every 225,000 sequences, on 10,000.
    """
    return _going_on(
        PretrainConfig(
            model=_rounded("large"),
            batch=BatchConfig(total=8192, per_device=16),
            optimizer=OptimizerConfig(
                name="lamb",
                learning_rate=2.88293e-3,
                warmup_steps=211,
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
                target_accuracy=0.72,
            ),
        )
    )


def bert_large_24h() -> PretrainConfig:
    """BERT-Large in a day on one machine: Izsak et al. 2021, "How to Train BERT with an Academic Budget".

    Norms before the sub-layers, 4,096 sequences of 128 tokens, masked words alone (data made with --pairs none), Adam
    at 1e-3 with a warm-up of 6 % and a line down to zero, by the clock: `--budget.hours` is the budget, and run.steps
    only what the warm-up is counted in.
    """
    return PretrainConfig(
        model=replace(_rounded("large"), norm_placement="pre"),
        batch=BatchConfig(total=4096, per_device=32),
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-3, warmup_steps=60_000, continuous=True, beta_2=0.98),
        precision=BFLOAT16,
        run=RunConfig(steps=1_000_000, log_every=20, save_every=500, evaluate_every=500, evaluate_sequences=10_240),
        budget=BudgetConfig(hours=24.0),
    )


def bert_small_corpus() -> PretrainConfig:
    """A small corpus on one GPU: Huebner et al. 2021, "BabyBERTa", for some 5 million words, 8,192 word pieces.

    8 layers x 256 with 8 heads, 16 sequences of 128 tokens, masked words alone (data made with --pairs none and
    --records documents, so that each of its many passes masks other words), Adam at 1e-4.
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


def bert_domain() -> PretrainConfig:
    """A trained BERT-Base goes on with one's own domain: Gururangan et al. 2020, "Don't Stop Pretraining", table 13.

    2,048 sequences, 12,500 updates, Adam at 5e-4 with a warm-up of 6 %; data made with the vocabulary of the weights.
    """
    return _going_on(
        PretrainConfig(
            model=_rounded("base"),
            batch=BatchConfig(total=2048, per_device=32),
            optimizer=OptimizerConfig(name="adamw", learning_rate=5e-4, warmup_steps=750, continuous=True, beta_2=0.98),
            precision=BFLOAT16,
            run=RunConfig(steps=12_500, log_every=20, save_every=500, evaluate_every=500),
        )
    )


def _hurried(size: str, deviation: float) -> ModelConfig:
    """A model that has an hour, not days.

    That does not see the corpus often enough to overfit, and dropout would only slow the learning. Wider first weights
    than the published 0.02, which suit a width of 768, and (in the optimizer) a shorter memory of squared gradients
    than 0.999 lead out of the plateau where only the words' frequencies are known; without them some runs never left
    it. First heads that look at a word's neighbours save the updates that it takes to find them: after 500 updates on
    real text the tiny one predicts 19.5 % of held-out words instead of 12.9 %.
    """
    return replace(
        SIZES[size],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=deviation,
        position_initializer="sinusoidal",
    )


TINY, MINI = _hurried("tiny", 0.05), _hurried("mini", 0.04)


def bert_tiny_phase1() -> PretrainConfig:
    """2 layers x 128, 128 tokens, for a vocabulary of some 8,000: half an hour on two CPU cores."""
    return PretrainConfig(
        model=TINY,
        batch=BatchConfig(total=64, per_device=32),
        optimizer=OptimizerConfig(learning_rate=1.5e-3, warmup_steps=300, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(steps=8000, log_every=100, save_every=500, evaluate_every=500, evaluate_sequences=1024),
    )


def bert_tiny_phase2() -> PretrainConfig:
    """2 layers x 128, longer sequences, from all weights of phase 1: two minutes more."""
    return _going_on(
        PretrainConfig(
            model=TINY,
            batch=BatchConfig(total=32, per_device=16),
            optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=50, beta_2=0.98),
            precision=AUTO,
            run=RunConfig(steps=500, log_every=100, save_every=250, evaluate_every=250, evaluate_sequences=512),
        )
    )


def bert_mini_phase1() -> PretrainConfig:
    """4 layers x 256, 128 tokens: what two CPU cores can pretrain in an hour."""
    return PretrainConfig(
        model=MINI,
        batch=BatchConfig(total=32, per_device=16),
        optimizer=OptimizerConfig(learning_rate=5e-4, warmup_steps=150, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(steps=4200, log_every=50, save_every=500, evaluate_every=250, evaluate_sequences=1024),
    )


def bert_mini_phase2() -> PretrainConfig:
    """4 layers x 256, longer sequences, from all weights of phase 1: a few minutes more."""
    return _going_on(
        PretrainConfig(
            model=MINI,
            batch=BatchConfig(total=16, per_device=8),
            optimizer=OptimizerConfig(learning_rate=3e-4, warmup_steps=25, beta_2=0.98),
            precision=AUTO,
            run=RunConfig(steps=400, log_every=50, save_every=200, evaluate_every=200, evaluate_sequences=512),
        )
    )


DEMO_MODEL = replace(SIZES["tiny"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.06)


def demo_phase1() -> PretrainConfig:
    """The demo's first phase: 2 layers x 128 on 48 tokens, a minute and a half on two CPU cores."""
    return PretrainConfig(
        model=DEMO_MODEL,
        batch=BatchConfig(total=64, per_device=32),
        optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=80, beta_2=0.98),
        precision=AUTO,
        run=RunConfig(steps=900, log_every=20, save_every=300, evaluate_every=100, evaluate_sequences=384),
    )


def demo_phase2() -> PretrainConfig:
    """The demo's second phase: 64 tokens, from all weights of the first."""
    return _going_on(
        PretrainConfig(
            model=DEMO_MODEL,
            batch=BatchConfig(total=64, per_device=32),
            optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=20, beta_2=0.98),
            precision=AUTO,
            run=RunConfig(steps=200, log_every=20, save_every=200, evaluate_every=100, evaluate_sequences=256),
        )
    )


RECIPES = {
    recipe.__name__: recipe
    for recipe in (
        bert_base_phase1,
        bert_base_phase2,
        bert_large_phase1,
        bert_large_phase2,
        bert_large_float32_phase1,
        bert_large_float32_phase2,
        bert_large_adam_phase1,
        bert_large_adam_phase2,
        bert_large_dgx1_phase1,
        bert_large_dgx1_phase2,
        bert_large_dgxa100_phase1,
        bert_large_dgxa100_phase2,
        bert_large_dgxh100_phase1,
        bert_large_dgxh100_phase2,
        bert_1300m,
        bert_3900m,
        bert_large_mlperf,
        bert_large_24h,
        bert_small_corpus,
        bert_domain,
        bert_tiny_phase1,
        bert_tiny_phase2,
        bert_mini_phase1,
        bert_mini_phase2,
        demo_phase1,
        demo_phase2,
    )
}


def _smoke(recipe: Callable[[], PretrainConfig]) -> PretrainConfig:
    """A recipe in miniature, to see that it runs: a minute on two CPU cores, with a small model and batch."""
    config = recipe()
    return replace(
        config,
        model=replace(config.model, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128),
        batch=BatchConfig(total=16, per_device=4),
        optimizer=replace(config.optimizer, warmup_steps=2),
        run=replace(config.run, steps=8, log_every=2, save_every=4, evaluate_every=4, evaluate_sequences=16),
        init=InitConfig(),
    )


SMOKE: dict[str, Callable[[], PretrainConfig]] = {
    name: functools.partial(_smoke, recipe) for name, recipe in RECIPES.items()
}
