"""The configuration files of others, with which a model must agree in all that ours cannot vary."""

import json
from pathlib import Path
from typing import Any

from bert.config import ModelConfig
from bert.errors import InputError, UsageError

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
         "max_position_embeddings", "type_vocab_size")  # fmt: skip
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")

# What a key must be if it is there: everything else would be another function of the same weights.
ONLY = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute", "layer_norm_eps": 1e-12,
        "is_decoder": False, "add_cross_attention": False, "quantization_config": None}  # fmt: skip


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
