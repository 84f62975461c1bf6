"""The tokenizer of a causal model, which is GPT-2's."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from bert.core import rows

BYTE_PAIRS = "extensions.tokenizers.byte_bpe:ByteBPE"


class CausalTokenizer(Protocol):
    """Texts to ids and back."""

    path: Path
    """of its file"""
    size: int
    """number of its tokens"""

    @property
    def end(self) -> int:
        """Id of the token that ends a text."""

    def sizes(self) -> np.ndarray:
        """Return the number of bytes of text of each token [size]; special ones have none."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids. Raise InputError for an id that is none."""


def read(path: Path) -> CausalTokenizer:
    """Return the tokenizer of a `tokenizer.json`. Raise InputError if the file is of another kind."""
    tokenizer: CausalTokenizer = rows.load(BYTE_PAIRS)(path)
    return tokenizer
