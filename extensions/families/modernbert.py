"""ModernBERT (Warner et al. 2024) in transformers: its configuration, whose keys are others than BERT's, and tokenizer.

Ettin's encoders (Weller et al. 2025) have it as well. Source: transformers (modeling_modernbert.py,
configuration_modernbert.py); earlier versions of the latter write `global_attn_every_n_layers`, `global_rope_theta` and
`local_rope_theta`, later ones `layer_types` and `rope_parameters`. Both are read, the later ones are written.
"""

from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shown
from typing import Any, Literal

from bert.convert import run
from bert.convert.families import ACTIVATIONS as KNOWN
from bert.convert.families import PLAIN, Family, TokenizerFiles
from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.text import tokenizer_kind
from bert.text.vocabulary import TOKENIZER
from extensions.tokenizers import bracketed_bpe, byte_bpe

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
GLOBAL, LOCAL = "full_attention", "sliding_attention"
THETA = {GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}  # of earlier versions
SUPPORTED = {  # another value would be another function of the same weights
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "embedding_dropout": 0.0,
    "mlp_dropout": 0.0,
    "tie_word_embeddings": True,
    "quantization_config": None,
}
ACTIVATIONS = ("hidden_activation", "classifier_activation")
CHOSEN = ("local_window", "pooling", "head_transform")  # settings of which its models may have any value
SETTINGS = "tokenizer_config.json"
ROLES = {
    "cls_token": bracketed_bpe.BEGIN,
    "sep_token": bracketed_bpe.CLOSE,
    "unk_token": bracketed_bpe.UNKNOWN,
    "pad_token": bracketed_bpe.PAD,
}
WINDOW, EVERY, EPSILON = 128, 3, 1e-5  # where config.json has none


def read_config(fields: Mapping[str, Any], path: Path) -> ModelConfig:
    """Return the architecture in the fields of a config.json.

    Raise InputError, naming the key, for an unsupported architecture and for a missing or invalid number.
    """
    for key, value in SUPPORTED.items():
        if fields.get(key, value) != value:
            raise InputError(f"{path}: {key} is {shown(fields[key])}; only {value!r} is supported")
    for key in SIZES:
        if type(fields.get(key)) is not int or fields[key] < 1:
            raise InputError(
                f"{path}: {key} is {shown(fields.get(key))}, not a positive integer; use the model's own file"
            )
    names = {fields.get(key, "gelu") for key in ACTIVATIONS}
    if len(names) > 1 or not all(isinstance(name, str) and name in KNOWN for name in names):
        some = ", ".join(KNOWN)
        raise InputError(f"{path}: {' and '.join(ACTIVATIONS)} are {sorted(map(str, names))}; supported: one of {some}")
    window = fields.get("local_attention", WINDOW)
    if type(window) is not int or window < 2:
        raise InputError(
            f"{path}: local_attention is {shown(window)}, not an integer above 1; use the model's own file"
        )
    try:
        return ModelConfig(
            **{key: fields[key] for key in SIZES},
            type_vocab_size=0,
            hidden_act=KNOWN[names.pop()],
            layer_norm_epsilon=_number(fields, "norm_eps", EPSILON, path),
            initializer_range=_number(fields, "initializer_range", 0.02, path),
            attention_probs_dropout_prob=_number(fields, "attention_dropout", 0.0, path),
            hidden_dropout_prob=0.0,
            norm_placement="pre",
            embedding_norm=True,
            biases=False,
            gated=True,
            positions="rotary",
            head_transform=True,
            pooling=_pooling(fields, path),
            local_window=window // 2,
            global_every=_global_every(fields, path),
            rotary_base=_theta(fields, GLOBAL, path),
            local_rotary_base=_theta(fields, LOCAL, path),
        )
    except UsageError as error:  # the file is wrong, not the command line
        raise InputError(f"{path}: {error}") from error


