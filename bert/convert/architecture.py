"""The configuration files of others, with which a model must agree in all that ours cannot vary."""

import json
from pathlib import Path
from typing import Any

from bert.config import ModelConfig
from bert.errors import InputError, UsageError

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")

# What a key must be if it is there: everything else would be another function of the same weights.
ONLY = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "layer_norm_eps": 1e-12,
    "is_decoder": False,
    "add_cross_attention": False,
    "quantization_config": None,
}


def read(path: Path) -> ModelConfig:
    """The architecture that Google's bert_config.json or Hugging Face's config.json states.

    Raises InputError, naming the key, for one that ours cannot express, and for sizes that are missing or impossible.
    """
    fields = read_object(path)
    for key, value in ONLY.items():
        if fields.get(key, value) != value:
            raise InputError(f"{path}: {key} is {fields[key]!r}; only {value!r} can be expressed here")
    for key in SIZES:
        if type(fields.get(key)) is not int or fields[key] < 1:
            raise InputError(f"{path}: {key} is {fields.get(key)!r}, not a whole number from 1; give a BERT model's")
    for key in RATES:
        if type(fields.get(key, 0)) not in (int, float) or not 0 <= fields.get(key, 0) < 1:
            raise InputError(f"{path}: {key} is {fields[key]!r}, not a number in [0, 1); give a BERT model's")
    try:
        return ModelConfig(**{key: fields[key] for key in (*SIZES, *RATES) if key in fields})
    except UsageError as error:  # here it is the file that is wrong
        raise InputError(f"{path}: {error}") from error


def labels(fields: dict[str, Any], classes: int, path: Path) -> list[str]:
    """The names of a classifier's classes; those that transformers invents if `fields`, read from `path`, have none.

    Raises InputError if `fields` are of another number of classes.
    """
    if not classes:
        return []
    numbers, named = [str(number) for number in range(classes)], fields.get("id2label")
    if named is None and fields.get("num_labels", classes) == classes:
        return [f"LABEL_{number}" for number in numbers]
    if not isinstance(named, dict) or named.keys() != set(numbers) or {*map(type, named.values())} != {str}:
        key = "num_labels" if named is None else "id2label"
        raise InputError(f"{path}: {key} is not of {classes} classes, which the classifier has; give the model's own")
    return [named[number] for number in numbers]


def keys(config: ModelConfig) -> dict[str, Any]:
    """The keys that both others have."""
    return {key: getattr(config, key) for key in (*SIZES, *RATES, "hidden_act")}


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file of others; InputError names the file if it is none."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; a model's folder holds one") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); fetch it again") from error
    if not isinstance(fields, dict):
        raise InputError(f"{path}: not a JSON object; fetch it again")
    return fields
