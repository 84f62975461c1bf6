"""Find the vocabulary of a model; read and check `vocab.txt`, its tokens. Needs no TensorFlow."""

import re
from collections.abc import Sequence
from pathlib import Path

from bert.errors import InputError
from bert.inputs import byte_bpe
from bert.storage import files

MAX_CHARACTERS = 64 << 20  # of a whole vocab.txt; that of 104 languages has one million
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

NAME = "vocab.txt"
SPACE = re.compile(r"[ \t\r\f\v]")  # other white space can be a token: Google's Chinese vocabulary has U+2028
MARKER = re.compile(r"\[.*\]|<.*>")  # no word of a text: [unused1], [ENT], <S>


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
    tokens = text.removesuffix("\n").split("\n")  # not splitlines, which would also divide at U+2028
    check_vocab(tokens, path)
    return tokens


def check_vocab(tokens: Sequence[str], path: Path) -> None:
    """Raise InputError for an empty or repeated token, a token with a space, or a missing special token."""
    seen: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if not token or SPACE.search(token) or files.SURROGATE.search(token):
            raise InputError(f"{path}: line {number}: {token!r} is not a token; give one per line, without spaces")
        if token in seen:
            raise InputError(f"{path}: line {number}: {token!r} is also at line {seen[token]}; remove one")
        seen[token] = number
    if missing := [token for token in SPECIAL if token not in seen]:
        raise InputError(f"{path}: not a BERT vocabulary, {' '.join(missing)} missing; give a vocab.txt or VOCAB=train")


def is_lower_case(tokens: Sequence[str]) -> bool:
    """Return whether the vocabulary is for lower-cased text: no word has a capital letter."""
    return all(token == token.lower() for token in tokens if not MARKER.fullmatch(token))
