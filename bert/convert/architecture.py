"""The configuration files of the other formats: checked, since our encoder supports only some variants of BERT."""

import json
from collections.abc import Sequence
from pathlib import Path
from reprlib import repr as shown
from typing import Any

from bert.convert.families import ACTIVATIONS, ENCODERS, EPSILON, FAMILIES, Family
from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.heads import KINDS
from bert.labels import Head, is_complete, of, ordered

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
BERTS_EPSILON = 1e-12  # where config.json has none
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")


def read_architecture(path: Path, kinds: Sequence[str] = ENCODERS) -> ModelConfig:
    """Return the architecture in Google's bert_config.json or Hugging Face's config.json, whose keys are as BERT's.

    kinds: each model_type that can be there.
    Raises InputError, naming the key, for an unsupported architecture and for a missing or invalid number.
    """
    fields = files.read_object(path)
    kind = fields.get("model_type", "bert")
    if kind not in kinds:
        raise InputError(f"{path}: model_type is {shown(kind)}; supported here: {', '.join(map(repr, kinds))}")
    family = FAMILIES[kind]
    for key, value in family.supported.items():
        if fields.get(key, value) != value:
            raise InputError(f"{path}: {key} is {shown(fields[key])}; only {value!r} is supported")
    sizes: dict[str, Any] = {}
    for ours in _sizes(family):
        sizes[ours] = fields.get(key := family.key(ours))
        if type(sizes[ours]) is not int or sizes[ours] < 1:
            raise InputError(f"{path}: {key} is {shown(sizes[ours])}, not a positive integer; use the model's own file")
    for ours in RATES:
        key = family.key(ours)
        if type(fields.get(key, 0)) not in (int, float) or not 0 <= fields.get(key, 0) < 1:
            raise InputError(f"{path}: {key} is {shown(fields[key])}, not a number in [0, 1); use the model's own file")
        sizes |= {ours: fields[key]} if key in fields else {}
    sizes |= {"hidden_act": _activation(fields, family, path), EPSILON: _epsilon(fields, family, path)}
    try:
        return ModelConfig(**sizes | family.fixed | _positions(sizes, family, path))
    except UsageError as error:  # the file is wrong, not the command line
        raise InputError(f"{path}: {error}") from error


def _sizes(family: Family) -> list[str]:
    """Return our names of the sizes in a family's configuration."""
    return [name for name in (*SIZES, "embedding_size") if family.fixed.get(name) != 0]


def _activation(fields: dict[str, Any], family: Family, path: Path) -> str:
    """Return our name of the activation in a configuration."""
    name = fields.get(key := family.key("hidden_act"), "gelu")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise InputError(f"{path}: {key} is {shown(name)}; supported: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _epsilon(fields: dict[str, Any], family: Family, path: Path) -> float:
    """Return the epsilon of layer norms in a configuration."""
    epsilon = fields.get(key := family.key(EPSILON), BERTS_EPSILON)
    if type(epsilon) not in (int, float) or not 0 < epsilon < 1:
        raise InputError(f"{path}: {key} is {shown(epsilon)}, not a number in (0, 1); use the model's own file")
    return float(epsilon)


def _positions(sizes: dict[str, Any], family: Family, path: Path) -> dict[str, int]:
    """Return the number of positions that a model reads, and the embeddings' width; 0 if it is the hidden size."""
    positions, width = sizes["max_position_embeddings"] - family.unused_positions, sizes.get("embedding_size", 0)
    if positions < 1:
        raise InputError(
            f"{path}: max_position_embeddings is {sizes['max_position_embeddings']}, of which {family.title} reads "
            "none; give its own file"
        )
    return {"max_position_embeddings": positions, "embedding_size": 0 if width == sizes["hidden_size"] else width}


def labels(fields: dict[str, Any], classes: int, path: Path) -> list[str]:
    """Return the names of the classes of texts or tokens, by default LABEL_0, LABEL_1, ... as in transformers.

    A number or a boolean is a name as JSON writes it, as in files with labels.
    fields: the configuration that was read from `path`. Raises InputError if it has another number of classes, or if
    two of them have one name.
    """
    if not classes:
        return []
    names = fields.get("id2label")
    if names is None and fields.get("num_labels", classes) == classes:
        return [f"LABEL_{number}" for number in range(classes)]
    if isinstance(names, dict):
        names = {key: json.dumps(name) if isinstance(name, int) else name for key, name in names.items()}
    if not is_complete(names, classes):
        key = "num_labels" if names is None else "id2label"
        raise InputError(f"{path}: the classifier has {classes} classes, {key} does not; use the model's original file")
    assert isinstance(names, dict)
    return list(ordered(names, path))


def head(names: Sequence[str], fields: dict[str, Any], classes: int, path: Path) -> Head | None:
    """Return the head of a task among the model's heads, with the names of its classes; None if there is none.

    fields, path: as in `labels`. One class of texts means a number, as in transformers.
    """
    kinds = [kind for kind in KINDS.values() if kind.name in names]
    if not kinds:
        return None
    kind = kinds[-1]  # classes rather than answers
    if not kind.has_classes:
        stored = of(fields, path) if fields.get("head") == kind.name else None
        return stored or Head(kind=kind.name)
    class_names, regression = tuple(labels(fields, classes, path)), kind.number and classes == 1
    return Head(
        kind=kind.name,
        labels=() if regression and class_names == ("LABEL_0",) else class_names,
        regression=regression,
        spaced=fields.get("spaced_words", True) is not False,
    )


def google_keys(config: ModelConfig) -> dict[str, Any]:
    """Return the content of Google's configuration. Raise InputError for a model that it cannot hold."""
    for key, values in {"hidden_act": ("gelu", "relu"), EPSILON: (BERTS_EPSILON,)}.items():
        if (ours := getattr(config, key)) not in values:
            raise InputError(f"{key} is {ours!r}, which Google's format cannot hold; export with huggingface instead")
    return {key: getattr(config, key) for key in (*SIZES, *RATES, "hidden_act")}


def keys(config: ModelConfig, family: Family) -> dict[str, Any]:
    """Return the entries of config.json for a model of a family."""
    activation = next(their for their, ours in ACTIVATIONS.items() if ours == config.hidden_act)
    if family.config_fields:
        return family.config_fields(config, activation)
    fixed = {key: value for key, value in family.supported.items() if value is not None}
    entries = {family.key(name): getattr(config, name) for name in (*_sizes(family), *RATES)}
    entries[family.key("hidden_act")] = activation
    entries["max_position_embeddings"] += family.unused_positions
    entries |= {"embedding_size": config.embedding_width} if "embedding_size" in entries else {}
    return fixed | entries | ({family.key(EPSILON): config.layer_norm_epsilon} if EPSILON not in family.fixed else {})
