"""Named pretraining runs: a recipe is a value, a name with the phases that it trains one after the other.

Sizes are those of google-research/bert's model table; the hyperparameters of `bert_base` are the paper's (Devlin et al.
2019, appendix A.2): batch 256, Adam with peak 1e-4, 10,000 warm-up steps, 900,000 steps of length 128 and 100,000 of
length 512, in one schedule. `bert_large_adam` is the same for BERT-Large.

`bert_large` is NVIDIA's LAMB recipe (DeepLearningExamples, TensorFlow2/LanguageModeling/BERT, configurations.yml and
pretrain_config.sh; for the A100 and the H100, its PyTorch recipe). Its variants for specific machines say only what
differs. NVIDIA gives learning rates per GPU and multiplies them by the number of GPUs; here they are for the whole
batch, and gradient accumulation follows from the number of ranks. What the optimizers of the sources do, and where ours
differs, is in docs/optimizers.md.

`gpt2_*` are causal models of the sizes in Radford et al. 2019 and Shoeybi et al. 2019 (Megatron-LM), with Megatron-LM's
settings. "State" in their descriptions is what weights, gradients and moments need, before activations.

Most recipes choose the precision for the device (`AUTO`): 16 bits with XLA on a GPU, float32 on a CPU.
"""

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert.core import cli, config_file, effects
from bert.core.config import (
    BatchConfig,
    BudgetConfig,
    DataConfig,
    DistillConfig,
    InitConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PrecisionConfig,
    PretrainConfig,
    RunConfig,
)
from bert.core.errors import UsageError

