"""The families of models of transformers that have BERT's encoder: one table, by the `model_type` in config.json.

`FAMILIES` names the row of each family; BERT's is here. A row says how the tensors of a family are called, which keys
its configuration has, and which values all of its models have. A family whose configuration, or whose tokenizer's
files, have nothing in common with BERT's has functions for them. A new family is a line of `FAMILIES`, and a row.

Sources: transformers (modeling_bert.py, and the configuration beside it).
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from bert.core.config import RUN_SETTINGS, ModelConfig
from bert.core.errors import InputError
from bert.core.rows import Rows
from bert.heads import KINDS
from bert.text.tokenizer_kind import TokenizerType

ACTIVATIONS = {  # of transformers, and ours; an export writes the first one that is ours
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
EPSILON, THEIR_EPSILON = "layer_norm_epsilon", "layer_norm_eps"
ENCODER = {"is_decoder": False, "add_cross_attention": False, "quantization_config": None}
ABSOLUTE = {"position_embedding_type": "absolute"} | ENCODER


class TokenizerFiles(NamedTuple):
    """How transformers stores the tokenizers of one kind."""

    read: Callable[[Path, ModelConfig], str | None]
    """returns the content of a run's `tokenizer.json`; None if the tokenizer of a folder is of another kind. Raises
    InputError if the files say something else, or if the model has fewer rows than tokens"""
    write: Callable[[str, int, Path], dict[str, int]]
    """writes the content of a `tokenizer.json`, for texts of at most so many tokens, with the files beside it; returns
    the ids of special tokens for config.json"""
    of_run: Callable[[Path, ModelConfig], str]
    """returns the content of the `tokenizer.json` at a path, that of a run. Raises InputError if it is damaged, or if
    the model has fewer rows than tokens"""
    has_prefix: Callable[[str], bool] | None = None
    """whether a `tokenizer.json` puts a space before a text, where files can differ in it"""
    with_prefix: Callable[[str], str] | None = None
    """returns the content of the one that does so"""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What distinguishes a family from BERT."""

    model_type: str
    """in config.json"""
    title: str
    """in messages and in the model card"""
    classes: str
    """first part of the names of its classes"""
    class_names: Mapping[str, str] = field(default_factory=dict)
    """BERT's class: its class that corresponds to it, where the rest of the name differs"""
    prefix: str = "bert"
    """first part of the names of the encoder's tensors in a model with a head"""
    unprefixed: tuple[str, ...] = ("embeddings", "encoder", "pooler")
    """first parts of these names in a model without a head"""
    layer: str = "encoder.layer"
    """what precedes the number of a layer"""
    names: Mapping[str, str] = field(default_factory=dict)
    """our name of a part (of layers without their number): theirs, where it is not BERT's; none if all names are
    BERT's but for the prefix"""
    poolers: Mapping[str, str] = field(default_factory=dict)
    """name of a head: what the dense layer is called there that is the pooler here, if it has a name of its own"""
    tied: Mapping[str, str]
    """names of tensors that can be there as copies of others, and of these"""
    keys: Mapping[str, str] = field(default_factory=dict)
    """our name of a setting: their key, where it is not the same"""
    supported: Mapping[str, Any] = field(default_factory=lambda: ABSOLUTE)
    """their key: the value that it has if it is there; any other would be another function of the same weights"""
    fixed: dict[str, Any]
    """settings here that all its models have"""
    read_config: Callable[[Mapping[str, Any], Path], ModelConfig] | None = None
    """returns the architecture in the fields of its configuration, which a path is for messages of; if None, the keys
    are BERT's but for `keys`. Raises InputError, naming the key, for what is unsupported, missing or invalid"""
    config_fields: Callable[[ModelConfig, str], dict[str, Any]] | None = None
    """returns the entries of its configuration; the second argument is its name of the activation"""
    ignored: tuple[str, ...] = ()
    """patterns of the names of tensors that no model needs, besides those of BERT"""
    word_pieces: bool = True
    """whether its models can have a `vocab.txt`"""
    tokenizers: Mapping[TokenizerType, TokenizerFiles] = field(default_factory=dict)
    """further kinds of tokenizers that its models can have"""
    unused_positions: int = 0
    """first rows of the table of positions, which no model reads"""
    one_head: bool = False
    """whether each of its models has at most one head, that of masked words included; their dense layers and norms have
    one name"""
    tasks: tuple[str, ...] = tuple(KINDS)
    """names of the heads of tasks that its classes have"""
    replaced_tokens: bool = False
    """whether it has a class with the head of replaced tokens"""
    pipeline: str = ""
    """what transformers calls the task of its models, if they have no heads"""
    adapters: bool = True
    """whether queries, keys and values are separate, as adapters of peft need them"""
    remote: bool = False
    """whether transformers has no such model, and its code is on the Hub"""

    @property
    def kinds(self) -> tuple[TokenizerType, ...]:
        """The kinds of tokenizers that its models can have."""
        first: tuple[TokenizerType, ...] = ("word pieces",) if self.word_pieces else ()
        return (*first, *self.tokenizers)

    def key(self, setting: str) -> str:
        """Return the key that this family has for one of our settings."""
        return self.keys.get(setting, THEIR_EPSILON if setting == EPSILON else setting)

    def name(self, ours: str, berts: str) -> str:
        """Return this family's name of a part. ours, berts: our name and BERT's name of the part."""
        number, part = re.fullmatch(r"(layer_\d+/)?(.+)", ours).groups()  # type: ignore[union-attr]
        if theirs := self.names.get(part):
            return f"{self.prefix}.{self.layer}.{number[6:-1]}.{theirs}" if number else theirs
        return re.sub(r"^bert\.(encoder\.layer(?=\.))?", lambda m: f"{self.prefix}.{self.layer if m[1] else ''}", berts)

    def class_of(self, kind: str) -> str:
        """Return the family's class that corresponds to a class of BERT."""
        return self.class_names.get(kind) or self.classes + kind.removeprefix("Bert")

    def differences(self, config: ModelConfig) -> list[tuple[str, Any]]:
        """Return the settings that keep a model out of this family, with the values that the family needs."""
        needed = dict(self.fixed)
        if not config.type_vocab_size:
            needed.setdefault("type_vocab_size", 1)
        return [(key, value) for key, value in needed.items() if getattr(config, key) != value]


