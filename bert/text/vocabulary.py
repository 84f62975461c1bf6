"""Find the vocabulary of a model; read and check `vocab.txt`, its tokens, and the rules by which texts become words.

The rules stand beside the vocabulary in `tokenizer_config.json`, under the names that transformers has for them. Needs
no TensorFlow.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert.core import files, manifest
from bert.core.errors import InputError
from bert.text import characters
from bert.text.normalization import LONGEST_WORD, TokenizerConfig

MAX_CHARACTERS = 64 << 20  # of a whole vocab.txt; the vocab.txt of BERT's model of 104 languages has one million
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

NAME, RULES = "vocab.txt", "tokenizer_config.json"
TOKENIZER = "tokenizer.json"  # vocabulary and rules of any other tokenizer
LARGEST = 1 << 24  # tokens of a vocabulary
UNICODE, FOLDS, FAST = (
    "unicode_version",
    "folds_compatibility_characters",
    "characters_of_fast_tokenizer",
)  # its entries; the second is of runs that were trained on records of version 1.0
OLD_WORDS = (
    "made by version 1.0 of this program, or from its records: texts became words by rules that were removed; make the "
    "records and the run again, or use version 1.0.0"
)
LONGEST_OF_TRANSFORMERS = 100  # characters of a word, where a tokenizer_config.json of transformers does not say
SPACE = re.compile(r"[ \t\r\f\v]")  # other white space can be a token: Google's Chinese vocabulary has U+2028
MARKER = re.compile(r"\[.*\]|<.*>")  # no word of a text: [unused1], [ENT], <S>


def path_in(run: Path) -> Path:
    """Return the path of the vocabulary of a run: its `vocab.txt` or, without word pieces, its `tokenizer.json`."""
    words, pairs = run / NAME, run / TOKENIZER
    return pairs if pairs.exists() and not words.exists() else words


def name_for(vocab: Path) -> str:
    """Return the name that a vocabulary has in a run directory, whatever the user's file is called."""
    return TOKENIZER if vocab.suffix == ".json" else NAME


def load_vocab(path: Path) -> list[str]:
    """Read `vocab.txt`: one token per line, whose line number, from 0, is its id.

    Raises InputError as `check_vocab` does.
    """
    text = files.read_text(path, MAX_CHARACTERS, "give a vocab.txt")
    if text.startswith("{"):
        raise InputError(f"{path}: JSON, such as a tokenizer.json, where word pieces are needed; give a vocab.txt")
    tokens = text.removesuffix("\n").split("\n")  # not splitlines, which would also divide at U+2028
    check_vocab(tokens, path)
    return tokens


def check_vocab(tokens: Sequence[str], path: Path) -> None:
    """Raise InputError for an empty or repeated token, a token with a space, or a missing special token."""
    seen: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if not token or SPACE.search(token) or files.SURROGATE.search(token):
            raise InputError(f"{path}: line {number}: {token[:40]!r} is not a token; give one per line, without spaces")
        if token in seen:
            raise InputError(f"{path}: line {number}: {token!r} is also at line {seen[token]}; remove one")
        seen[token] = number
    if missing := [token for token in SPECIAL if token not in seen]:
        raise InputError(f"{path}: not a BERT vocabulary, {' '.join(missing)} missing; give a vocab.txt or VOCAB=train")


def is_lower_case(tokens: Sequence[str]) -> bool:
    """Return whether the vocabulary is for lower-cased text: no word has a capital letter."""
    return all(token == token.lower() for token in tokens if not MARKER.fullmatch(token))


def rules_of(vocab: Path, tokens: Sequence[str]) -> TokenizerConfig:
    """Return the rules of a `vocab.txt` with these tokens.

    The `tokenizer_config.json` beside it states them. Without this file, Google's rules apply: lower-case if the
    vocabulary has no capitals. Raise InputError if the file is damaged or names a rule that is not supported. Also
    raise it for a run or training data of version 1.0 of this program, which had other rules.
    """
    lower, path = is_lower_case(tokens), vocab.parent / RULES
    if not path.exists():
        if _is_earlier(vocab.parent):
            raise InputError(f"{vocab.parent}: {OLD_WORDS}")
        return TokenizerConfig(lower_case=lower, strip_accents=lower, longest_word=LONGEST_WORD)
    _verify(path)
    return rules_from(_object(path), path, tokens)


