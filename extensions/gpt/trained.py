"""A trained causal model, read from its run directory."""

from pathlib import Path
from typing import NamedTuple

from bert.core.errors import InputError, UsageError
from bert.model.encoder import Encoder
from bert.runs import Run
from bert.text import causal_tokenizer
from bert.text.vocabulary import TOKENIZER


class Trained(NamedTuple):
    """The newest undamaged checkpoint of a run, ready to compute."""

    encoder: Encoder
    tokenizer: causal_tokenizer.CausalTokenizer
    checkpoint: Path


def load(run: Path) -> Trained:
    """Load a run directory of a causal model.

    Raise UsageError if the model is not causal, InputError or IntegrityError if a file is missing or damaged.
    """
    opened = Run.open(run)
    if not opened.config.causal:
        raise UsageError(f"{run}: not a causal model; give a run of a recipe such as gpt2_117m")
    tokenizer, size = causal_tokenizer.read(run / TOKENIZER), opened.config.vocab_size
    if tokenizer.size > size:  # the last rows may have no token
        raise InputError(f"{tokenizer.path}: {tokenizer.size} tokens, but vocab_size is {size}; use its tokenizer")
    encoder = Encoder(opened.config, seed=0)
    opened.load(encoder)
    return Trained(encoder, tokenizer, opened.checkpoint)
