"""What is particular to GPT-2 in transformers: its configuration, the names of its tensors, its tokenizer's files.

Its dense layers are of the class Conv1D, whose kernels are [inputs, outputs], as ours. Queries, keys and values are in
one kernel (joined.py).

Source: transformers (modeling_gpt2.py, configuration_gpt2.py, tokenization_gpt2.py).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert.convert import run
from bert.convert.families import ACTIVATIONS, CAUSAL, PLAIN, Family, TokenizerFiles
from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.text import byte_bpe

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


def read_tokenizer(folder: Path, config: ModelConfig) -> str:
    """Return the content of the `tokenizer.json` that the folder has, or that its vocab.json and merges.txt make.

    Raise InputError if it has neither, if they are not those of a byte-level BPE, or if the model has fewer rows.
    """
    tables, (path, *_) = byte_bpe.tables_of(folder)
    text = byte_bpe.text_of_tables(tables, path)
    _check_ends(folder, tables.vocabulary[byte_bpe.END])
    run.check_vocab_size(config, json.loads(text)["model"]["vocab"], folder / byte_bpe.NAME)
    return text


def _check_ends(folder: Path, end: int) -> None:
    """Raise InputError if texts of the model end with another token than `<|endoftext|>`, whose id is `end`."""
    for path in (folder / "config.json", folder / "generation_config.json"):
        ends = files.read_object(path).get("eos_token_id") if path.exists() else None
        if ends not in (None, end, [end]):
            raise InputError(
                f"{path}: eos_token_id is {ends!a}, but only {byte_bpe.END}, {end}, ends a text here; use transformers"
            )


def write_tokenizer(text: str, longest: int, folder: Path) -> dict[str, int]:
    """Write the files from which transformers reads a tokenizer; return the ids of special tokens for config.json.

    text: of `tokenizer.json`. longest: in tokens.
    """
    with files.atomic_write(folder / byte_bpe.NAME) as stream:
        stream.write(text)
    vocabulary, merges = byte_bpe.read(folder / byte_bpe.NAME)
    byte_bpe.save(vocabulary, merges, folder)
    roles = dict.fromkeys(("bos_token", "eos_token", "unk_token"), byte_bpe.END)
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "model_max_length": longest}
    files.write_json(folder / "tokenizer_config.json", settings | roles)
    files.write_json(folder / "special_tokens_map.json", roles)
    return dict.fromkeys(("bos_token_id", "eos_token_id"), vocabulary[byte_bpe.END])


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
    tokenizers={"byte pairs": TokenizerFiles(read_tokenizer, write_tokenizer)},
    tasks=(),
    pipeline="text-generation",
    adapters=False,
)