VARIED = {  # settings that differ between families like BERT, or between models of one; some need `positions` rotary
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "embedding_size"),
    *("max_position_embeddings", "type_vocab_size", "hidden_act", "pooler_act", "layer_norm_epsilon", "norm_placement"),
    *("causal", "rotary_base", "local_rotary_base", "global_every"),
}
PLAIN: dict[str, Any] = {  # all others, with their defaults: a new setting is refused until a family has it
    each.name: each.default for each in dataclasses.fields(ModelConfig) if each.name not in VARIED | RUN_SETTINGS
}
BERTS = {"pooler_act": "tanh", "embedding_size": 0} | PLAIN
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
TOKENIZERS: Mapping[TokenizerType, TokenizerFiles] = cast(
    Any,
    Rows(
        {
            "byte pairs": "extensions.families.roberta:FILES",
            "bracketed byte pairs": "extensions.families.modernbert:FILES",
            "unigram": "extensions.families.xlm_roberta:FILES",
        }
    ),
)
"""who reads and writes the tokenizers of encoders, but for word pieces and for kinds that no other format has"""
BERT = Family(
    model_type="bert",
    title="BERT",
    classes="Bert",
    tied=TIED,
    fixed={"norm_placement": "post"} | BERTS,
    tokenizers=cast(Any, Rows({"unigram": "extensions.families.xlm_roberta:FILES"})),
)
REMEDY = "python -m bert.export onnx writes it"
CAUSAL = "gpt2"
"""the only family of causal models, and of decoders"""
FAMILIES: Mapping[str, Family] = Rows(
    {
        "bert": "bert.convert.families:BERT",
        "megatron-bert": "extensions.families.megatron_bert:FAMILY",
        "roberta": "extensions.families.roberta:FAMILY",
        "xlm-roberta": "extensions.families.xlm_roberta:XLM_ROBERTA",
        "camembert": "extensions.families.xlm_roberta:CAMEMBERT",
        "distilbert": "extensions.families.distilbert:FAMILY",
        "electra": "extensions.families.electra:FAMILY",
        "modernbert": "extensions.families.modernbert:FAMILY",
        "neobert": "extensions.families.neobert:FAMILY",
        CAUSAL: "extensions.gpt.family:FAMILY",
    }
)
ENCODERS = tuple(name for name in FAMILIES if name != CAUSAL)


def of(config: ModelConfig, tokens: TokenizerType, path: Path) -> Family:
    """Return the family that has a model. Raise InputError, naming the file `path` and the cause, if none has it."""
    if config.hidden_act not in ACTIVATIONS.values():
        raise InputError(f"{path}: hidden_act {config.hidden_act} has no name in the other formats")
    known = [FAMILIES[name] for name in ENCODERS]
    if not (rows := [row for row in known if tokens in row.kinds]):
        raise InputError(f"{path}: none of the other formats has its tokenizer, {tokens}; {REMEDY}")
    nearest = min(rows, key=lambda row: (len(row.differences(config)), -len(row.fixed)))  # if several, the narrowest
    if not (wrong := nearest.differences(config)):
        return nearest
    needed = ", ".join(f"{key} {value!r}, not {getattr(config, key)!r}" for key, value in wrong)
    reason = f"of the other formats {nearest.title} is nearest, which has {needed}"
    if other := next((row for row in known if not row.differences(config)), None):
        kinds = " or ".join(other.kinds)
        reason = (
            f"its tokenizer is one of {tokens}; {other.title}, which has its settings, has {kinds}, and "
            f"{nearest.title}, which has {tokens}, has {needed}"
        )
    raise InputError(f"{path}: {reason}; {REMEDY}")
