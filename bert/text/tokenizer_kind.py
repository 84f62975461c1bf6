"""The kinds of tokenizers of encoders, told by the file: a `vocab.txt`, or one of three kinds of `tokenizer.json`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

from bert.core import files
from bert.core.errors import InputError
from bert.core.rows import Rows

TokenizerType = Literal["word pieces", "byte pairs", "bracketed byte pairs", "unigram"]

# Functions that say whether the fields of a tokenizer.json are of a kind; a file of no kind is read as byte pairs.
RECOGNISED: Rows[Callable[[dict[str, Any]], bool]] = Rows(
    {
        "unigram": "extensions.tokenizers.unigram:is_kind",
        "bracketed byte pairs": "extensions.tokenizers.bracketed_bpe:is_kind",
    }
)
# Functions whose results are equal for two files if their tokenizers are equal.
CONTENTS: Rows[Callable[[Path], Any]] = Rows(
    {
        "word pieces": "bert.text.vocabulary:load_vocab",
        "unigram": "extensions.tokenizers.unigram:text_of",
        "bracketed byte pairs": "extensions.tokenizers.bracketed_bpe:text_of",
        "byte pairs": "extensions.tokenizers.byte_bpe:read_roberta",
        "GPT-2's byte pairs": "extensions.tokenizers.byte_bpe:read_gpt2",
    }
)


def of(path: Path) -> TokenizerType:
    """Return the kind of a tokenizer file; "byte pairs" for a `tokenizer.json` that cannot be read."""
    if path.suffix != ".json":
        return "word pieces"
    try:
        fields = files.read_object(path)
    except (InputError, OSError):
        return "byte pairs"
    return cast(TokenizerType, next((kind for kind, is_kind in RECOGNISED.items() if is_kind(fields)), "byte pairs"))


def content(path: Path, causal: bool = False) -> Any:
    """Return a value that is equal for two files if their tokenizers are equal. Raise InputError for a damaged file.

    causal: whether it is the tokenizer of a causal model, GPT-2's.
    """
    return CONTENTS["GPT-2's byte pairs" if causal else of(path)](path)
