"""The families of models of transformers that have BERT's encoder: one table.

A new family is a row of `FAMILIES`: how its tensors are called, which keys its configuration has, and which values all
of its models have. A family whose tokenizer's files differ has a file beside this one (roberta.py). GPT-2, whose
configuration has nothing in common with BERT's, is in gpt2.py.

Sources: transformers (modeling_bert.py, modeling_megatron_bert.py, modeling_roberta.py, modeling_distilbert.py,
modeling_electra.py, modeling_modernbert.py, and the configurations beside them); NeoBERT's model.py on the Hub of
Hugging Face.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bert.convert.roberta import PAD_ID, UNUSED_POSITIONS
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.heads import CLASSIFIER, KINDS, MULTILABEL
from bert.text.tokenizer_kind import Kind

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
    form: str = "huggingface"
    """form of the names of its tensors, as `bert.convert.names.Form`"""
    prefix: str = "bert"
    """first part of the names of the encoder's tensors in a model with a head"""
    unprefixed: tuple[str, ...] = ("embeddings", "encoder", "pooler")
    """first parts of these names in a model without a head"""
    layer: str = "encoder.layer"
    """what precedes the number of a layer"""
    names: Mapping[str, str] = field(default_factory=dict)
    """our name of a part (of layers without their number): theirs, where it is not BERT's"""
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
    tokenizers: tuple[Kind, ...] = ("word pieces",)
    """kinds of tokenizers that its models have"""
    unused_positions: int = 0
    """first rows of the table of positions, which no model reads"""
    one_head: bool = False
    """whether each of its models has at most one head, that of masked words included; their dense layers and norms have
    one name"""
    tasks: tuple[str, ...] = tuple(KINDS)
    """names of the heads of tasks that its classes have"""
    remote: bool = False
    """whether transformers has no such model, and its code is on the Hub"""

    def key(self, setting: str) -> str:
        """Return their key of one of our settings."""
        return self.keys.get(setting, THEIR_EPSILON if setting == EPSILON else setting)

    def name(self, ours: str, berts: str) -> str:
        """Return the name of a part, of which we and BERT have these names."""
        number, part = re.fullmatch(r"(layer_\d+/)?(.+)", ours).groups()  # type: ignore[union-attr]
        if theirs := self.names.get(part):
            return f"{self.prefix}.{self.layer}.{number[6:-1]}.{theirs}" if number else theirs
        return re.sub(r"^bert\.(encoder\.layer(?=\.))?", lambda m: f"{self.prefix}.{self.layer if m[1] else ''}", berts)

    def class_of(self, kind: str) -> str:
        """Return its class that corresponds to one of BERT's."""
        return self.class_names.get(kind) or self.classes + kind.removeprefix("Bert")

    def differences(self, config: ModelConfig) -> list[tuple[str, Any]]:
        """Return the settings in which a model is not of this family, with the values that they would need."""
        needed = dict(self.fixed)
        if not config.type_vocab_size:
            needed.setdefault("type_vocab_size", 1)
        return [(key, value) for key, value in needed.items() if getattr(config, key) != value]


