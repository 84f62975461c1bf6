"""Unigram, the tokenizer of XLM-RoBERTa, CamemBERT and multilingual models with their words (SentencePiece).

A text is normalised, cut at white space, and a word is divided into the pieces that are most probable together (Kudo
2018, "Subword Regularization"). U+2581 in a piece stands for the space before a word. All of it is computed by Hugging
Face's `tokenizers` from a `tokenizer.json`, so ids are those of transformers. But special tokens within a text,
such as `<mask>`, are ordinary text.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from bert.core import files
from bert.text import characters
from bert.text.post_processor import layout, rows
from extensions.tokenizers.json_fields import check_ids, read_fields, text_of_fields

KIND = "Unigram"
SPECIAL = BEGIN, PAD, CLOSE, UNKNOWN, MASK = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
NOT_USED = ("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED")  # pieces of CamemBERT that no text has
SPACE = "\u2581"
REMEDY = "give the tokenizer.json of XLM-RoBERTa or CamemBERT, as transformers writes it"
TOGETHER = 1 << 20  # characters that are encoded at once: each token takes some hundred bytes for a moment


def is_kind(fields: dict[str, Any]) -> bool:
    """Return whether a `tokenizer.json` with this content is a Unigram model."""
    model = fields.get("model")
    return isinstance(model, dict) and model.get("type") == KIND


def text_of(path: Path) -> str:
    """Return the content of a `tokenizer.json` without padding and truncation. Raises as `Unigram` does."""
    return text_of_fields(_read(path).fields)


class Unigram:
    """The tokenizer in a `tokenizer.json`.

    fields: the content of the file. vocabulary: ids of its tokens. mask_strips: whether `<mask>` also stands for the
    spaces before it.

    Raise InputError if the file is of another kind, or if it would make other texts or rows than XLM-RoBERTa's
    tokenizer.
    """

    def __init__(self, path: Path) -> None:
        content = _read(path)
        self.fields, self.vocabulary, self.mask_strips = content.fields, content.ids, content.mask_strips
        self._tokenizer = Tokenizer.from_str(json.dumps(_without_special(content.fields)))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text. A lone surrogate, which UTF-8 cannot hold, becomes "?"."""
        return [encoding.ids for some in _groups(texts) for encoding in self._tokenizer.encode_batch_fast(some)]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], np.ndarray]]:
        """Return the ids of each text, and the characters that each token came from [n, 2], half open.

        The space before a word is not among them. If a token has no character, it gets the next one.
        """
        return [
            (encoding.ids, _without_spaces(encoding.offsets, text))
            for some in _groups(texts)
            for text, encoding in zip(some, self._tokenizer.encode_batch(some), strict=True)
        ]


def _groups(texts: Sequence[str]) -> list[list[str]]:
    """Return the texts in order, some at a time."""
    clean = [files.SURROGATE.sub("?", text) for text in texts]
    ends = np.cumsum([len(text) for text in clean]) // TOGETHER
    numbered = itertools.groupby(range(len(clean)), key=lambda number: int(ends[number]))
    return [[clean[number] for number in numbers] for _, numbers in numbered]


def _without_spaces(offsets: list[tuple[int, int]], text: str) -> np.ndarray:
    """Return offsets without white space at both ends, and with the marks that belong to the last character."""
    spans = np.array(offsets, np.int64).reshape(-1, 2)
    after_spaces, after_marks = _ends(text, str.isspace), _ends(text, characters.combining)
    for span in spans:
        span[0] = max(span[0], min(after_spaces(span[0]), len(text) - 1))
        while span[0] < span[1] - 1 and text[span[1] - 1].isspace():
            span[1] -= 1
        span[1] = after_marks(span[1])
    spans[:, 1] = np.maximum(spans[:, 1], spans[:, 0] + 1)
    return spans


def _ends(text: str, holds: Callable[[str], Any]) -> Callable[[int], int]:
    """Return a function that gives the end of the run of characters for which `holds`, from a place on.

    It remembers the last run, since each of many tokens can begin in it.
    """
    begin = end = 0

    def after(place: int) -> int:
        nonlocal begin, end
        if not begin <= place < end:
            begin = end = int(place)
            while end < len(text) and holds(text[end]):
                end += 1
        return end

    return after


class _Content(NamedTuple):
    fields: dict[str, Any]
    """of the tokenizer.json, in the form of today's version of the library"""
    ids: dict[str, int]
    mask_strips: bool


def _read(path: Path) -> _Content:
    fields, (ids, mask_strips) = read_fields(path, _check, REMEDY)
    return _Content(fields, ids, mask_strips)


def _without_special(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a tokenizer that finds no special token in a text.

    Each special piece gets a space at its end, so that no word contains it.
    """
    special = {*SPECIAL, *NOT_USED}
    pieces = [[f"{piece} " if piece in special else piece, score] for piece, score in fields["model"]["vocab"]]
    return fields | {"added_tokens": [], "post_processor": None, "model": fields["model"] | {"vocab": pieces}}


def _check(fields: dict[str, Any]) -> tuple[dict[str, int], bool]:
    """Return the ids of all tokens, and whether the mask takes the spaces before it.

    Raise ValueError for a tokenizer that cuts texts, or makes rows of them, in another way.
    """
    model = fields["model"]
    if model["type"] != KIND:
        raise ValueError(f"the model is of the type {model['type']}")
    _check_cuts(fields["pre_tokenizer"])
    ids: dict[str, int] = {piece: number for number, (piece, _) in enumerate(model["vocab"])}
    if len(ids) < len(model["vocab"]):
        raise ValueError("a piece is there twice")
    for added in fields["added_tokens"]:
        _check_added(added)
        ids.setdefault(added["content"], added["id"])
    check_ids(ids, SPECIAL)
    if model["unk_id"] != ids[UNKNOWN]:
        raise ValueError(f"a character without a piece has the id {model['unk_id']}, not that of {UNKNOWN}")
    if layout(fields["post_processor"]) != rows(ids[BEGIN], ids[CLOSE], separators=2):
        raise ValueError("the post_processor puts other special tokens around texts than <s> A </s></s> B </s>")
    return ids, any(added["lstrip"] for added in fields["added_tokens"])


def _check_added(added: dict[str, Any]) -> None:
    """Raise ValueError for an added token that a text may have."""
    name = added["content"]
    if name not in (*SPECIAL, *NOT_USED):
        raise ValueError(f"the added token {name[:40]!a} is not supported")
    if not added["special"] or added["rstrip"] or added["single_word"] or (added["lstrip"] and name != MASK):
        raise ValueError(f"the added token {name!a} has lstrip, rstrip, single_word or special of its own")


def _check_cuts(pre_tokenizer: dict[str, Any] | None) -> None:
    """Raise ValueError unless a text is cut at white space, or not, and each piece gets `SPACE` in front."""
    parts = (pre_tokenizer or {}).get("pretokenizers", [pre_tokenizer])
    kinds = [part["type"] if part else None for part in parts]
    if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise ValueError("the pre_tokenizer is not that of SentencePiece")
    if (parts[-1]["replacement"], parts[-1]["prepend_scheme"]) != (SPACE, "always"):
        raise ValueError("the pre_tokenizer puts no space before each text")
