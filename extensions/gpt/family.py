"""What is particular to GPT-2 in transformers: its configuration, and the names of its tensors.

Its dense layers are of the class Conv1D, whose kernels are [inputs, outputs], as ours. Queries, keys and values are in
one kernel (stacked_tensors.py).

Source: transformers (modeling_gpt2.py, configuration_gpt2.py).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from bert.convert.families import ACTIVATIONS, CAUSAL, PLAIN, Family
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.core.rows import Rows

SIZES = {
    "vocab_size": "vocab_size",
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
}
RATES = {  # theirs and ours, and their default
    "attn_pdrop": ("attention_probs_dropout_prob", 0.1),
    "resid_pdrop": ("hidden_dropout_prob", 0.1),
    "initializer_range": ("initializer_range", 0.02),
    "layer_norm_epsilon": ("layer_norm_epsilon", 1e-5),
}
# The value that a key must have if it is present: any other value would be another function of the same weights.
SUPPORTED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "quantization_config": None,
}


def read_config(fields: Mapping[str, Any], path: Path) -> ModelConfig:
    """Return the architecture in the fields of a config.json.

    Raise InputError, naming the key, for an unsupported architecture and for a missing or invalid number. Embeddings
    get the dropout of the other layers.
    """
    for key, value in SUPPORTED.items():
        if fields.get(key, value) != value:
            raise InputError(f"{path}: {key} is {fields[key]!r}; only {value!r} is supported")
    activation = fields.get("activation_function", "gelu_new")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise InputError(f"{path}: activation_function is {activation!r}; supported: {', '.join(ACTIVATIONS)}")
    for key in SIZES:
        if type(fields.get(key)) is not int or fields[key] < 1:
            raise InputError(f"{path}: {key} is {fields.get(key)!r}, not a positive integer; use the model's own file")
    inner = fields.get("n_inner")
    if inner is not None and (type(inner) is not int or inner < 1):
        raise InputError(f"{path}: n_inner is {inner!r}, not a positive integer; use the model's own file")
    rates = {ours: fields.get(key, default) for key, (ours, default) in RATES.items()}
    for key, (ours, _) in RATES.items():
        if type(rates[ours]) not in (int, float) or not 0 <= rates[ours] < 1:
            raise InputError(f"{path}: {key} is {fields[key]!r}, not a number in [0, 1); use the model's own file")
    try:
        return ModelConfig(
            **{ours: fields[key] for key, ours in SIZES.items()},
            **rates,
            intermediate_size=inner or 4 * fields["n_embd"],
            hidden_act=ACTIVATIONS[activation],
            norm_placement="pre",
            type_vocab_size=0,
            causal=True,
        )
    except UsageError as error:  # the file is wrong, not the command line
        raise InputError(f"{path}: {error}") from error


def config_fields(config: ModelConfig, activation: str) -> dict[str, Any]:
    """Return the entries of config.json. activation: its name there."""
    fixed = {key: value for key, value in SUPPORTED.items() if value is not None}
    sizes = {key: getattr(config, ours) for key, ours in SIZES.items()} | {"n_ctx": config.max_position_embeddings}
    rates = {key: getattr(config, ours) for key, (ours, _) in RATES.items()}
    inner = {"n_inner": config.intermediate_size, "embd_pdrop": config.hidden_dropout_prob}
    return {"activation_function": activation} | fixed | sizes | inner | rates


FAMILY = Family(
    model_type=CAUSAL,
    title="GPT-2",
    classes="GPT2",
    class_names={"BertModel": "GPT2LMHeadModel"},
    prefix="transformer",
    unprefixed=("wte", "wpe", "h", "ln_f"),
    tied={"lm_head.weight": "transformer.wte.weight"},
    fixed={"norm_placement": "pre", "type_vocab_size": 0} | PLAIN,
    read_config=read_config,
    config_fields=config_fields,
    ignored=("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"),  # buffers of earlier versions
    word_pieces=False,
    tokenizers=cast(Any, Rows({"byte pairs": "extensions.gpt.tokenizer_files:FILES"})),
    tasks=(),
    pipeline="text-generation",
    adapters=False,
)