PLAIN = {"embedding_norm": False, "biases": True, "gated": False, "positions": "learned", "local_window": 0}
PLAIN |= {"head_transform": False, "pooling": "cls", "norm": "layer", "masked_lm_head": "tied"}
BERT = {"pooler_act": "tanh", "embedding_size": 0} | PLAIN
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
ROBERTA = Family(
    model_type="roberta",
    title="RoBERTa",
    classes="Roberta",
    form="roberta",
    prefix="roberta",
    names={
        "masked_lm/transform": "lm_head.dense",
        "masked_lm/layer_norm": "lm_head.layer_norm",
        "masked_lm/bias": "lm_head.bias",
        "classifier": "classifier.out_proj",
        "multilabel": "classifier.out_proj",
    },
    poolers={"classifier": "classifier.dense", "multilabel": "classifier.dense"},
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    supported=ABSOLUTE | {"hidden_act": "gelu", "pad_token_id": PAD_ID, "type_vocab_size": 1},
    fixed={"norm_placement": "post", "hidden_act": "gelu", "type_vocab_size": 1} | BERT,
    tokenizers=("byte pairs",),
    unused_positions=UNUSED_POSITIONS,
)
_ROWS = (
    Family(
        model_type="bert",
        title="BERT",
        classes="Bert",
        tied=TIED,
        fixed={"norm_placement": "post"} | BERT,
        tokenizers=("word pieces", "unigram"),
    ),
    Family(
        model_type="megatron-bert",
        title="MegatronBert",
        classes="MegatronBert",
        tied=TIED,
        fixed={"norm_placement": "pre"} | BERT,
    ),
    ROBERTA,
    replace(ROBERTA, model_type="xlm-roberta", title="XLM-RoBERTa", classes="XLMRoberta", tokenizers=("unigram",)),
    replace(ROBERTA, model_type="camembert", title="CamemBERT", classes="Camembert", tokenizers=("unigram",)),
    Family(
        model_type="distilbert",
        title="DistilBERT",
        classes="DistilBert",
        form="distilbert",
        prefix="distilbert",
        unprefixed=("embeddings", "transformer"),
        layer="transformer.layer",
        names={
            "attention/query": "attention.q_lin",
            "attention/key": "attention.k_lin",
            "attention/value": "attention.v_lin",
            "attention/output": "attention.out_lin",
            "attention/layer_norm": "sa_layer_norm",
            "mlp/inner": "ffn.lin1",
            "mlp/outer": "ffn.lin2",
            "mlp/layer_norm": "output_layer_norm",
            "pooler": "pre_classifier",
            "masked_lm/transform": "vocab_transform",
            "masked_lm/layer_norm": "vocab_layer_norm",
            "masked_lm/bias": "vocab_projector.bias",
        },
        tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        keys={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
        },
        supported=ENCODER,
        fixed={
            "norm_placement": "post",
            "type_vocab_size": 0,
            "pooler_act": "relu",
            "embedding_size": 0,
            EPSILON: 1e-12,
        }
        | PLAIN,
    ),
    Family(
        model_type="electra",
        title="ELECTRA",
        classes="Electra",
        form="electra",
        prefix="electra",
        unprefixed=("embeddings", "embeddings_project", "encoder"),
        names={
            "masked_lm/transform": "generator_predictions.dense",
            "masked_lm/layer_norm": "generator_predictions.LayerNorm",
            "masked_lm/bias": "generator_lm_head.bias",
            "classifier": "classifier.out_proj",
            "multilabel": "classifier.out_proj",
        },
        poolers={
            "classifier": "classifier.dense",
            "multilabel": "classifier.dense",
            "choice": "sequence_summary.summary",
        },
        tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
        supported=ABSOLUTE
        | {"hidden_act": "gelu", "summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
        fixed={"norm_placement": "post", "hidden_act": "gelu", "pooler_act": "gelu"} | PLAIN,
    ),
    Family(
        model_type="modernbert",
        title="ModernBERT",
        classes="ModernBert",
        form="modernbert",
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
        fixed={
            "norm_placement": "pre",
            "type_vocab_size": 0,
            "embedding_size": 0,
            "embedding_norm": True,
            "biases": False,
            "gated": True,
            "positions": "rotary",
            "norm": "layer",
            "masked_lm_head": "tied",
        },
        tokenizers=("bracketed byte pairs",),
        one_head=True,
    ),
    Family(
        model_type="neobert",
        title="NeoBERT",
        classes="NeoBERT",
        class_names={"BertModel": "NeoBERT", "BertForMaskedLM": "NeoBERTLMHead"},
        form="neobert",
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
        fixed={
            "norm_placement": "pre",
            "type_vocab_size": 0,
            "hidden_act": "silu",
            "rotary_base": 10_000.0,
        }
        | BERT
        | {
            "biases": False,
            "gated": True,
            "positions": "rotary",
            "norm": "rms",
            "masked_lm_head": "linear",
        },
        tasks=(CLASSIFIER.name, MULTILABEL.name),
        remote=True,
    ),
)
FAMILIES: dict[str, Family] = {row.model_type: row for row in _ROWS}
RENAMED: dict[str, Family] = {row.form: row for row in reversed(_ROWS) if row.form != "huggingface"}


def of(config: ModelConfig, tokens: Kind, path: Path) -> Family:
    """Return the family that has a model. Raise InputError, naming the file `path` and the cause, if none has it."""
    if config.hidden_act not in ACTIVATIONS.values():
        raise InputError(f"{path}: hidden_act {config.hidden_act} has no name in the other formats")
    rows = [row for row in _ROWS if tokens in row.tokenizers]
    nearest = min(rows, key=lambda row: (len(row.differences(config)), -len(row.fixed)))  # of several the narrowest
    if not (wrong := nearest.differences(config)):
        return nearest
    needed = ", ".join(f"{key} {value!r}, not {getattr(config, key)!r}" for key, value in wrong)
    reason = f"of the other formats {nearest.title} is nearest, which has {needed}"
    if other := next((row for row in _ROWS if not row.differences(config)), None):
        kinds = " or ".join(other.tokenizers)
        reason = (
            f"its tokenizer is one of {tokens}; {other.title}, which has its settings, has {kinds}, and "
            f"{nearest.title}, which has {tokens}, has {needed}"
        )
    raise InputError(f"{path}: {reason}; python -m bert.export onnx writes it")
