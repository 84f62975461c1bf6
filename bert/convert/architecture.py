"""The configuration files of the other formats: checked, since our encoder supports only one variant of BERT."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from bert.config import ModelConfig
from bert.convert.roberta import PAD_ID, UNUSED_POSITIONS
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
ROBERTA_EPSILON = 1e-12  # where config.json has none; published models have 1e-5
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")

PLACEMENTS: dict[str, Literal["post", "pre"]] = {  # of the norms, by model_type
    "bert": "post",
    "megatron-bert": "pre",
    "roberta": "post",
}

# The value that a key must have if it is present: any other value would be another function of the same weights.
SUPPORTED = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "layer_norm_eps": 1e-12,
    "is_decoder": False,
    "add_cross_attention": False,
    "quantization_config": None,
}
OF_ROBERTA = {"pad_token_id": PAD_ID, "type_vocab_size": 1}  # as above, for RoBERTa, which may have any layer_norm_eps


def supported(kind: str) -> dict[str, Any]:
    """Return the values that the keys of a model_type must have."""
    if kind != "roberta":
        return SUPPORTED
    return {key: value for key, value in SUPPORTED.items() if key != "layer_norm_eps"} | OF_ROBERTA


def read_architecture(path: Path, kinds: Sequence[str] = tuple(PLACEMENTS)) -> ModelConfig:
    """Return the architecture in Google's bert_config.json or Hugging Face's config.json.

    kinds: each model_type that can be there.
    Raises InputError, naming the key, for an unsupported architecture and for a missing or invalid size.
    """
    fields = read_object(path)
    kind = fields.get("model_type", "bert")
    if kind not in kinds:
        raise InputError(f"{path}: model_type is {kind!r}; supported here: {', '.join(map(repr, kinds))}")
    for key, value in supported(kind).items():
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
        if kind == "roberta":
            return _roberta(fields, sizes, path)
        return ModelConfig(norm_placement=PLACEMENTS[kind], **sizes)
    except UsageError as error:  # the file is wrong, not the command line
        raise InputError(f"{path}: {error}") from error


def _roberta(fields: dict[str, Any], sizes: dict[str, Any], path: Path) -> ModelConfig:
    """Return the architecture of a RoBERTa, whose first positions no model reads."""
    epsilon, positions = fields.get("layer_norm_eps", ROBERTA_EPSILON), sizes["max_position_embeddings"]
    if type(epsilon) not in (int, float) or not 0 < epsilon < 1:
        raise InputError(f"{path}: layer_norm_eps is {epsilon!r}, not a number in (0, 1); use the model's own file")
    if positions <= UNUSED_POSITIONS:
        raise InputError(
            f"{path}: max_position_embeddings is {positions}, of which RoBERTa reads none; give its own file"
        )
    return ModelConfig(
        **sizes | {"max_position_embeddings": positions - UNUSED_POSITIONS, "layer_norm_epsilon": epsilon}
    )


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


def roberta_keys(config: ModelConfig) -> dict[str, Any]:
    """Return the entries of RoBERTa's config.json that are not those of BERT's."""
    positions = config.max_position_embeddings + UNUSED_POSITIONS
    return {"max_position_embeddings": positions, "layer_norm_eps": config.layer_norm_epsilon}


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
