"""Find the vocabulary of a model; read and check `vocab.txt`, its tokens. Needs no TensorFlow."""

from collections.abc import Sequence
from pathlib import Path

from bert.errors import InputError
from bert.inputs import byte_bpe
from bert.storage import files

MAX_CHARACTERS = 64 << 20  # of a whole vocab.txt; that of 104 languages has one million
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

NAME = "vocab.txt"


def path_in(run: Path) -> Path:
    """Return the path of the vocabulary of a run: its `vocab.txt` or, of a byte-level BPE, its `tokenizer.json`."""
    words, pairs = run / NAME, run / byte_bpe.NAME
    return pairs if pairs.exists() and not words.exists() else words


def name_for(vocab: Path) -> str:
    """Return the name that a vocabulary has in a run directory, whatever the user's file is called."""
    return byte_bpe.NAME if vocab.suffix == ".json" else NAME


def load_vocab(path: Path) -> list[str]:
    """Read `vocab.txt`: one token per line, whose line number, from 0, is its id.

    Raises InputError as `check_vocab` does.
    """
    text = files.read_text(path, MAX_CHARACTERS, "give a vocab.txt")
    tokens = text.removesuffix("\n").split("\n")  # not splitlines: a token may be U+2028
    check_vocab(tokens, path)
    return tokens


def check_vocab(tokens: Sequence[str], path: Path) -> None:
    """Raise InputError for an empty or repeated token, a token with white space, or a missing special token."""
    seen: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if not token or token.split() != [token] or files.SURROGATE.search(token):
            raise InputError(f"{path}: line {number}: {token!r} is not a token; give one per line, without spaces")
        if token in seen:
            raise InputError(f"{path}: line {number}: {token!r} is also at line {seen[token]}; remove one")
        seen[token] = number
    if missing := [token for token in SPECIAL if token not in seen]:
        raise InputError(f"{path}: not a BERT vocabulary, {' '.join(missing)} missing; give a vocab.txt or VOCAB=train")


def is_lower_case(tokens: Sequence[str]) -> bool:
    """Return whether the vocabulary is for lower-cased text: it has no capital letters."""
    return all(token == token.lower() for token in tokens if token not in SPECIAL)
