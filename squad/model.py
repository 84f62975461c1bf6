"""The question-answering model, and how it is loaded from a run directory."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import tensorflow as tf

from bert.config import ModelConfig
from bert.errors import InputError
from bert.inputs import vocabulary
from bert.inputs.sampler import Batch
from bert.inputs.tokenization import Tokenizer, tokenizer_for
from bert.model import heads
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.model.inference import InferenceEncoder
from bert.model.parts import WHOLE, Parts
from bert.storage import checked_json, files, manifest
from bert.training import checkpoint
from squad.config import Windowing

Compute = Literal["float32", "bfloat16", "float16"]


class QuestionAnswering(tf.Module):
    """Encoder and answer-span head."""

    def __init__(self, config: ModelConfig, seed: int, parts: Parts = WHOLE) -> None:
        super().__init__()
        self.encoder = Encoder(config, seed, parts)
        self.answer_span = heads.AnswerSpan(config, seed)

    def __call__(self, batch: Batch, mode: Mode) -> tuple[tf.Tensor, tf.Tensor]:
        """Return start and end logits of each position [B, S], float32."""
        tokens = TokenBatch(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
        hidden = self.encoder(tokens, mode)
        return self.answer_span(hidden)


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """A fine-tuned model for inference, with tokenizer and window sizes."""

    encoder: InferenceEncoder
    head: heads.AnswerSpan
    tokenizer: Tokenizer
    windowing: Windowing
    impossible: bool
    """whether it was trained on impossible questions"""
    checkpoint: Path
    """the checkpoint's folder: the newest, or an older one if that is damaged"""

    def logits(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Return start and end logits of each position [B, S], float32."""
        return self.head(self.encoder(batch["input_ids"], batch["input_mask"], batch["segment_ids"]))

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self.encoder.parameters + sum(int(tf.size(weight)) for weight in self.head.trainable_variables)

    @property
    def weights(self) -> str:
        """Content hash of the checkpoint."""
        return manifest.content_hash(self.checkpoint)


def load(run: Path, compute: Compute = "float32") -> FineTuned:
    """Load the newest checkpoint of a `squad.train` run, or an imported model, which gets default windows.

    compute: data type of the encoder's matrix products. Raises InputError if `run` is not such a directory or its
    vocabulary has another size, IntegrityError if the checkpoint or a file beside it is damaged.
    """
    if not run.is_dir():
        raise InputError(f"{run}: no such folder; give the run directory of python -m squad.train")
    checkpoint.check_description(run)
    config = ModelConfig.load(run / "bert_config.json")
    windowing, impossible = _trained_for(run / "config.json", config)
    tokenizer = tokenizer_for(vocabulary.path_in(run), config)
    model = QuestionAnswering(config, seed=0)
    taken = checkpoint.load_weights(run, variables(model))
    return FineTuned(
        encoder=InferenceEncoder(model.encoder, tf.as_dtype(compute)),
        head=model.answer_span,
        tokenizer=tokenizer,
        windowing=windowing,
        impossible=impossible,
        checkpoint=taken,
    )


def _trained_for(path: Path, model: ModelConfig) -> tuple[Windowing, bool]:
    """Return the windows of a run, from its `config.json`, and whether it had impossible questions.

    Runs of the first version do not store the latter.
    """
    try:
        run = files.read_json(path)
        settings = run["config"]
        if (impossible := settings.get("data.impossible", False)) not in (True, False):
            raise ValueError("data.impossible is not a boolean")
        if "imported" in run:  # 384 tokens with strides of 128 if possible
            length = min(Windowing.max_seq_length, model.max_position_embeddings)
            sizes = {"max_seq_length": length, "doc_stride": length // 3, "max_query_length": length // 6}
        else:
            sizes = {field.name: settings[f"windows.{field.name}"] for field in fields(Windowing)}
        windows: Windowing = checked_json.take(Windowing, sizes)
        if windows.max_seq_length > model.max_position_embeddings:
            raise ValueError("windows longer than the model's longest sequence")
        return windows, bool(impossible)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; give the run directory of python -m squad.train") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: not the configuration of a squad.train run ({error}); give its run directory"
        ) from error