def _pooling(fields: Mapping[str, Any], path: Path) -> Literal["cls", "mean"]:
    """Return what the head of a classifier reads."""
    pooling = fields.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise InputError(f"{path}: classifier_pooling is {shown(pooling)}; supported: cls and mean")
    return "mean" if pooling == "mean" else "cls"


def _number(fields: Mapping[str, Any], key: str, default: float, path: Path) -> float:
    value = fields.get(key, default)
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise InputError(f"{path}: {key} is {shown(value)}, not a number in [0, 1); use the model's own file")
    return float(value)


def _global_every(fields: Mapping[str, Any], path: Path) -> int:
    """Return n if the first of each n layers has global attention."""
    types, layers = fields.get("layer_types"), fields["num_hidden_layers"]
    every = fields.get("global_attn_every_n_layers", EVERY)
    if types is not None:
        if not isinstance(types, list) or len(types) != layers or not {*map(str, types)} <= {GLOBAL, LOCAL}:
            raise InputError(f"{path}: layer_types does not say {GLOBAL} or {LOCAL} of each layer")
        every = next((number for number in range(1, layers) if types[number] == GLOBAL), layers)
        if types != _layer_types(layers, every):
            raise InputError(f"{path}: the layers of layer_types with {GLOBAL} have no equal distances from the first")
    if type(every) is not int or every < 1:
        raise InputError(f"{path}: global_attn_every_n_layers is {shown(every)}, not a positive integer")
    return every


def _layer_types(layers: int, every: int) -> list[str]:
    return [LOCAL if number % every else GLOBAL for number in range(layers)]


def _theta(fields: Mapping[str, Any], kind: str, path: Path) -> float:
    """Return the base of the angles of rotary positions, in layers of this kind."""
    stated = fields.get("rope_parameters")
    own = stated.get(kind) if isinstance(stated, dict) else None
    scaled = fields.get("rope_scaling") is not None
    if scaled or (isinstance(own, dict) and own.get("rope_type", "default") != "default"):
        raise InputError(f"{path}: rotary positions are scaled (rope_type, rope_scaling); only default is supported")
    key, default = THETA[kind]
    theta = own.get("rope_theta", default) if isinstance(own, dict) else fields.get(key, default)
    if theta is None and kind == LOCAL:
        theta = fields.get(*THETA[GLOBAL])
    if type(theta) not in (int, float) or not theta > 1:
        raise InputError(
            f"{path}: rope_theta of {kind} is {shown(theta)}, not a number above 1; use the model's own file"
        )
    return float(theta)


def config_fields(config: ModelConfig, activation: str) -> dict[str, Any]:
    """Return the entries of config.json. activation: their name of it."""
    theta = {GLOBAL: config.rotary_base, LOCAL: config.local_rotary_base}
    return (
        {key: value for key, value in SUPPORTED.items() if value is not None}
        | {key: getattr(config, key) for key in SIZES}
        | dict.fromkeys(ACTIVATIONS, activation)
        | {
            "norm_eps": config.layer_norm_epsilon,
            "initializer_range": config.initializer_range,
            "attention_dropout": config.attention_probs_dropout_prob,
            "classifier_pooling": config.pooling,
            "local_attention": 2 * config.local_window,
            "layer_types": _layer_types(config.num_hidden_layers, config.global_every),
            "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in theta.items()},
        }
    )


