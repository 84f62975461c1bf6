"""The kinds of tokenizers of encoders, told by the file: a `vocab.txt`, or one of three kinds of `tokenizer.json`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bert.core import files
from bert.core.errors import InputError
from bert.text import bracketed_bpe, byte_bpe, unigram
from bert.text.vocabulary import load_vocab

Kind = Literal["word pieces", "byte pairs", "bracketed byte pairs", "unigram"]


def of(path: Path) -> Kind:
    """Return the kind of a file; that of a `tokenizer.json` which cannot be read is "byte pairs"."""
    if path.suffix != ".json":
        return "word pieces"
    try:
        fields = files.read_object(path)
    except (InputError, OSError):
        return "byte pairs"
    if unigram.is_kind(fields):
        return "unigram"
    return "bracketed byte pairs" if bracketed_bpe.is_kind(fields) else "byte pairs"


def content(path: Path) -> Any:
    """Return what is equal for two files if their tokenizers are. Raise InputError for a damaged file."""
    read: dict[Kind, Callable[[Path], Any]] = {
        "word pieces": load_vocab,
        "unigram": unigram.text_of,
        "bracketed byte pairs": bracketed_bpe.text_of,
        "byte pairs": lambda path: byte_bpe.read_tables(path, byte_bpe.ROBERTA),
    }
    return read[of(path)](path)
