"""Recipes of causal models: the sizes in Radford et al. 2019 and Shoeybi et al. 2019, with Megatron-LM's settings.

"State" in their descriptions is what weights, gradients and moments need, before activations.
"""

from dataclasses import replace

from bert.core.config import (
    BatchConfig,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
    PretrainConfig,
    RunConfig,
)
from bert.recipes import (
    AUTO,
    BFLOAT16,
    Recipe,
    changed,
    phase,
    recipe,
)

RECIPES: dict[str, Recipe] = {}


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


recipe(
    RECIPES,
    "gpt2_smoke",
    "A causal model of 2 layers x 128 and 64 tokens, for a small vocabulary: two minutes on two CPU cores",
    phase(
        changed(
            _causal(_gpt2(2, 128, 2), 32, 16, steps=600, warmup=30, decay=0, precision=AUTO),
            {
                "model.max_position_embeddings": 64,
                "model.hidden_dropout_prob": 0.0,
                "model.attention_probs_dropout_prob": 0.0,
                "model.initializer_range": 0.05,
                "model.vocab_multiple": 1,
                "optimizer.learning_rate": 3e-3,
                "optimizer.minimum_rate": 3e-4,
                "optimizer.beta_2": 0.98,
                "run.log_every": 20,
                "run.save_every": 200,
                "run.evaluate_every": 100,
                "run.evaluate_sequences": 256,
            },
        )
    ),
)
recipe(
    RECIPES,
    "gpt2_117m",
    'GPT-2 of 12 layers x 768, 1,024 tokens: the "117M" of Radford et al. 2019, which has 124 million parameters. '
    "500,000 updates of 64 sequences, as Megatron-LM's example for 345 million. State: 2 GB; with the activations of "
    "8 sequences 12 GB",
    phase(_causal(_gpt2(12, 768, 12), 64, 8, steps=500_000, warmup=3200, decay=320_000, precision=AUTO)),
)
recipe(
    RECIPES,
    "gpt2_345m",
    "GPT-2 of 24 layers x 1,024, 1,024 tokens: 355 million parameters, as in Megatron-LM's example. 500,000 updates "
    "of 64 sequences, with recomputed activations. State: 5.7 GB; with the activations of 4 sequences 9 GB",
    phase(
        _causal(
            replace(_gpt2(24, 1024, 16), recompute_activations=True),
            64,
            4,
            steps=500_000,
            warmup=3200,
            decay=320_000,
            precision=AUTO,
        )
    ),
)


def _billions(layers: int, width: int, heads: int, per_device: int) -> PretrainConfig:
    """Shoeybi et al. 2019: 300,000 updates of 512 sequences, with recomputed activations."""
    model = replace(_gpt2(layers, width, heads), recompute_activations=True)
    return _causal(model, 512, per_device, steps=300_000, warmup=3000, decay=300_000, precision=BFLOAT16)


recipe(
    RECIPES,
    "gpt2_2b5",
    "GPT-2 of 54 layers x 1,920: 2.5 billion parameters, as in Shoeybi et al. 2019. State: 40 GB; with the "
    "activations of 4 sequences 53 GB",
    phase(_billions(54, 1920, 20, per_device=4)),
)
recipe(
    RECIPES,
    "gpt2_8b3",
    "GPT-2 of 72 layers x 3,072: 8.3 billion parameters, as in Shoeybi et al. 2019. State: 133 GB; with the "
    "activations of 2 sequences 157 GB, which no common device has: divide it with --parallel.tensor",
    phase(_billions(72, 3072, 24, per_device=2)),
)
