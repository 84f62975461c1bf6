"""The tokenizers for pretraining, fine-tuning and inference, and how texts become rows of tokens.

`WordPieceTokenizer` is BERT's: the words of `bert.text.normalization`, split by `bert.text.wordpiece`. "[SEP]" in a
text is ordinary text and never becomes the special token.

Those of a `tokenizer.json` are in `extensions.tokenizers.json_tokenizers`, which is imported for such a file alone.

n tokens of all texts, T tokens of a row, V entries of the vocabulary.
"""

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.text import tokenizer_kind
from bert.text.normalization import TokenizerConfig
from bert.text.vocabulary import SPECIAL, load_vocab, rules_of, settings_of
from bert.text.wordpiece import WordPiece


class Row(NamedTuple):
    """A text or a pair of texts, with special tokens."""

    ids: np.ndarray  # [T] int32
    segments: np.ndarray  # [T] int32
    second: int  # place of the first token of the second text; T without one


class Tokenizer(abc.ABC):
    """Texts to token ids and, optionally, character offsets; rows of ids with special tokens.

    In docstrings and messages of this program [CLS], [SEP], [PAD], [UNK] and [MASK] stand for the special tokens of any
    tokenizer.
    """

    vocab: list[str]
    """tokens in the order of their ids"""
    vocab_sha256: str
    """hash of the file"""
    lower_case: bool
    mask: str
    """what stands for a masked word in a text"""
    separators = 1
    """number of [SEP] between the texts of a pair"""
    second_segment = 1
    """segment of the second text of a pair"""
    special: tuple[int, ...] = ()
    """ids of further special tokens, which texts can have"""
    ordinary: np.ndarray
    """ids of the tokens that texts are made of, in order [<= V]"""
    spaced = True
    """whether each word of a sentence is read as one within a text; if not, as a text of its own"""

    def description(self) -> dict[str, Any]:
        """Return what records say of the tokenizer that made them, besides its vocabulary."""
        return {"lower_case": self.lower_case} | ({} if self.spaced else {"spaced_words": False})

    def _set_special(self, tokens: Sequence[str]) -> None:
        """Set the ids of [PAD], [UNK], [CLS], [SEP] and [MASK]."""
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(self.vocab.index, tokens)
        self.mask = tokens[-1]

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all texts, flat [n] int32, and their row splits [len(texts) + 1]."""

    @abc.abstractmethod
    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `encode`, and each token's begin and end [n], half open, as character indices of its text."""

    def encode_words(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `encode`, for the words of sentences."""
        return self.encode([self.within(word) for word in words] if self.spaced else words)

    def within(self, text: str) -> str:
        """Return a later part of a text in the form from which `encode` makes the tokens that it has in the text.

        White space separates the parts.
        """
        return text

    @abc.abstractmethod
    def joins(self) -> tuple[np.ndarray, np.ndarray]:
        """Return two sets of bits for each token, first and last, uint8 [V].

        Token b goes on with the word of token a, which is before it, if first[b] & last[a].
        """

    def split_at_masks(self, text: str) -> list[str]:
        """Return what is before, between and after the masks of a text."""
        return text.split(self.mask)

    def word(self, number: int) -> str:
        """Return the text of a token for a reader."""
        return self.vocab[number]

    def special_tokens(self, paired: bool) -> int:
        """Return the number of special tokens of a row."""
        return 2 + (self.separators if paired else 0)

    def row(self, first: np.ndarray, second: np.ndarray | None = None) -> Row:
        """Return [CLS] first [SEP], or [CLS] first [SEP] second [SEP] with `separators` [SEP] in the middle."""
        parts: list[Any] = [[self.cls_id], first, [self.sep_id]]
        if second is not None:
            parts += [[self.sep_id] * (self.separators - 1), second, [self.sep_id]]
        ids = np.concatenate(parts).astype(np.int32)
        segments, begin = np.zeros_like(ids), len(ids)
        if second is not None:
            begin = 1 + len(first) + self.separators
            segments[begin:] = self.second_segment
        return Row(ids, segments, begin)


class WordPieceTokenizer(Tokenizer):
    """The tokenizer of a `vocab.txt`, by the rules beside it (`vocabulary.rules_of`) or by others."""

    def __init__(self, vocab_path: Path, rules: TokenizerConfig | None = None) -> None:
        self.vocab = load_vocab(vocab_path)
        self.vocab_sha256 = files.sha256(vocab_path)
        self.rules = rules or rules_of(vocab_path, self.vocab)
        self.lower_case = self.rules.lower_case
        self._set_special(SPECIAL)
        self.special = tuple(map(self.vocab.index, self.rules.special))
        reserved = {*SPECIAL, *self.rules.special}
        self.ordinary = np.flatnonzero([not (t in reserved or t.startswith("[unused")) for t in self.vocab])
        self.is_continuation = np.array([token.startswith("##") for token in self.vocab])  # [V]
        self._wordpiece = WordPiece(self.vocab, self.rules)

    def description(self) -> dict[str, Any]:
        """As `Tokenizer.description`, and the rules."""
        return super().description() | {"rules": settings_of(self.rules)}

    def joins(self) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.joins`."""
        return self.is_continuation.astype(np.uint8), np.ones(len(self.vocab), np.uint8)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.encode`."""
        return self._wordpiece.encode(texts)

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `Tokenizer.encode_with_offsets`."""
        return self._wordpiece.encode_with_offsets(texts)


WORD_PIECES = tokenizer_kind.TokenizerSpec(tokenizer=WordPieceTokenizer, content=load_vocab)


def read(vocab: Path) -> Tokenizer:
    """Return the tokenizer of a `vocab.txt` or a `tokenizer.json`."""
    tokenizer: Tokenizer = tokenizer_kind.KINDS[tokenizer_kind.of(vocab)].tokenizer(vocab)
    return tokenizer


def tokenizer_for(vocab: Path, config: ModelConfig, spaced: bool = True) -> Tokenizer:
    """Return the tokenizer of a `vocab.txt` or a `tokenizer.json`.

    spaced: as `Tokenizer.spaced`. Raises InputError if the model is causal or has another vocabulary size.
    """
    config.refuse_causal(vocab.parent, ", which reads no word pieces; give the run of a BERT model")
    tokenizer = read(vocab)
    tokenizer.spaced = spaced
    _check_size(tokenizer.vocab, vocab, config)
    return tokenizer


def _check_size(tokens: Sequence[str], vocab: Path, config: ModelConfig) -> None:
    """Raise InputError if there are more tokens than rows of embeddings; the last rows may have no token."""
    if 0 < config.vocab_size < len(tokens):
        raise InputError(
            f"{vocab}: {len(tokens)} entries, but the model was trained with {config.vocab_size}; give its vocabulary"
        )
