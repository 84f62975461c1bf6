"""How a text's embedding is made of its hidden states, as `config.json` of a run says.

It is a run of `tasks.train embed`, or an import from sentence-transformers.

    "embedding": {"pool": "mean", "normalize": true, "length": 256}
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bert.core import checked_json
from bert.core.errors import InputError

Pool = Literal["auto", "mean", "cls", "max", "none"]  # as it is asked for
POOLS = ("mean", "cls", "max")
KEY = "embedding"
SHORTEST = 1e-12  # by which an embedding of length 0 is divided, as in PyTorch's normalize


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """The pooling of the last hidden states, and what follows."""

    pool: str
    """one of `POOLS`, over all tokens, including [CLS] and [SEP]"""
    normalize: bool = False
    """whether its Euclidean length is 1"""
    length: int | None = None
    """tokens to which longer texts are cut; None: as many as the model reads"""

    def entries(self) -> dict[str, Any]:
        """Return the entries of `config.json`."""
        return {KEY: asdict(self)}


def of(settings: Mapping[str, Any], path: Path) -> Embedding | None:
    """Return what the content of a run's `config.json` says; None if nothing. Raise InputError if it is damaged."""
    if KEY not in settings:
        return None
    try:
        embedding: Embedding = checked_json.take(Embedding, settings[KEY])
    except ValueError as error:
        raise InputError(f"{path}: {KEY}: {error}; give a run of this program") from error
    if embedding.pool not in POOLS or (embedding.length is not None and embedding.length < 3):
        raise InputError(f"{path}: {KEY} is {settings[KEY]!r}; give a run of this program")
    return embedding
