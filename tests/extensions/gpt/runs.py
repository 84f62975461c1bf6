"""A run directory of a small causal model with random weights and a tokenizer of bytes and one merge."""

from pathlib import Path
from typing import Any

import numpy as np

from bert.core.config import ModelConfig
from bert.model.encoder import variables
from bert.text.vocabulary import TOKENIZER
from bert.training import checkpoint
from extensions.gpt.task import CausalLM
from extensions.tokenizers import byte_bpe

SIZES: dict[str, Any] = {
    "vocab_size": 258,
    "hidden_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "intermediate_size": 28,
    "hidden_act": "gelu_tanh",
    "norm_placement": "pre",
    "max_position_embeddings": 37,
    "type_vocab_size": 0,
    "layer_norm_epsilon": 1e-5,
    "causal": True,
}


def write_run(folder: Path, **changed: Any) -> Path:
    """Every weight is random, so that no bias is zero and no gamma one."""
    folder.mkdir()
    config = ModelConfig(**SIZES | changed)
    config.save(folder / "bert_config.json")
    write_tokenizer(folder)
    random, weights = np.random.default_rng(6), variables(CausalLM(config, 0).module)
    values = {name: v + random.normal(0, 0.3, v.shape).astype(np.float32) for name, v in weights.items()}
    checkpoint.save(folder, 3, values, keep=1)
    return folder


def write_tokenizer(folder: Path) -> Path:
    """All bytes, "th", and the end token, which is the last one."""
    path, tokens = folder / TOKENIZER, [*byte_bpe.BYTES, "th", byte_bpe.END]
    path.write_text(byte_bpe.text_of({token: i for i, token in enumerate(tokens)}, [("t", "h")], path))
    return path
