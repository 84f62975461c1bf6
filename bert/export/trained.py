"""The model of a run directory as an export takes it: encoder, head, tokenizer, and how long its inputs are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf

from bert import embedding
from bert.core import checked_json
from bert.core.errors import InputError, UsageError
from bert.export.tokenizer import GraphTokenizer
from bert.hardware.choices import Compute
from bert.heads import KINDS
from bert.labels import Head
from bert.model.encoder import Encoder
from bert.model.heads import TaskHead, TaskModel
from bert.model.inference import InferenceEncoder
from bert.runs import Run

LONGEST = 512  # tokens of an input, unless the run says another number


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How texts are cut."""

    length: int
    """tokens of an input, special tokens included"""
    first_length: int = 0
    """tokens to keep of the first text of a pair; 0: all that fit"""
    stride: int = 64
    """tokens between the starts of two windows of a text or a sentence that is too long"""
    windows: Literal["first", "mean", "max"] = "first"
    """of texts that are too long: first cuts them; mean and max are of the logits of all windows"""
    odd_to_longer: bool = False
    """whether the longer text of a pair keeps the odd token, as in an import from sentence-transformers"""

    def __post_init__(self) -> None:
        if self.length < 5 or self.first_length < 0 or self.stride < 1:  # a pair has three special tokens
            raise ValueError(f"length {self.length}, first_length {self.first_length} or stride {self.stride}")


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model for inference."""

    run: Run
    encoder: InferenceEncoder
    output: TaskHead | None
    """None for an encoder alone"""
    head: Head | None
    """what its outputs mean"""
    sizes: Sizes
    parameters: int
    thresholds: tuple[float, ...] = ()
    """probability from which each label is given, if there can be several"""


def load(run: Path, compute: Compute = "float32", length: int | None = None) -> Trained:
    """Load the newest checkpoint of a run. Its head is the one that its `config.json` names; without one, the encoder.

    compute: data type of the encoder's matrix products. length: instead of the one of its training. Raise InputError if
    `run` is not a run directory or its head has no names of classes, UsageError if it answers questions,
    IntegrityError if the checkpoint or a file beside it is damaged.
    """
    opened = Run.open(run)
    GraphTokenizer(opened.tokenizer)  # raises an error if there is none
    head, path = opened.head, opened.settings_path
    if head and ":" not in (export := KINDS[head.kind].export):
        raise UsageError(f"{run}: answers questions; export it with python -m {export}")
    if head and not head.outputs:
        raise InputError(f"{path}: names no classes; give the run directory of a fine-tuned model")
    made = embedding.of(opened.settings, path)
    settings = opened.settings if head else {"inputs": {"length": made.length}} if made and made.length else {}
    sizes = _sizes(settings, path, opened.config.max_position_embeddings, length)
    model = TaskModel(opened.config, 0, head) if head else None
    encoder = model.encoder if model else Encoder(opened.config, seed=0)
    opened.load(model or encoder)
    return Trained(
        run=opened,
        encoder=InferenceEncoder(encoder, tf.as_dtype(compute)),
        output=model.head if model else None,
        head=head,
        sizes=sizes,
        parameters=sum(int(tf.size(weight)) for weight in (model or encoder).trainable_variables),
        thresholds=opened.thresholds(),
    )


def _sizes(settings: dict[str, Any], path: Path, positions: int, length: int | None) -> Sizes:
    """Return the sizes that a run of tasks.train records, or the default ones, as for an import."""
    try:
        stored: dict[str, Any] = {"length": min(positions, LONGEST if "head" in settings else positions)}
        stored |= settings.get("inputs", {})
        sizes: Sizes = checked_json.take(Sizes, stored | ({"length": length} if length else {}))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: not the configuration of a run ({error}); give its run directory") from error
    if sizes.length > positions:
        raise UsageError(f"--length {sizes.length}: the model has only {positions} positions; give a smaller value")
    return sizes
