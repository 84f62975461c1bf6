"""The programs to compile: training steps, updates and inference, each with a name."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from bert.core.config import BatchConfig, ModelConfig, OptimizerConfig, PrecisionConfig, PretrainConfig, RunConfig
from bert.recipes import SIZES

VOCABULARY = 30522  # word pieces of the published models
MICRO_BATCHES = 2  # in the loop of a training step; the loop's body is the same for any number
PREDICTIONS = {128: 20, 512: 80}  # masked positions of a sequence, as published
ANSWER_TOKENS = 384  # of a window of SQuAD, as published

Kind = Literal["pretrain", "finetune", "update", "answer"]


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program for a GPU.

    pretrain, finetune: the loop over micro-batches of `Step`, forward and backward passes. update: the optimizer's
    part of `Step`. answer: the model that answers questions, the forward pass alone.
    """

    kind: Kind
    size: str
    """model size, a key of bert.recipes.SIZES"""
    tokens: int = 0
    """of a sequence"""
    batch: int = 0
    """sequences per micro-batch"""
    rows: int = 0
    """rows into which the sequences are packed; 0: not packed"""
    compute: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    fused: bool = False
    """attention without its weights in memory"""
    dropped: bool = True
    """dropout on attention weights; without it fused attention is cuDNN's"""
    residual: Literal["float32", "bfloat16"] = "float32"
    """of the residual stream"""
    norm: bool = False
    """layer norm, and the residual sum before it, by our own kernels"""
    gelu: bool = False
    """GELU within products of our own"""
    recompute: bool = False
    """activations are recomputed in the backward pass"""
    optimizer: Literal["adamw", "lamb"] = "lamb"

    @property
    def predictions(self) -> int:
        """Masked positions of a sequence; 0 where nothing is pretrained."""
        return PREDICTIONS[self.tokens] if self.kind == "pretrain" else 0

    def model(self) -> ModelConfig:
        """The architecture."""
        changes: dict[str, Any] = {} if self.dropped else {"attention_probs_dropout_prob": 0.0}
        return replace(
            SIZES[self.size],
            vocab_size=VOCABULARY,
            vocab_multiple=128,
            fused_attention=self.fused,
            fused_norm=self.norm,
            fused_gelu=self.gelu,
            recompute_activations=self.recompute,
            **changes,
        )

    def config(self) -> PretrainConfig:
        """The configuration that a run of this program has; of fine-tuning and updates too, but for the data."""
        return PretrainConfig(
            model=self.model(),
            batch=BatchConfig(total=MICRO_BATCHES * self.batch, per_device=self.batch, pack=self.rows > 0),
            optimizer=OptimizerConfig(name=self.optimizer, learning_rate=1e-3),
            precision=PrecisionConfig(compute=self.compute, residual=self.residual, xla=True),
            run=RunConfig(steps=10, on_spike="warn"),
        )


def _pretraining(size: str, tokens: int, batch: int) -> dict[str, Program]:
    """Return the variants of a pretraining step. Packed rows are as many and hold twice as many sequences."""
    plain = Program(kind="pretrain", size=size, tokens=tokens, batch=batch)
    return {
        f"{size}_{tokens}": plain,
        f"{size}_{tokens}_fused": replace(plain, fused=True, dropped=False),
        f"{size}_{tokens}_flash": replace(plain, fused=True),
        f"{size}_{tokens}_flash_residual": replace(plain, fused=True, residual="bfloat16"),
        f"{size}_{tokens}_flash_norm": replace(plain, fused=True, residual="bfloat16", norm=True),
        f"{size}_{tokens}_flash_norm_gelu": replace(plain, fused=True, residual="bfloat16", norm=True, gelu=True),
        f"{size}_{tokens}_recompute": replace(plain, recompute=True),
        f"{size}_{tokens}_packed": replace(plain, batch=2 * batch, rows=batch),
        f"{size}_{tokens}_packed_flash": replace(plain, batch=2 * batch, rows=batch, fused=True),
        f"{size}_{tokens}_float16": replace(plain, compute="float16"),
    }


PROGRAMS: dict[str, Program] = {
    **_pretraining("large", 128, 192),
    **_pretraining("large", 512, 48),
    **_pretraining("base", 128, 256),
    **_pretraining("base", 512, 64),
    "large_lamb": Program(kind="update", size="large", optimizer="lamb"),
    "base_adamw": Program(kind="update", size="base", optimizer="adamw"),
    "squad_large": Program(kind="finetune", size="large", tokens=ANSWER_TOKENS, batch=24),
    "squad_base": Program(kind="finetune", size="base", tokens=ANSWER_TOKENS, batch=12),
    **{
        f"answers_large_{batch}": Program(kind="answer", size="large", tokens=ANSWER_TOKENS, batch=batch)
        for batch in (1, 8, 32)
    },
}

TINY: dict[str, Program] = {  # compiled in seconds, for tests; only when it is asked for by name
    "tiny_128": Program(kind="pretrain", size="tiny", tokens=128, batch=3),
    "tiny_128_fused": Program(kind="pretrain", size="tiny", tokens=128, batch=3, fused=True, dropped=False),
    "tiny_128_flash": Program(kind="pretrain", size="tiny", tokens=128, batch=3, fused=True),
    "tiny_128_flash_norm_gelu": Program(
        kind="pretrain", size="tiny", tokens=128, batch=4, fused=True, residual="bfloat16", norm=True, gelu=True
    ),
}
