"""The content of a `tokenizer.json`, as Hugging Face's `tokenizers` reads it, and what holds for all kinds."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import Tokenizer

from bert.core import files
from bert.core.errors import InputError
from bert.text.vocabulary import TOKENIZER

MAX_CHARACTERS = 256 << 20  # of a tokenizer.json; one with 50,257 tokens has two million
T = TypeVar("T")


def read_fields(path: Path, check: Callable[[dict[str, Any]], T], remedy: str) -> tuple[dict[str, Any], T]:
    """Return the content of a file, without padding and truncation, and what `check` returns of it.

    The content has the form of today's version of the library. Raise InputError, with the remedy, if that cannot read
    the file, or if `check` raises ValueError, but for an InputError, which says it all.
    """
    content = files.read_text(path, MAX_CHARACTERS, remedy)
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library raises no other class
        raise InputError(f"{path}: not a {TOKENIZER} that tokenizers reads ({error}); {remedy}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    fields: dict[str, Any] = json.loads(tokenizer.to_str())
    try:
        return fields, check(fields)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: {error}; {remedy}") from error


def text_of_fields(fields: Mapping[str, Any]) -> str:
    """Return the content of a file."""
    return json.dumps(fields, ensure_ascii=False) + "\n"


def check_ids(ids: Mapping[str, int], needed: Iterable[str]) -> None:
    """Raise ValueError if a needed token has no id, or if the ids are not 0, 1, 2, ..."""
    if missing := [token for token in needed if token not in ids]:
        raise ValueError(f"no token {missing[0]!a} in it")
    if set(ids.values()) != set(range(len(ids))):
        raise ValueError("the ids of the tokens are not 0, 1, 2, ...")
