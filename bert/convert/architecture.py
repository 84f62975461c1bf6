"""The configuration files of the other formats: checked, since our encoder supports only one variant of BERT."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from bert.config import ModelConfig
from bert.errors import InputError, UsageError
from bert.labels import KINDS, Head, is_complete, of, ordered
from bert.storage import files

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

PLACEMENTS: dict[str, Literal["post", "pre"]] = {"bert": "post", "megatron-bert": "pre"}  # of the norms, by model_type

# The value that a key must have if it is present: any other value would be another function of the same weights.
SUPPORTED = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "layer_norm_eps": 1e-12,
    "is_decoder": False,
    "add_cross_attention": False,
    "quantization_config": None,
}


def read_architecture(path: Path) -> ModelConfig:
    """Return the architecture in Google's bert_config.json or Hugging Face's config.json.

    Raises InputError, naming the key, for an unsupported architecture and for a missing or invalid size.
    """
    fields = read_object(path)
    kind = fields.get("model_type", "bert")
    if kind not in PLACEMENTS:
        raise InputError(f"{path}: model_type is {kind!r}; only {' and '.join(map(repr, PLACEMENTS))} are supported")
    for key, value in SUPPORTED.items():
        if fields.get(key, value) != value:
            raise InputError(f"{path}: {key} is {fields[key]!r}; only {value!r} is supported")
    for key in SIZES:
        if type(fields.get(key)) is not int or fields[key] < 1:
            raise InputError(f"{path}: {key} is {fields.get(key)!r}, not a positive integer; use the model's own file")
    for key in RATES:
        if type(fields.get(key, 0)) not in (int, float) or not 0 <= fields.get(key, 0) < 1:
            raise InputError(f"{path}: {key} is {fields[key]!r}, not a number in [0, 1); use the model's original file")
    try:
        sizes = {key: fields[key] for key in (*SIZES, *RATES) if key in fields}
        return ModelConfig(norm_placement=PLACEMENTS[kind], **sizes)
    except UsageError as error:  # the file is wrong, not the command line
        raise InputError(f"{path}: {error}") from error


def labels(fields: dict[str, Any], classes: int, path: Path) -> list[str]:
    """Return the names of the classes of texts or tokens, by default LABEL_0, LABEL_1, ... as in transformers.

    fields: the configuration that was read from `path`. Raises InputError if it has another number of classes, or if
    two of them have one name.
    """
    if not classes:
        return []
    names = fields.get("id2label")
    if names is None and fields.get("num_labels", classes) == classes:
        return [f"LABEL_{number}" for number in range(classes)]
    if not is_complete(names, classes):
        key = "num_labels" if names is None else "id2label"
        raise InputError(f"{path}: the classifier has {classes} classes, {key} does not; use the model's original file")
    assert isinstance(names, dict)
    return list(ordered(names, path))


def head(names: Sequence[str], fields: dict[str, Any], classes: int, path: Path) -> Head | None:
    """Return the head of a task among the model's heads, with the names of its classes; None if there is none.

    fields, path: as of `labels`. One class of texts means a number, as in transformers.
    """
    kind = next((kind for kind in KINDS if kind in names), None)
    if kind is None:
        return None
    if kind not in ("classifier", "tags"):
        stored = of(fields, path) if fields.get("head") == kind else None
        return stored or Head(kind=kind)
    found, regression = tuple(labels(fields, classes, path)), kind == "classifier" and classes == 1
    return Head(kind=kind, labels=() if regression and found == ("LABEL_0",) else found, regression=regression)


def keys(config: ModelConfig) -> dict[str, Any]:
    """Return the entries that the configuration files of both formats have."""
    return {key: getattr(config, key) for key in (*SIZES, *RATES, "hidden_act")}


def model_type(config: ModelConfig) -> str:
    """Return what transformers calls the architecture of a model that is not causal."""
    return next(kind for kind, placement in PLACEMENTS.items() if placement == config.norm_placement)


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises InputError, naming the file, if there is none."""
    try:
        fields = files.read_json(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; the folder of a model must have one") from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); download it again") from error
    if not isinstance(fields, dict):
        raise InputError(f"{path}: not a JSON object; download it again")
    return fields
