"""Recipes of replaced tokens: ELECTRA-Small as published, and a tiny one."""

from dataclasses import replace

from bert.core.config import (
    BatchConfig,
    DataConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PretrainConfig,
    RunConfig,
)
from bert.recipes import (
    AUTO,
    SHORT,
    SIZES,
    Recipe,
    bert_model,
    phase,
    recipe,
)

RECIPES: dict[str, Recipe] = {}


def _electra(model: ModelConfig, batch: BatchConfig, optimizer: OptimizerConfig, run: RunConfig) -> PretrainConfig:
    """Return a run with replaced tokens; 15 % of the selected words stay as they are, the others become [MASK]."""
    return PretrainConfig(
        model=replace(model, pooler_act="gelu"),
        batch=batch,
        optimizer=optimizer,
        precision=AUTO,
        run=run,
        data=DataConfig(mask_shares=(0.85, 0.0, 0.15)),
        objective=ObjectiveConfig(name="replaced_tokens"),
    )


recipe(
    RECIPES,
    "electra_small",
    # configure_pretraining.py of google-research/electra, whose optimizer has no bias correction. There the decay
    # already counts during the warm-up, by at most 1 % of the rate.
    "ELECTRA-Small as published (Clark et al. 2020): 12 layers x 256 and a generator of 12 layers x 64, a million "
    "updates of 128 sequences of 128 tokens, made with --pairs none and --kind documents",
    phase(
        _electra(
            replace(bert_model(12, 256), embedding_size=128),
            BatchConfig(total=128, per_device=128),
            OptimizerConfig(learning_rate=5e-4, warmup_steps=10_000),
            RunConfig(steps=1_000_000, log_every=100, save_every=5000, evaluate_every=5000),
        ),
        SHORT,
        predicted=19,
    ),
)
recipe(
    RECIPES,
    "electra_tiny",
    "ELECTRA's objective in a model of 4 layers x 256 with a generator of 4 layers x 64, for a small corpus on a CPU: "
    "64 sequences of 128 tokens, made with --pairs none and --kind documents",
    phase(
        _electra(
            replace(SIZES["mini"], embedding_size=128, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
            BatchConfig(total=64, per_device=32, pack=True),
            OptimizerConfig(name="adamw", learning_rate=1e-3, warmup_steps=300, continuous=True),
            RunConfig(steps=4000, log_every=50, save_every=500, evaluate_every=500, evaluate_sequences=1024),
        ),
        SHORT,
    ),
)