MASKED = 0.15  # share of the tokens that are predicted
SHORT, LONG = 128, 512  # tokens of a sequence in the published phases
NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One run of a recipe."""

    name: str
    """of the phase, which also names its run directory"""
    config: PretrainConfig
    length: int = 0
    """tokens of a sequence of its data (--max_seq_length of data.tfrecords); 0: data.length, or the model's longest"""
    predicted: int = 0
    """tokens that are predicted in a sequence (--max_predictions_per_seq of data.tfrecords); 0: as it does itself"""
    after: str = ""
    """name of the phase whose weights it starts from"""
    flagged: frozenset[str] = frozenset()
    """fields of the model that the command gives"""

    @property
    def sequence(self) -> int:
        """Return the tokens of a sequence."""
        return self.length or self.config.data.length or self.config.model.max_position_embeddings

    @property
    def predictions(self) -> int:
        """Return the tokens that are predicted in a sequence."""
        return self.predicted or predictions(self.config.model, self.sequence)

    @property
    def about(self) -> str:
        run = f"{self.sequence} tokens, {self.config.run.steps:,} updates of {self.config.batch.total:,} sequences"
        return f"{run}, from all weights of {self.after}" if self.after else run


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Phases in their order. Each but the first starts from all weights of the one before."""

    name: str
    about: str
    phases: tuple[Phase, ...]
    part_of: str = ""
    """name of the recipe of which this is one phase"""

    @property
    def causal(self) -> bool:
        """Return whether the model is causal: it reads tokens, the others masked samples."""
        return self.phases[0].config.model.causal

    def only_config(self) -> PretrainConfig:
        """Return the configuration of a recipe of one phase. Raise UsageError if it has several."""
        if len(self.phases) > 1:
            names = ", then ".join(part.name for part in self.phases)
            raise UsageError(f"{self.name}: has {len(self.phases)} phases; give {names}")
        return self.phases[0].config

    def miniature(self) -> "Recipe":
        """Return the recipe with small models, batches and lengths, to check that it runs: a minute on two cores."""
        return replace(self, phases=tuple(replace(phase, config=_small(phase.config)) for phase in self.phases))


RECIPES: dict[str, Recipe] = {}  # by name; NAME_phase1 is the first phase of NAME alone


def predictions(model: ModelConfig, sequence: int, masked: float = MASKED) -> int:
    """Return the tokens that are predicted in a sequence, as `data.tfrecords` makes it. masked: share of the tokens."""
    return sequence if model.causal else math.ceil(round(sequence * masked, 6))


def phase(config: PretrainConfig, length: int = 0, predicted: int = 0) -> Phase:
    """Return a phase that has no name yet."""
    return Phase(name="", config=config, length=length, predicted=predicted)


def recipe(name: str, about: str, *phases: Phase) -> Recipe:
    """Return a recipe, entered in `RECIPES` under its name; so is each phase, if there are several."""
    names = [f"{name}_phase{number}" for number in range(1, len(phases) + 1)] if len(phases) > 1 else [name]
    named = [replace(phases[0], name=names[0])]
    for before, own, later in zip(names, names[1:], phases[1:], strict=False):
        named.append(replace(later, name=own, after=before, config=replace(later.config, init=FROM_CHECKPOINT)))
    whole = Recipe(name=name, about=about, phases=tuple(named))
    RECIPES[name] = whole
    if len(named) > 1:
        RECIPES.update(
            (part.name, Recipe(name=part.name, about=part.about, phases=(part,), part_of=name)) for part in named
        )
    return whole


def variant(base: Recipe, name: str, about: str, *changes: Mapping[str, Any], **sections: Any) -> Recipe:
    """Return `base` with other values in its phases, as a recipe of its own.

    changes: for each phase, values of fields by their dotted names. sections: of all phases.
    """
    different = changes or [NO_FIELDS] * len(base.phases)
    phases = [
        replace(part, config=_changed(replace(part.config, **sections), fields))
        for part, fields in zip(base.phases, different, strict=True)
    ]
    return recipe(name, about, *phases)


def _changed(config: PretrainConfig, fields: Mapping[str, Any]) -> PretrainConfig:
    for path, value in fields.items():
        section, _, field = path.partition(".")
        config = replace(config, **{section: replace(getattr(config, section), **{field: value})})
    return config


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


recipe(
    "bert_base",
    "BERT-Base as published: a million updates of one schedule, the last 100,000 with longer sequences",
    phase(_published("base", 32, steps=900_000), SHORT),
    phase(_published("base", 8, steps=100_000, first_step=900_000), LONG),
)
recipe(
    "bert_large_adam",
    "BERT-Large as published: a million updates of one schedule, the last 100,000 with longer sequences",
    phase(_published("large", 16, steps=900_000), SHORT),
    phase(_published("large", 4, steps=100_000, first_step=900_000), LONG),
)


def _megatron(size: str, per_device: int, steps: int) -> PretrainConfig:
    """Shoeybi et al. 2019, section 5.3: batch 1,024 of 512 tokens, Adam 1e-4, sentence order, n-grams of words."""
    return PretrainConfig(
        model=replace(_rounded(size), recompute_activations=True),
        batch=BatchConfig(total=1024, per_device=per_device),
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-4, warmup_steps=10_000, continuous=True, epsilon=1e-8),
        precision=BFLOAT16,
        run=RunConfig(steps=steps, log_every=100, save_every=5000, evaluate_every=5000),
    )


recipe(
    "bert_1b3",
    "BERT of 1.3 billion parameters, as in Megatron-LM; data of 512 tokens, made with --pairs sop --whole_word_mask "
    "true --max_ngram 3. Each device needs about 27 GB, of which 20 are state",
    phase(_megatron("1b3", 8, steps=2_000_000), LONG),
)
recipe(
    "bert_3b9",
    "BERT of 3.9 billion parameters, as in Megatron-LM; data as for bert_1b3. Each device needs about 72 GB, of which "
    "62 are state, and with several ranks 15 GB more for the sum of gradients",
    phase(_megatron("3b9", 2, steps=1_500_000), LONG),
)


def _lamb(total: int, per_device: int, rate: float, warmup: int, steps: int) -> PretrainConfig:
    return PretrainConfig(
        model=_rounded("large"),
        batch=BatchConfig(total=total, per_device=per_device),
        optimizer=OptimizerConfig(name="lamb", learning_rate=rate, warmup_steps=warmup, decay_power=0.5),
        precision=AUTO,
        run=RunConfig(steps=steps, log_every=10, save_every=200, evaluate_every=500, evaluate_sequences=10_240),
    )


LARGE = recipe(
    "bert_large",
    "BERT-Large with LAMB, as in NVIDIA's recipe",
    phase(_lamb(65_536, 64, rate=6e-3, warmup=2000, steps=7038), SHORT),
    phase(_lamb(32_768, 8, rate=4e-3, warmup=200, steps=1563), LONG),
)
variant(LARGE, "bert_large_float32", "bert_large in float32 without XLA: a baseline", precision=FLOAT32)
variant(
    LARGE,
    "bert_large_dgx1",
    "bert_large on DGX-1 or DGX-2 (V100 of 32 GB), any number of them",
    {"batch.total": 61_440, "batch.per_device": 60, "optimizer.warmup_steps": 2133, "run.steps": 7506},
    {"batch.total": 30_720, "batch.per_device": 10, "optimizer.warmup_steps": 213, "run.steps": 1668},
    precision=FLOAT16,
)
variant(
    LARGE,
    "bert_large_superpod",
    "bert_large on 92 DGX-2H (1,472 V100), or any number of ranks, with the nearest batch that they divide",
    {"batch.per_device": 60, "batch.fit": "nearest"},
    {"batch.per_device": 11, "batch.fit": "nearest"},
    precision=FLOAT16,
)
# LAMB of NVIDIA's PyTorch recipe leaves biases and layer norms to Adam.
A100 = variant(
    LARGE,
    "bert_large_dgxa100",
    "bert_large on DGX A100 (80 GB), any number of them, with LAMB as in NVIDIA's PyTorch recipe",
    {"batch.per_device": 256, "optimizer.name": "nvlamb"},
    {"batch.per_device": 32, "optimizer.name": "nvlamb"},
    precision=FLOAT16,
)
variant(
    A100,
    "bert_large_dgxh100",
    "bert_large on DGX H100: as on DGX A100, but in bfloat16, which needs no loss scale",
    precision=BFLOAT16,
)
recipe(
    "bert_large_mlperf",
    # The example of the reference of MLPerf Training. The first update is update 76 of the 287 of the warm-up. The run
    # is evaluated every 225,000 sequences, on 10,000.
    "BERT-Large to MLPerf's target, 72 % accuracy on held-out words, from the weights of a run; 512 tokens, of which "
    "76 are predicted",
    phase(
        PretrainConfig(
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
    "bert_large_24h",
    # Izsak et al. 2021, "How to Train BERT with an Academic Budget": layer norm before the sub-layers, masked words
    # only, Adam at 1e-3 with a warm-up of 6 % and a linear decay to zero. The schedule follows the clock:
    # `--budget.hours` is the length of the run, and run.steps is only the unit of the warm-up.
    "BERT-Large in a day on one machine (Izsak et al. 2021): 4,096 sequences of 128 tokens, made with --pairs none; "
    "--budget.hours is the length of the run",
    phase(
        PretrainConfig(
            model=replace(_rounded("large"), norm_placement="pre"),
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
    "bert_small_corpus",
    # The settings of babyberta/params.py and job.py (github.com/phueb/BabyBERTa), whose Adam has no bias correction.
    # There the rate ends with the corpus, here at the 260,000 updates of which the paper reports. Documents, because
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
    """Return the phase of a recipe with rotary positions, and 39 of 128 tokens to predict.

    Of what came after BERT, rotary positions alone paid in a small model (docs/results/2026-11-modern-blocks.md). There
    is no dropout on attention weights, which fused attention does not have.
    """
    rotary = replace(model, positions="rotary", attention_probs_dropout_prob=0.0)
    run = RunConfig(steps=steps, log_every=20, save_every=500, evaluate_every=500, evaluate_sequences=10_240)
    config = PretrainConfig(model=rotary, batch=batch, optimizer=optimizer, precision=AUTO, run=run)
    return phase(config, SHORT, predicted=predictions(rotary, SHORT, 0.3))


def _mosaic(size: str, per_device: int) -> Phase:
    """Portes et al. 2023, MosaicBERT: batch, rates and length of mosaicml/examples, of both sizes.

    StableAdamW is ModernBERT's (Warner et al. 2024); neither clips gradients. Beta, epsilon and decay are of both. They
    name the decay of an update at the peak rate, 1e-5, which here is the product of rate and weight_decay.
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
    return _modern(_rounded(size), BatchConfig(total=4096, per_device=per_device), optimizer, steps=70_000)


