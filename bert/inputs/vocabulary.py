"""`vocab.txt`: the tokens that a model knows, checked. Needs no TensorFlow."""

from collections.abc import Sequence
from pathlib import Path

from bert.errors import InputError
from bert.storage import files

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def load_vocab(path: Path) -> list[str]:
    """Reads `vocab.txt`, one token a line; its line number, from 0, is the token's id.

    Raises InputError as `check` does.
    """
    with files.open_text(path) as stream:
        tokens = stream.read().removesuffix("\n").split("\n")  # not splitlines: a token may be U+2028
    check(tokens, path)
    return tokens


def check(tokens: Sequence[str], path: Path) -> None:
    """Raises InputError, with the line, for an empty or repeated token, or one with white space; and for a missing
    special token.
    """
    seen: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if not token or token.split() != [token]:
            raise InputError(f"{path}: line {number}: {token!r} is not a token; one token a line, without spaces")
        if token in seen:
            raise InputError(f"{path}: line {number}: {token!r} stands at line {seen[token]} already; remove one")
        seen[token] = number
    if missing := [token for token in SPECIAL if token not in seen]:
        raise InputError(f"{path}: not a BERT vocabulary, {' '.join(missing)} missing; give a vocab.txt or VOCAB=train")


def is_lower_case(tokens: Sequence[str]) -> bool:
    """Whether texts are to be lower-cased for it: a vocabulary without capitals is of lower-cased text."""
    return all(token == token.lower() for token in tokens if token not in SPECIAL)
