"""NeoBERT (Le Breton et al. 2025) on the Hub of Hugging Face: its configuration, whose keys are others than BERT's.

transformers has no such model: the Hub's folder chandar-lab/NeoBERT has its own code (model.py, rotary.py), which
`trust_remote_code` runs. Sources: that code, and github.com/chandar-lab/NeoBERT, whose configuration has more choices.
"""

from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shown
from typing import Any

from bert.convert.families import BERTS, Family
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.heads import CLASSIFIER, MULTILABEL

LENGTH = "max_length"
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
SUPPORTED = {  # another value would be another function of the same weights, or other weights
    "rms_norm": True,
    "rope": True,
    "ngpt": False,
    "swiglu_packed": True,
    "rope_theta": 10_000.0,
    "rope_scaling": None,
    "quantization_config": None,
}
ACTIVATION = "swiglu"
RANGES = ("classifier_init_range", "decoder_init_range", "embedding_init_range")  # the first is for a new head
MULTIPLE = 8  # of the width of the feed-forward layer, which is two thirds of intermediate_size, rounded up
FIXED = (  # settings that all its models have
    {"norm_placement": "pre", "type_vocab_size": 0, "hidden_act": "silu", "rotary_base": 10_000.0}
    | BERTS
    | {"biases": False, "gated": True, "positions": "rotary", "norm": "rms", "masked_lm_head": "linear"}
)
EPSILON, LONGEST = 1e-6, 1024  # where config.json has none
CODE = "chandar-lab/NeoBERT--model"  # the Hub's folder, and its module
AUTO_MAP = {
    "AutoConfig": f"{CODE}.NeoBERTConfig",
    "AutoModel": f"{CODE}.NeoBERT",
    "AutoModelForMaskedLM": f"{CODE}.NeoBERTLMHead",
    "AutoModelForSequenceClassification": f"{CODE}.NeoBERTForSequenceClassification",
}


def read_config(fields: Mapping[str, Any], path: Path) -> ModelConfig:
    """Return the architecture in the fields of a config.json.

    Raise InputError, naming the key, for an unsupported architecture and for a missing or invalid number.
    """
    for key, value in SUPPORTED.items():
        if fields.get(key, value) != value:
            raise InputError(f"{path}: {key} is {shown(fields[key])}; only {value!r} is supported")
    if str(fields.get("hidden_act", ACTIVATION)).lower() != ACTIVATION:
        raise InputError(f"{path}: hidden_act is {shown(fields['hidden_act'])}; only 'SwiGLU' is supported")
    sizes: dict[str, Any] = {key: _size(fields.get(key), key, path) for key in SIZES}
    sizes["intermediate_size"] = _rounded(sizes["intermediate_size"])
    try:
        return ModelConfig(
            **sizes | FIXED,
            max_position_embeddings=_size(fields.get(LENGTH, LONGEST), LENGTH, path),
            layer_norm_epsilon=_number(fields, "norm_eps", EPSILON, path),
            initializer_range=_number(fields, RANGES[0], 0.02, path),
            hidden_dropout_prob=_number(fields, "dropout", 0.0, path),
            attention_probs_dropout_prob=0.0,
        )
    except UsageError as error:  # the file is wrong, not the command line
        raise InputError(f"{path}: {error}") from error


def _size(value: Any, key: str, path: Path) -> int:
    if type(value) is not int or value < 1:
        raise InputError(f"{path}: {key} is {shown(value)}, not a positive integer; use the model's own file")
    return value


def _rounded(intermediate_size: int) -> int:
    """Return the width of the feed-forward layer, which has as many parameters as one without a gate."""
    return -(-int(2 * intermediate_size / 3) // MULTIPLE) * MULTIPLE


def _number(fields: Mapping[str, Any], key: str, default: float, path: Path) -> float:
    value = fields.get(key, default)
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise InputError(f"{path}: {key} is {shown(value)}, not a number in [0, 1); use the model's own file")
    return float(value)


def config_fields(config: ModelConfig, _activation: str = ACTIVATION) -> dict[str, Any]:
    """Return the entries of config.json. Raise InputError for a width that it cannot hold."""
    theirs = 3 * config.intermediate_size // 2
    if _rounded(theirs) != config.intermediate_size:
        raise InputError(
            f"intermediate_size is {config.intermediate_size}; NeoBERT's is a multiple of {MULTIPLE}: use bert.export"
        )
    return (
        {key: getattr(config, key) for key in SIZES}
        | dict.fromkeys(RANGES, config.initializer_range)
        | {
            "intermediate_size": theirs,
            LENGTH: config.max_position_embeddings,
            "norm_eps": config.layer_norm_epsilon,
            "auto_map": AUTO_MAP,
        }
    )


FAMILY = Family(
    model_type="neobert",
    title="NeoBERT",
    classes="NeoBERT",
    class_names={"BertModel": "NeoBERT", "BertForMaskedLM": "NeoBERTLMHead"},
    prefix="model",
    unprefixed=("encoder", "transformer_encoder", "layer_norm"),
    layer="transformer_encoder",
    names={
        "embeddings/word": "model.encoder",
        "final/layer_norm": "model.layer_norm",
        "attention/query": "qkv.query",
        "attention/key": "qkv.key",
        "attention/value": "qkv.value",
        "attention/output": "wo",
        "attention/layer_norm": "attention_norm",
        "mlp/inner": "ffn.w12.inner",
        "mlp/gate": "ffn.w12.gate",
        "mlp/outer": "ffn.w3",
        "mlp/layer_norm": "ffn_norm",
        "masked_lm/words": "decoder",
        "masked_lm/bias": "decoder.bias",
        "pooler": "dense",
        "classifier": "classifier",
        "multilabel": "classifier",
    },
    tied={},
    read_config=read_config,
    config_fields=config_fields,
    fixed=FIXED,
    tasks=(CLASSIFIER.name, MULTILABEL.name),
    adapters=False,
    remote=True,
)