recipe(
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
    "bert_modern_base",
    "BERT-Base with rotary positions, masked words only and 30 % of them; batch and rates are those of MosaicBERT "
    f"(Portes et al. 2023), the optimizer is ModernBERT's; data {MODERN}",
    _mosaic("base", 256),
)
recipe(
    "bert_modern_large",
    f"BERT-Large with the settings of bert_modern_base; data {MODERN}",
    _mosaic("large", 128),
)


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
    "electra_small",
    # configure_pretraining.py of google-research/electra, whose optimizer has no bias correction. There the decay
    # already counts during the warm-up, by at most 1 % of the rate.
    "ELECTRA-Small as published (Clark et al. 2020): 12 layers x 256 and a generator of 12 layers x 64, a million "
    "updates of 128 sequences of 128 tokens, made with --pairs none and --kind documents",
    phase(
        _electra(
            replace(_model(12, 256), embedding_size=128),
            BatchConfig(total=128, per_device=128),
            OptimizerConfig(learning_rate=5e-4, warmup_steps=10_000),
            RunConfig(steps=1_000_000, log_every=100, save_every=5000, evaluate_every=5000),
        ),
        SHORT,
        predicted=19,
    ),
)
recipe(
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
    "distilbert",
    # distillation/train.py, README.md and scripts/extract.py of huggingface/transformers: losses 5, 2 and 1, here as
    # 7 (5/7 soft labels + 2/7 labels) + 1. The batch is the paper's. The number of updates is an estimate: three passes
    # over Wikipedia and books. There the soft labels are those of all tokens, here of the masked ones.
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
    "tinybert_4x312",
    f"4 layers x 312, {TINYBERT}",
    _tinybert(
        ModelConfig(hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200),
    ),
)
recipe("tinybert_6x768", f"6 layers x 768, {TINYBERT}", _tinybert(replace(SIZES["base"], num_hidden_layers=6)))


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
        f"minilm_{_layers}x384",
        f"{_layers} layers x 384, MiniLMv2 (Wang et al. 2021): relations of the last attention of BERT-Base, which "
        "--distill.teacher names, without labels; 512 tokens. Of BERT-Large: --distill.relation_layer 20 "
        "--distill.relation_heads 64",
        _minilm(_layers),
    )
