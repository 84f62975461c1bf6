"""The model of a run directory as an export takes it: encoder, head, tokenizer, and how long its inputs are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf

from bert import labels
from bert.config import ModelConfig
from bert.errors import InputError, UsageError
from bert.inputs import vocabulary
from bert.inputs.tokenization import Tokenizer, tokenizer_for
from bert.labels import Head
from bert.model.encoder import Encoder, variables
from bert.model.heads import Choice, Classifier, Pooler, Tags
from bert.model.inference import InferenceEncoder
from bert.storage import checked_json
from bert.training import checkpoint

Compute = Literal["float32", "bfloat16", "float16"]
LONGEST = 512  # tokens of an input, unless the run says another number


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How texts are cut."""

    length: int
    """tokens of an input, special tokens included"""
    first_length: int = 0
    """tokens to keep of the first text of a pair; 0: all that fit"""
    stride: int = 64
    """tokens between the starts of two windows of a sentence that is too long to be tagged at once"""

    def __post_init__(self) -> None:
        if self.length < 5 or self.first_length < 0 or self.stride < 1:  # a pair has three special tokens
            raise ValueError(f"length {self.length}, first_length {self.first_length} or stride {self.stride}")


class Model(tf.Module):
    """An encoder with the head of a task, if it has one; only tags need no pooler."""

    def __init__(self, config: ModelConfig, head: Head | None) -> None:
        super().__init__()
        self.encoder = Encoder(config, seed=0)
        self.pooler = None if head is None or head.kind == "tags" else Pooler(config, seed=0)
        self.output = None if head is None else output(config, head)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model for inference."""

    encoder: InferenceEncoder
    pooler: Pooler | None
    output: Classifier | Choice | Tags | None
    head: Head | None
    """what its outputs mean; None for an encoder alone"""
    tokenizer: Tokenizer
    sizes: Sizes
    checkpoint: Path
    """the checkpoint's folder: the newest, or an older one if that is damaged"""
    parameters: int


def output(config: ModelConfig, head: Head) -> Classifier | Choice | Tags:
    """Return a head with its initial weights."""
    if head.kind == "choice":
        return Choice(config, seed=0)
    classes = 1 if head.regression else len(head.labels)
    return (Tags if head.kind == "tags" else Classifier)(config, 0, classes)


def load(run: Path, compute: Compute = "float32", length: int | None = None) -> Trained:
    """Load the newest checkpoint of a run. Its head is the one that its `config.json` names; without one, the encoder.

    compute: data type of the encoder's matrix products. length: instead of the one of its training. Raise InputError if
    `run` is not a run directory or its head has no names of classes, UsageError if it answers questions,
    IntegrityError if the checkpoint or a file beside it is damaged.
    """
    if not run.is_dir():
        raise InputError(f"{run}: no such folder; give the run directory of a trained model")
    checkpoint.check_description(run)
    config = ModelConfig.load(run / "bert_config.json")
    tokenizer, path = tokenizer_for(vocabulary.path_in(run), config), run / "config.json"
    tokenizer.in_graph()  # raises an error if there is none
    facts = labels.settings(run)
    head = labels.of(facts, path)
    if head and head.kind == "answer_span":
        raise UsageError(f"{run}: answers questions; export it with python -m squad.export")
    if head and not (head.labels or head.regression or head.kind == "choice"):
        raise InputError(f"{path}: names no classes; give the run directory of a fine-tuned model")
    sizes = _sizes(facts if head else {}, path, config.max_position_embeddings, length)
    model = Model(config, head)
    taken = checkpoint.load_weights(run, variables(model))
    parameters = sum(int(tf.size(weight)) for weight in model.trainable_variables)
    return Trained(
        encoder=InferenceEncoder(model.encoder, tf.as_dtype(compute)),
        pooler=model.pooler,
        output=model.output,
        head=head,
        tokenizer=tokenizer,
        sizes=sizes,
        checkpoint=taken,
        parameters=parameters,
    )


def _sizes(facts: dict[str, Any], path: Path, positions: int, length: int | None) -> Sizes:
    """Return the sizes that a run of tasks.train records, or the default ones, as of an import."""
    try:
        stored: dict[str, Any] = {"length": min(positions, LONGEST if "head" in facts else positions)}
        stored |= facts.get("inputs", {})
        sizes: Sizes = checked_json.take(Sizes, stored | ({"length": length} if length else {}))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: not the configuration of a run ({error}); give its run directory") from error
    if sizes.length > positions:
        raise UsageError(f"--length {sizes.length}: the model has only {positions} positions; give a smaller value")
    return sizes
