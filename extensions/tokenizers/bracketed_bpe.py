"""ModernBERT's tokenizer: a byte-level BPE (byte_bpe.py) whose texts stand between [CLS] and [SEP].

Texts are normalised to NFC first. Some added tokens are part of texts, such as runs of spaces; the special ones are
ordinary text within a text. All of it is computed by Hugging Face's `tokenizers` from a `tokenizer.json`, so ids are
those of transformers.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bert.core.errors import InputError
from bert.text.post_processor import layout, rows
from extensions.tokenizers.byte_bpe import BYTES, ByteBPE, made
from extensions.tokenizers.json_fields import check_ids, read_fields, text_of_fields

SPECIAL = PAD, UNKNOWN, BEGIN, CLOSE, MASK = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
REMEDY = "give the tokenizer.json of ModernBERT, as transformers writes it"
SETTINGS = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")  # that change the merges


def is_kind(fields: dict[str, Any]) -> bool:
    """Return whether a `tokenizer.json` of this content is of a BPE with [CLS]."""
    model, added = fields.get("model"), fields.get("added_tokens")
    contents = [token.get("content") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    return isinstance(model, dict) and model.get("type") == "BPE" and BEGIN in contents


def text_of(path: Path) -> str:
    """Return the content of a `tokenizer.json` without padding and truncation. Raises as `BracketedBPE` does."""
    return text_of_fields(_read(path)[0])


class BracketedBPE(ByteBPE):
    """The tokenizer in a `tokenizer.json`.

    Raise InputError if the file is of another kind, or if it would make other texts or rows than ModernBERT's
    tokenizer.
    """

    def __init__(self, path: Path) -> None:
        fields, self.vocabulary = _read(path)
        self.path, self.size, self.special = path, len(self.vocabulary), SPECIAL
        self.prefix = fields["pre_tokenizer"]["add_prefix_space"]
        self.added = tuple(token["content"] for token in fields["added_tokens"])
        self.made = made(self.vocabulary, fields["model"]["merges"])
        self.mask_strips = any(token["lstrip"] for token in fields["added_tokens"] if token["content"] == MASK)
        self._tokenizer = Tokenizer.from_str(json.dumps(fields | {"post_processor": None}))
        self._tokenizer.encode_special_tokens = True  # as ordinary text


def _read(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the content of a file, in the form of today's version of the library, and the ids of all tokens."""
    return read_fields(path, lambda fields: _check(fields, path), REMEDY)


def _check(fields: dict[str, Any], path: Path) -> dict[str, int]:
    """Return the ids of all tokens. Raise ValueError for a tokenizer that cuts texts, or makes rows, in another way."""
    if fields["model"].get("byte_fallback"):
        raise InputError(
            f"{path}: a BPE of characters with byte_fallback, the tokenizer of Gemma and mmBERT, which is not "
            "supported; use that model with transformers, or XLM-RoBERTa here"
        )
    model, cut, normalizer = fields["model"], fields["pre_tokenizer"] or {}, fields["normalizer"]
    if model["type"] != "BPE" or any(model.get(key) for key in SETTINGS):
        raise ValueError("the model is not a plain BPE")
    if cut.get("type") != "ByteLevel" or not cut.get("use_regex", True):
        raise ValueError("the pre_tokenizer is not that of GPT-2")
    if normalizer is not None and normalizer["type"] != "NFC":
        raise ValueError(f"the normalizer is {normalizer['type']}; only NFC is supported")
    ids: dict[str, int] = dict(model["vocab"])
    for added in fields["added_tokens"]:
        if ids.setdefault(added["content"], added["id"]) != added["id"]:
            raise ValueError(f"the added token {added['content'][:40]!a} has another id in the vocabulary")
    check_ids(ids, (*SPECIAL, *BYTES))
    if layout(fields["post_processor"]) != rows(ids[BEGIN], ids[CLOSE], separators=1):
        raise ValueError("the post_processor makes other rows than [CLS] A [SEP] and [CLS] A [SEP] B [SEP]")
    return ids