recipe(
    "bert_domain",
    # Gururangan et al. 2020, table 13: Adam at 5e-4 with a warm-up of 6 %.
    'Continue a trained model on text of your domain: Gururangan et al. 2020, "Don\'t Stop Pretraining", 12,500 '
    "updates of 2,048 sequences. The model is that of --init.checkpoint; make the data with its vocabulary",
    phase(
        PretrainConfig(
            model=_rounded("base"),
            batch=BatchConfig(total=2048, per_device=32),
            optimizer=OptimizerConfig(name="adamw", learning_rate=5e-4, warmup_steps=750, continuous=True, beta_2=0.98),
            precision=BFLOAT16,
            run=RunConfig(steps=12_500, log_every=20, save_every=500, evaluate_every=500),
            init=FROM_CHECKPOINT,
        ),
        LONG,
    ),
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
DEMO_MODEL = replace(SIZES["tiny"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.06)


def _small_run(model: ModelConfig, total: int, rate: float, warmup: int, run: RunConfig) -> PretrainConfig:
    return PretrainConfig(
        model=model,
        batch=BatchConfig(total=total, per_device=total // 2),
        optimizer=OptimizerConfig(learning_rate=rate, warmup_steps=warmup, beta_2=0.98),
        precision=AUTO,
        run=run,
    )


recipe(
    "bert_tiny",
    "2 layers x 128, for a vocabulary of about 8,000: half an hour on two CPU cores",
    phase(
        _small_run(
            TINY,
            64,
            rate=1.5e-3,
            warmup=300,
            run=RunConfig(steps=8000, log_every=100, save_every=500, evaluate_every=500, evaluate_sequences=1024),
        ),
        SHORT,
    ),
    phase(
        _small_run(
            TINY,
            32,
            rate=5e-4,
            warmup=50,
            run=RunConfig(steps=500, log_every=100, save_every=250, evaluate_every=250, evaluate_sequences=512),
        ),
        LONG,
    ),
)
recipe(
    "bert_mini",
    "4 layers x 256: an hour on two CPU cores",
    phase(
        _small_run(
            MINI,
            32,
            rate=5e-4,
            warmup=150,
            run=RunConfig(steps=4200, log_every=50, save_every=500, evaluate_every=250, evaluate_sequences=1024),
        ),
        SHORT,
    ),
    phase(
        _small_run(
            MINI,
            16,
            rate=3e-4,
            warmup=25,
            run=RunConfig(steps=400, log_every=50, save_every=200, evaluate_every=200, evaluate_sequences=512),
        ),
        LONG,
    ),
)
recipe(
    "demo",
    "2 layers x 128 on the synthetic corpus of the demo: two minutes on two CPU cores",
    phase(
        _small_run(
            DEMO_MODEL,
            64,
            rate=3e-3,
            warmup=80,
            run=RunConfig(steps=900, log_every=20, save_every=300, evaluate_every=100, evaluate_sequences=384),
        ),
        48,
    ),
    phase(
        _small_run(
            DEMO_MODEL,
            64,
            rate=1e-3,
            warmup=20,
            run=RunConfig(steps=200, log_every=20, save_every=200, evaluate_every=100, evaluate_sequences=256),
        ),
        64,
    ),
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


recipe(
    "gpt2_smoke",
    "A causal model of 2 layers x 128 and 64 tokens, for a small vocabulary: two minutes on two CPU cores",
    phase(
        _changed(
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
    "gpt2_117m",
    'GPT-2 of 12 layers x 768, 1,024 tokens: the "117M" of Radford et al. 2019, which has 124 million parameters. '
    "500,000 updates of 64 sequences, as Megatron-LM's example for 345 million. State: 2 GB; with the activations of "
    "8 sequences 12 GB",
    phase(_causal(_gpt2(12, 768, 12), 64, 8, steps=500_000, warmup=3200, decay=320_000, precision=AUTO)),
)
recipe(
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
    "gpt2_2b5",
    "GPT-2 of 54 layers x 1,920: 2.5 billion parameters, as in Shoeybi et al. 2019. State: 40 GB; with the "
    "activations of 4 sequences 53 GB",
    phase(_billions(54, 1920, 20, per_device=4)),
)
recipe(
    "gpt2_8b3",
    "GPT-2 of 72 layers x 3,072: 8.3 billion parameters, as in Shoeybi et al. 2019. State: 133 GB; with the "
    "activations of 2 sequences 157 GB, which no common device has: divide it with --parallel.tensor",
    phase(_billions(72, 3072, 24, per_device=2)),
)


def _small(config: PretrainConfig) -> PretrainConfig:
    model = replace(config.model, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
    return replace(
        config,
        model=model,
        batch=BatchConfig(total=16, per_device=4),
        optimizer=replace(config.optimizer, first_step=0, warmup_steps=2, warmup_start=0, decay_steps=0),
        run=replace(config.run, steps=8, log_every=2, save_every=4, evaluate_every=4, evaluate_sequences=16),
        init=InitConfig(),
        distill=replace(config.distill, relation_heads=min(config.distill.relation_heads, 4)),
    )


# The command line


LATER = re.compile(r"--phase([1-9])\.(.+)", re.DOTALL)  # a flag of one phase
# Fields that cannot have one value for all phases, each with the reason.
OF_ONE_PHASE = {
    "init.checkpoint": "each phase starts from the one before",
    "init.step": "each phase starts from the one before",
    "init.layers": "each phase starts from all layers of the one before",
    "optimizer.first_step": "the phases have different places in the schedule",
}
OF_THE_PROCESS = ("parallel.", "run.device", "run.communicator", "run.deterministic", "run.profile")  # of all phases


def choose(argv: Sequence[str], *, prog: str, description: str, small: bool = False) -> list[Phase]:
    """Return the phases of the recipe that the first argument names, with the flags that follow applied.

    `--config FILE` gives the recipe and flags (`bert.core.config_file`). A flag is for every phase,
    `--phase2.section.field` for one. Of several phases `--data.train` has a folder for each, and `--run.directory RUN`
    stands for RUN/phase1, RUN/phase2, ... small: in miniature. Raise UsageError for a mistake in `argv` or the file,
    and for a flag that cannot be meant.
    """
    about = {name: recipe.about for name, recipe in RECIPES.items()}
    given = config_file.given(argv, PretrainConfig, prog=prog)
    phases = []
    with given.named():
        name = cli.named(given.words, about, prog=prog, description=description)
        chosen = RECIPES[name].miniature() if small else RECIPES[name]
        for own, part in zip(flags_of_phases(given.words[1:], chosen), chosen.phases, strict=True):
            config = cli.override(part.config, own, prog=f"{prog} {name}", description=description)
            effects.check(config, given.flags(own))
            phases.append(replace(part, config=config, flagged=given.model_flags(own)))
    return phases


def flags_of_phases(argv: Sequence[str], recipe: Recipe) -> list[list[str]]:
    """Return the flags that are for each phase. Raise UsageError for one that cannot be meant."""
    if len(recipe.phases) == 1:
        return [list(argv)]
    words: list[list[str]] = [[] for _ in recipe.phases]
    for flag, *values in _grouped(argv):
        if match := LATER.fullmatch(flag):
            number, own = int(match[1]), f"--{match[2]}"
            _check_of_one(flag, number, own.removeprefix("--").partition("=")[0], recipe)
            words[number - 1] += [own, *values]
        else:
            for phase_words, more_words in zip(words, _of_all(flag, values, recipe), strict=True):
                phase_words += more_words
    return words


def _alone(recipe: Recipe) -> str:
    return " and ".join(f"{part.name} alone" for part in recipe.phases)


def _check_of_one(flag: str, number: int, key: str, recipe: Recipe) -> None:
    """Raise UsageError if a flag cannot be meant for phase `number`. key: its name without the phase."""
    if number > len(recipe.phases):
        raise UsageError(f"{flag}: {recipe.name} has {len(recipe.phases)} phases")
    if key.startswith(OF_THE_PROCESS):
        raise UsageError(f"{flag}: one process runs all phases; give --{key}, or run {_alone(recipe)}")
    if key in ("init.checkpoint", "init.step", "init.layers") and number > 1:
        raise UsageError(f"{flag}: {OF_ONE_PHASE[key]}; leave it out, or run {recipe.phases[number - 1].name} alone")


def _of_all(flag: str, values: list[str], recipe: Recipe) -> list[list[str]]:
    """Return what a flag that names no phase is for each phase. Raise UsageError if it cannot be meant."""
    key, assigned, value = flag.removeprefix("--").partition("=")
    folders = [value, *values] if assigned else values
    if key in OF_ONE_PHASE:
        raise UsageError(f"--{key}: {OF_ONE_PHASE[key]}; give --phase1.{key}, or run {_alone(recipe)}")
    if key == "data.train":
        if len(folders) != len(recipe.phases):
            lengths = " and ".join(str(part.sequence) for part in recipe.phases)
            raise UsageError(
                f"--data.train has {len(folders)} of {len(recipe.phases)} folders; give one for each phase of "
                f"{recipe.name}, with sequences of {lengths} tokens"
            )
        return [[f"--data.train={folder}"] for folder in folders]
    if key == "run.directory" and len(folders) == 1 and folders[0]:
        return [
            [f"--run.directory={os.path.join(folders[0], f'phase{number + 1}')}"]
            for number in range(len(recipe.phases))
        ]
    return [[flag, *values]] * len(recipe.phases)


def _grouped(argv: Sequence[str]) -> Iterator[list[str]]:
    """Yield each flag with the values that follow it."""
    group: list[str] = []
    for word in argv:
        if word.startswith("--") and group:
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def with_architectures(phases: Sequence[Phase], begun: Callable[[Path], bool] = lambda run: False) -> list[Phase]:
    """Return the phases, each with the architecture of the weights that it starts from.

    begun: whether a run directory has weights already, which are then those that count. Raise UsageError if a flag
    contradicts the architecture, or if there is no teacher for a loss that needs one; InputError if there are no such
    weights.
    """
    completed: list[Phase] = []
    for part in phases:
        if part.config.distill.distances and not part.config.distill.teacher:
            raise UsageError(f"{part.name} learns from a trained model; give --distill.teacher RUN")
        config, flagged = part.config, part.flagged
        model, start, run = config.model, config.init.checkpoint, config.run.directory
        if run is not None and isinstance(start, Path) and begun(run):
            model = replace(model.of_weights(run), **{name: getattr(model, name) for name in flagged})
        elif completed:
            model = model.with_architecture(completed[-1].config.model, completed[-1].name, flagged)
        elif isinstance(start, Path):
            # With init.step it goes on from a run that has taken these layers already.
            layers = () if config.init.step else config.init.layers
            model = model.of_weights(start, flagged, layers=layers)
        completed.append(replace(part, config=replace(config, model=model)))
    return completed
