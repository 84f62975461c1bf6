"""The files of GPT-2's tokenizer in transformers.

Source: transformers (tokenization_gpt2.py).
"""

import json
from pathlib import Path

from bert.convert import run
from bert.convert.families import TokenizerFiles
from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.text.vocabulary import TOKENIZER
from extensions.tokenizers import byte_bpe


def read_tokenizer(folder: Path, config: ModelConfig) -> str:
    """Return the content of the folder's `tokenizer.json`, or make it from its vocab.json and merges.txt.

    Raise InputError if it has neither, if the files are not a byte-level BPE, or if the model has fewer rows than there
    are tokens.
    """
    tables, (path, *_) = byte_bpe.tables_of(folder)
    text = byte_bpe.text_of_tables(tables, path)
    _check_ends(folder, tables.vocabulary[byte_bpe.END])
    run.check_vocab_size(config, json.loads(text)["model"]["vocab"], folder / TOKENIZER)
    return text


def _check_ends(folder: Path, end: int) -> None:
    """Raise InputError if texts of the model end with another token than `<|endoftext|>`, whose id is `end`."""
    for path in (folder / "config.json", folder / "generation_config.json"):
        ends = files.read_object(path).get("eos_token_id") if path.exists() else None
        if ends not in (None, end, [end]):
            raise InputError(
                f"{path}: eos_token_id is {ends!a}, but only {byte_bpe.END}, {end}, ends a text here; use transformers"
            )


def write_tokenizer(text: str, longest: int, folder: Path) -> dict[str, int]:
    """Write the files from which transformers reads a tokenizer; return the ids of special tokens for config.json.

    text: of `tokenizer.json`. longest: in tokens.
    """
    with files.atomic_write(folder / TOKENIZER) as stream:
        stream.write(text)
    vocabulary, merges = byte_bpe.read(folder / TOKENIZER)
    byte_bpe.save(vocabulary, merges, folder)
    roles = dict.fromkeys(("bos_token", "eos_token", "unk_token"), byte_bpe.END)
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "model_max_length": longest}
    files.write_json(folder / "tokenizer_config.json", settings | roles)
    files.write_json(folder / "special_tokens_map.json", roles)
    return dict.fromkeys(("bos_token_id", "eos_token_id"), vocabulary[byte_bpe.END])


def of_run(path: Path, config: ModelConfig) -> str:
    """Return the content of the tokenizer.json of a run."""
    tables = byte_bpe.read_gpt2(path)
    run.check_vocab_size(config, tables.vocabulary, path)
    return byte_bpe.text_of_tables(tables, path)


FILES = TokenizerFiles(read_tokenizer, write_tokenizer, of_run)
