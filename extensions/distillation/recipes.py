"""Recipes of distillation: DistilBERT, TinyBERT and MiniLMv2."""

from dataclasses import replace

from bert.core.config import (
    BatchConfig,
    DistillConfig,
    InitConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainConfig,
    RunConfig,
)
from bert.recipes import (
    AUTO,
    LONG,
    SHORT,
    SIZES,
    Phase,
    Recipe,
    phase,
    recipe,
)

RECIPES: dict[str, Recipe] = {}


def _distilled(
    model: ModelConfig, batch: BatchConfig, optimizer: OptimizerConfig, steps: int, distill: DistillConfig
) -> PretrainConfig:
    """Return a run that learns from the teacher of --distill.teacher."""
    return PretrainConfig(
        model=model,
        batch=batch,
        optimizer=optimizer,
        precision=AUTO,
        run=RunConfig(steps=steps, log_every=100, save_every=5000, evaluate_every=5000),
        distill=distill,
    )


recipe(
    RECIPES,
    "distilbert",
    # distillation/train.py, README.md and scripts/extract.py of huggingface/transformers: losses 5, 2 and 1, here as
    # 7 (5/7 soft labels + 2/7 labels) + 1. The batch is the paper's. The number of updates is an estimate: three passes
    # over Wikipedia and books. There all tokens have soft labels, here only masked ones.
    "DistilBERT (Sanh et al. 2019): six layers of BERT-Base, which --init.checkpoint and --distill.teacher name, learn "
    "masked words, its probabilities and its last hidden states; 512 tokens, made with --pairs none and --kind "
    "documents",
    phase(
        replace(
            _distilled(
                replace(SIZES["base"], num_hidden_layers=6),
                BatchConfig(total=4096, per_device=32),
                OptimizerConfig(
                    name="adamw",
                    learning_rate=5e-4,
                    warmup_steps=300,
                    continuous=True,
                    beta_2=0.98,
                    weight_decay=0.0,
                    clip_norm=5.0,
                ),
                6000,
                DistillConfig(temperature=2.0, weight=5 / 7, outputs=7.0, cosine=1.0),
            ),
            init=InitConfig(checkpoint=None, layers=(0, 2, 4, 7, 9, 11)),
        ),
        LONG,
    ),
)


def _tinybert(model: ModelConfig) -> Phase:
    """General distillation as general_distill.py and README.md of huawei-noah/Pretrained-Language-Model have it.

    The number of updates is an estimate: three passes over the 2,500 million words of the paper.
    """
    config = _distilled(
        model,
        BatchConfig(total=256, per_device=64),
        OptimizerConfig(learning_rate=5e-5, warmup_steps=30_000),
        300_000,
        DistillConfig(outputs=0.0, hidden=1.0, attention=1.0),
    )
    return phase(config, SHORT)


TINYBERT = (
    "general distillation of TinyBERT (Jiao et al. 2020): hidden states and attention scores of BERT-Base, which "
    "--distill.teacher names, without labels; 128 tokens"
)
recipe(
    RECIPES,
    "tinybert_4x312",
    f"4 layers x 312, {TINYBERT}",
    _tinybert(
        ModelConfig(hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200),
    ),
)
recipe(RECIPES, "tinybert_6x768", f"6 layers x 768, {TINYBERT}", _tinybert(replace(SIZES["base"], num_hidden_layers=6)))


def _minilm(layers: int) -> Phase:
    """Wang et al. 2021, section 4.1. Of BERT-Large layer 20, from 0, is the teacher, with 64 relation heads."""
    config = _distilled(
        ModelConfig(hidden_size=384, num_hidden_layers=layers, num_attention_heads=12, intermediate_size=1536),
        BatchConfig(total=256, per_device=32),
        OptimizerConfig(name="adamw", learning_rate=6e-4, warmup_steps=4000, continuous=True),
        400_000,
        DistillConfig(outputs=0.0, relations=1.0, relation_heads=48),
    )
    return phase(config, LONG)


for _layers in (6, 12):
    recipe(
        RECIPES,
        f"minilm_{_layers}x384",
        f"{_layers} layers x 384, MiniLMv2 (Wang et al. 2021): relations of the last attention of BERT-Base, which "
        "--distill.teacher names, without labels; 512 tokens. Of BERT-Large: --distill.relation_layer 20 "
        "--distill.relation_heads 64",
        _minilm(_layers),
    )