def rules_parameter(vocab: Path) -> dict[str, Any]:
    """Return the parameters that a vocabulary adds to a stage: the rules beside it, or nothing for the usual rules.

    With the same `vocab.txt`, other rules make other words of the same texts. The usual rules, which also apply to a
    `vocab.txt` alone, add nothing, so that folders of earlier versions stay up to date. Raise InputError as `rules_of`.
    """
    if vocab.suffix == ".json" or not (vocab.parent / RULES).exists():
        return {}
    _verify(vocab)
    tokens = load_vocab(vocab)
    lower, rules = is_lower_case(tokens), rules_of(vocab, tokens)
    return {} if rules == TokenizerConfig(lower_case=lower, strip_accents=lower) else {"rules": settings_of(rules)}


def rules_from(settings: dict[str, Any], path: Path, tokens: Sequence[str]) -> TokenizerConfig:
    """Return the rules that the content of a `tokenizer_config.json` states for a vocabulary; path: for messages.

    Raise InputError if an entry is of the wrong type, a special token is not in the vocabulary, or the rules are for
    another version of Unicode or of version 1.0 of this program.
    """
    if (version := settings.get(UNICODE, characters.VERSION)) != characters.VERSION:
        raise InputError(
            f"{path}: {UNICODE} is {version!a:.100}, but texts become words here by Unicode {characters.VERSION}; use "
            "the version of this program that wrote the file"
        )
    if settings.get(FOLDS):
        raise InputError(f"{path}: {OLD_WORDS}")
    lower = _entry(settings, "do_lower_case", is_lower_case(tokens), path)
    special = settings.get("additional_special_tokens") or []
    if not isinstance(special, list) or not all(type(token) is str for token in special):
        raise InputError(f"{path}: additional_special_tokens is {special!a:.100}; give a list of tokens")
    if missing := [token for token in special if token not in tokens]:
        raise InputError(f"{path}: the special token {missing[0]!a} is not in the vocabulary; add it there")
    return TokenizerConfig(
        lower_case=lower,
        strip_accents=_entry(settings, "strip_accents", lower, path),
        split_ideographs=_entry(settings, "tokenize_chinese_chars", True, path),
        longest_word=_entry(settings, "max_input_chars_per_word", LONGEST_OF_TRANSFORMERS, path),
        special=tuple(token for token in special if token not in SPECIAL),
        fast=_entry(settings, FAST, False, path),
    )


def settings_of(rules: TokenizerConfig) -> dict[str, Any]:
    """Return what `tokenizer_config.json` says of the rules."""
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": rules.lower_case,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.split_ideographs,
        "max_input_chars_per_word": rules.longest_word,
        "additional_special_tokens": list(rules.special),
    }
    return settings | ({FAST: True} if rules.fast else {})


def write(tokens: Sequence[str], rules: TokenizerConfig, folder: Path) -> None:
    """Write `vocab.txt`, one token per line, and its rules."""
    with files.atomic_write(folder / NAME) as stream:
        stream.writelines(f"{token}\n" for token in tokens)
    files.write_json(folder / RULES, stored(rules))


def stored(rules: TokenizerConfig) -> dict[str, Any]:
    """Return the content of `tokenizer_config.json` in a folder of this program."""
    return settings_of(rules) | {UNICODE: characters.VERSION}


def copy(vocab: Path, folder: Path) -> None:
    """Copy a vocabulary, with its rules, into a folder, under the names that it has there."""
    if vocab.suffix != ".json":
        files.write_json(folder / RULES, stored(rules_of(vocab, load_vocab(vocab))))
    with files.atomic_write(folder / name_for(vocab), "wb") as stream:
        stream.write(vocab.read_bytes())


def _verify(path: Path) -> None:
    """Raise IntegrityError if the manifest beside a file, where there is one, lists another content."""
    if sha256 := manifest.recorded_hashes(path.parent).get(path):
        manifest.verify_file(path, sha256)


def _entry(settings: dict[str, Any], name: str, default: Any, path: Path) -> Any:
    """Return an entry, or the default if it is missing or null. Raise InputError if it is of another type."""
    value = settings.get(name)
    if value is not None and type(value) is not type(default):
        raise InputError(f"{path}: {name} is {value!a:.100}; give a {type(default).__name__}")
    return default if value is None else value


def _is_earlier(folder: Path) -> bool:
    """Return whether version 1.0 of this program made the records in a folder, or trained the run that it is."""
    if manifest.is_finished(folder):
        return manifest.read(folder).stage == "tfrecords"
    try:
        settings = _object(folder / "config.json")
    except (FileNotFoundError, InputError):  # a damaged one is reported where it is needed
        return False
    return "config" in settings and "versions" in settings and "imported" not in settings


def _object(path: Path) -> dict[str, Any]:
    try:
        content = files.read_json(path)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: damaged ({error}); restore it") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: damaged (not an object); restore it")
    return content
