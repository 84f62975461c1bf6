"""The question-answering model, and what a run directory says about it."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import tensorflow as tf

from bert.config import ModelConfig
from bert.errors import InputError
from bert.inputs.sampler import Batch
from bert.inputs.tokenization import Tokenizer, tokenizer_for
from bert.model import heads
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.model.inference import InferenceEncoder
from bert.storage import manifest
from bert.training import checkpoint
from squad.config import Windowing

Compute = Literal["float32", "bfloat16", "float16"]


class QuestionAnswering(tf.Module):
    """Encoder with the answer-span head."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        self.encoder = Encoder(config, seed)
        self.answer_span = heads.AnswerSpan(config, seed)

    def __call__(self, batch: Batch, rng: DropoutRng, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        """Logits of each position as the answer's first and as its last [B, S], float32."""
        tokens = TokenBatch(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
        hidden = self.encoder(tokens, Mode(dtype, rng))
        return self.answer_span(hidden)


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """A model with all that it needs to read a question."""

    encoder: InferenceEncoder
    head: heads.AnswerSpan
    tokenizer: Tokenizer
    windowing: Windowing
    impossible: bool
    """whether it has learnt from impossible questions"""
    checkpoint: Path
    """folder that its weights were read from: the newest, or an older one if that is damaged"""

    def logits(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Of each position as the answer's first and as its last [B, S], float32."""
        return self.head(self.encoder(batch["input_ids"], batch["input_mask"], batch["segment_ids"]))

    @property
    def parameters(self) -> int:
        """How many numbers the model has learnt."""
        return self.encoder.parameters + sum(int(tf.size(weight)) for weight in self.head.trainable_variables)

    @property
    def weights(self) -> str:
        """Hash of its checkpoint."""
        return manifest.content_hash(self.checkpoint)


def load(run: Path, compute: Compute = "float32") -> FineTuned:
    """The newest checkpoint of a `squad.train` run with its vocabulary and windows; an import has the usual windows.

    `compute`: the type of the encoder's matrix products.
    Raises InputError if `run` is not such a directory or its vocabulary is of another size, IntegrityError if damaged.
    """
    if not run.is_dir():
        raise InputError(f"{run}: no such folder; give the run directory of python -m squad.train")
    config = ModelConfig.load(run / "bert_config.json")
    windowing = _windowing(run / "config.json", config)
    tokenizer = tokenizer_for(run / "vocab.txt", config)
    model = QuestionAnswering(config, seed=0)
    taken = checkpoint.load_weights(run, variables(model))
    return FineTuned(
        encoder=InferenceEncoder(model.encoder, tf.as_dtype(compute)),
        head=model.answer_span,
        tokenizer=tokenizer,
        windowing=windowing,
        impossible=_impossible(run / "config.json"),
        checkpoint=taken,
    )


def _windowing(path: Path, model: ModelConfig) -> Windowing:
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        settings = run["config"]
        if "imported" in run:
            length = min(Windowing.max_seq_length, model.max_position_embeddings)  # 384, 128, 64 where it can be
            return Windowing(max_seq_length=length, doc_stride=length // 3, max_query_length=length // 6)
        return Windowing(**{field.name: settings[f"windows.{field.name}"] for field in fields(Windowing)})
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; give the run directory of python -m squad.train") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the configuration of a squad.train run (no windows); check the path") from error


def _impossible(path: Path) -> bool:
    """Whether a run, whose windows are known by now, had impossible questions; those before version 2.0 do not say."""
    settings = json.loads(path.read_text(encoding="utf-8"))["config"]
    return bool(settings.get("data.impossible", False))
