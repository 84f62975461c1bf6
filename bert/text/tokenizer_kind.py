"""The kinds of tokenizers of encoders, told by the file: a `vocab.txt`, or one of the kinds of `tokenizer.json`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.core import files, rows
from bert.core.errors import InputError

TokenizerType = str  # name of a row of `KINDS`


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """A kind of tokenizer."""

    tokenizer: Callable[[Path], Any]
    """makes a `bert.text.tokenization.Tokenizer` of its file"""
    content: Callable[[Path], Any]
    """returns a value that is equal for two files if their tokenizers are; raises InputError for a damaged file"""
    is_kind: Callable[[dict[str, Any]], bool] | None = None
    """whether the fields of a `tokenizer.json` are of this kind; None: no such file is found by its fields"""


KINDS: rows.Rows[TokenizerSpec] = rows.Rows(
    {
        "word pieces": "bert.text.tokenization:WORD_PIECES",
        "byte pairs": "extensions.tokenizers.json_tokenizers:BYTE_PAIRS",  # also a file of no other kind
        "unigram": "extensions.tokenizers.json_tokenizers:UNIGRAM",
        "bracketed byte pairs": "extensions.tokenizers.json_tokenizers:BRACKETED",
    }
)
"""A new one is a row here; one that other programs read has another in `bert/convert/families.py`."""
GPT2 = "extensions.tokenizers.byte_bpe:read_gpt2"  # `TokenizerSpec.content` of causal models


def of(path: Path) -> TokenizerType:
    """Return the kind of a tokenizer file; "byte pairs" for a `tokenizer.json` that cannot be read."""
    if path.suffix != ".json":
        return "word pieces"
    try:
        fields = files.read_object(path)
    except (InputError, OSError):
        return "byte pairs"
    return next((name for name, kind in KINDS.items() if kind.is_kind and kind.is_kind(fields)), "byte pairs")


def content(path: Path, causal: bool = False) -> Any:
    """Return a value that is equal for two files if their tokenizers are equal. Raise InputError for a damaged file.

    causal: whether it is the tokenizer of a causal model, GPT-2's.
    """
    read: Callable[[Path], Any] = rows.load(GPT2) if causal else KINDS[of(path)].content
    return read(path)
