"""A trained causal model, read from its run directory."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

from bert.config import ModelConfig
from bert.errors import InputError, UsageError
from bert.inputs import byte_bpe
from bert.inputs.byte_bpe import ByteBPE
from bert.model.encoder import Encoder, variables
from bert.training import checkpoint


class Trained(NamedTuple):
    """The newest undamaged checkpoint of a run, ready to compute."""

    encoder: Encoder
    tokenizer: ByteBPE
    checkpoint: Path


def load(run: Path) -> Trained:
    """Load a run directory of a causal model.

    Raise UsageError if the model is not causal, InputError or IntegrityError if a file is missing or damaged.
    """
    checkpoint.check_description(run)
    config = ModelConfig.load(run / "bert_config.json")
    if not config.causal:
        raise UsageError(f"{run}: not a causal model; give a run of a recipe such as gpt2_117m")
    tokenizer = ByteBPE(run / byte_bpe.NAME)
    if tokenizer.size != config.vocab_size:
        raise InputError(
            f"{tokenizer.path}: {tokenizer.size} tokens, but vocab_size is {config.vocab_size}; use its tokenizer"
        )
    # cuDNN's attention needs 16 bits, and neither has an effect on what is computed.
    encoder = Encoder(dataclasses.replace(config, fused_attention=False, recompute_activations=False), seed=0)
    return Trained(encoder, tokenizer, checkpoint.load_weights(run, variables(encoder)))
