"""How a text's embedding is made of its hidden states, as `config.json` of a run says.

It is a run of `tasks.train embed`, or an import from sentence-transformers.

    "embedding": {"pool": "mean", "normalize": true, "length": 256}

An import can also have `dimensions`, `similarity`, `prompts` and `default_prompt`; they are there if they are not the
usual ones.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bert.core import checked_json
from bert.core.errors import InputError, UsageError

Pool = Literal["auto", "mean", "cls", "max", "none"]  # as it is asked for
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]  # the last two: the distance, with a minus
POOLS = ("mean", "cls", "max")
QUERY, DOCUMENT = "query", "document"  # prompts of every model; empty unless it has a text
KEY = "embedding"
SHORTEST = 1e-12  # by which an embedding of length 0 is divided, as in PyTorch's normalize


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """How hidden states of the last layer become an embedding: pooling and what follows."""

    pool: str
    """one of `POOLS`, over all tokens, including [CLS] and [SEP]"""
    normalize: bool = False
    """whether its Euclidean length is 1"""
    length: int | None = None
    """tokens to which longer texts are cut; None: as many as the model reads"""
    dimensions: int | None = None
    """numbers of an embedding that are kept, the first ones, after its normalisation; None: all"""
    similarity: Similarity = "cosine"
    """by which two embeddings are compared"""
    prompts: dict[str, str] = field(default_factory=dict)
    """what can stand before a text, by name"""
    default_prompt: str | None = None
    """name of the prompt before a text of which nothing is said"""

    def entries(self) -> dict[str, Any]:
        """Return the entries for `config.json`; newer fields only if they differ from their defaults."""
        usual = Embedding(pool=self.pool)
        return {
            KEY: {name: value for name, value in asdict(self).items() if name in OLD or value != getattr(usual, name)}
        }

    def width(self, states: int) -> int:
        """Return how many numbers an embedding has. states: numbers of a hidden state."""
        return min(self.dimensions or states, states)

    def prompt(self, name: str | None = None) -> str:
        """Return the text to put before a text. name: of the prompt; None: the default prompt, or "" if there is none.

        Raise UsageError if the model has no such prompt.
        """
        if name is None:
            return self.prompts[self.default_prompt] if self.default_prompt else ""
        if name not in {QUERY, DOCUMENT, *self.prompts}:
            has = ", ".join(sorted({QUERY, DOCUMENT, *self.prompts}))
            raise UsageError(f"prompt {name[:60]!a}: the model has none of this name; it has {has}")
        return self.prompts.get(name, "")


OLD = ("pool", "normalize", "length")  # fields that are always written
PLAIN = Embedding(pool="mean")
"""of a model that says nothing"""


def of(settings: Mapping[str, Any], path: Path) -> Embedding | None:
    """Return the embedding that a run's `config.json` describes; None if none. Raise InputError if it is damaged.

    settings: the content of that file.
    """
    if KEY not in settings:
        return None
    try:
        embedding: Embedding = checked_json.take(Embedding, settings[KEY])
    except ValueError as error:
        raise InputError(f"{path}: {KEY}: {error}; give a run of this program") from error
    wrong_sizes = (embedding.length or 3) < 3 or (embedding.dimensions or 1) < 1
    if embedding.pool not in POOLS or wrong_sizes or embedding.default_prompt not in {None, *embedding.prompts}:
        raise InputError(f"{path}: {KEY} is {settings[KEY]!r}; give a run of this program")
    return embedding


def unit_length(x: np.ndarray) -> np.ndarray:
    """Return vectors [..., D] divided by their Euclidean length."""
    scaled: np.ndarray = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), SHORTEST)
    return scaled