def check_settings(folder: Path, prefix: bool) -> None:
    """Raise InputError if tokenizer_config.json makes other tokens of a text than tokenizer.json does alone.

    prefix: whether the latter puts a space before a text.
    """
    path = folder / SETTINGS
    settings = files.read_object(path) if path.exists() else {}
    name = str(settings.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
    if name not in ("", "PreTrained", "TokenizersBackend", "Roberta"):  # for these transformers reads tokenizer.json
        raise InputError(f"{path}: tokenizer_class is {name}Tokenizer; supported: PreTrainedTokenizerFast")
    for role, token in {**ROLES, "mask_token": bracketed_bpe.MASK}.items():
        stated = settings.get(role, token)
        if (stated.get("content") if isinstance(stated, dict) else stated) != token:
            raise InputError(f"{path}: {role} is {stated!a}; supported: {token}")
    byte_bpe.check_prefix(settings, prefix, path)


def read_tokenizer(folder: Path, config: ModelConfig) -> str:
    """Return the content of a run's tokenizer.json."""
    path = folder / TOKENIZER
    if not path.exists():
        raise InputError(f"{folder}: no {TOKENIZER}; write it with save_pretrained of transformers")
    tokenizer = bracketed_bpe.BracketedBPE(path)
    run.check_vocab_size(config, tokenizer.vocabulary, path)
    check_settings(folder, tokenizer.prefix)
    return str(tokenizer_kind.content(path))


def write_tokenizer(text: str, longest: int, folder: Path) -> dict[str, int]:
    """Write the files from which transformers reads a tokenizer; return the ids of special tokens for config.json.

    text: of `tokenizer.json`. longest: in tokens.
    """
    with files.atomic_write(folder / TOKENIZER) as stream:
        stream.write(text)
    tokenizer = bracketed_bpe.BracketedBPE(folder / TOKENIZER)
    mask = {"content": bracketed_bpe.MASK, "lstrip": tokenizer.mask_strips, "normalized": False}
    mask |= {"rstrip": False, "single_word": False}
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": longest}
    settings |= {"model_input_names": ["input_ids", "attention_mask"], "add_prefix_space": tokenizer.prefix}
    files.write_json(folder / SETTINGS, settings | ROLES | {"mask_token": {"__type": "AddedToken", **mask}})
    files.write_json(folder / "special_tokens_map.json", ROLES | {"mask_token": mask})
    ids = {f"{role}_token_id": tokenizer.vocabulary[ROLES[f"{role}_token"]] for role in ("cls", "sep", "pad")}
    return ids | {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}


def of_run(path: Path, config: ModelConfig) -> str:
    """Return the content of the tokenizer.json of a run."""
    run.check_vocab_size(config, bracketed_bpe.BracketedBPE(path).vocabulary, path)
    return str(tokenizer_kind.content(path))


FILES = TokenizerFiles(read_tokenizer, write_tokenizer, of_run, byte_bpe.has_prefix, byte_bpe.with_prefix)
FAMILY = Family(
    model_type="modernbert",
    title="ModernBERT",
    classes="ModernBert",
    prefix="model",
    unprefixed=("embeddings", "layers", "final_norm"),
    layer="layers",
    names={
        "embeddings/word": "model.embeddings.tok_embeddings",
        "embeddings/layer_norm": "model.embeddings.norm",
        "final/layer_norm": "model.final_norm",
        "attention/query": "attn.Wqkv.query",
        "attention/key": "attn.Wqkv.key",
        "attention/value": "attn.Wqkv.value",
        "attention/output": "attn.Wo",
        "attention/layer_norm": "attn_norm",
        "mlp/inner": "mlp.Wi.inner",
        "mlp/gate": "mlp.Wi.gate",
        "mlp/outer": "mlp.Wo",
        "mlp/layer_norm": "mlp_norm",
        "masked_lm/transform": "head.dense",
        "masked_lm/layer_norm": "head.norm",
        "masked_lm/bias": "decoder.bias",
        "pooler": "head.dense",
        "pooler/layer_norm": "head.norm",
        "answer_span": "classifier",
    },
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    fixed={"norm_placement": "pre", "type_vocab_size": 0, "embedding_size": 0}
    | {name: value for name, value in PLAIN.items() if name not in CHOSEN}
    | {"embedding_norm": True, "biases": False, "gated": True, "positions": "rotary"},
    read_config=read_config,
    config_fields=config_fields,
    word_pieces=False,
    tokenizers={"bracketed byte pairs": FILES},
    one_head=True,
    adapters=False,
)
