"""The tokenizers for pretraining, fine-tuning and inference, and how texts become rows of tokens.

`WordPieceTokenizer` is BERT's: the words of `bert.text.normalization`, split by `bert.text.wordpiece`. "[SEP]" in a
text is ordinary text and never becomes the special token.

`BytePairTokenizer` is RoBERTa's, a byte-level BPE (`bert.text.byte_bpe`), `BracketedTokenizer` ModernBERT's
(`bert.text.bracketed_bpe`), and `UnigramTokenizer` XLM-RoBERTa's (`bert.text.unigram`).

n tokens of all texts, T tokens of a row, V entries of the vocabulary.
"""

import abc
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.text import bracketed_bpe, byte_bpe, tokenizer_kind, unigram
from bert.text.bracketed_bpe import BracketedBPE
from bert.text.byte_bpe import ByteBPE
from bert.text.byte_words import SPACE, joins
from bert.text.normalization import Rules
from bert.text.unigram import Unigram
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
        """Return a part of a text, which is not its first, as `encode` needs it to make the tokens that it has there.

        The parts have white space between them.
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

    def __init__(self, vocab_path: Path, rules: Rules | None = None) -> None:
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
        """As `Tokenizer.description`; records of version 1.0 had no rules."""
        return super().description() | ({} if self.rules.folds else {"rules": settings_of(self.rules)})

    def joins(self) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.joins`."""
        return self.is_continuation.astype(np.uint8), np.ones(len(self.vocab), np.uint8)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.encode`."""
        return self._wordpiece.encode(texts)

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `Tokenizer.encode_with_offsets`."""
        return self._wordpiece.encode_with_offsets(texts)


class BytePairTokenizer(Tokenizer):
    """The tokenizer of RoBERTa's `tokenizer.json`: <s> text </s>, or <s> first </s></s> second </s>, in one segment.

    A space belongs to the token behind it, but not to its characters. Raise InputError if the file is of another kind.
    """

    separators = 2
    second_segment = 0

    def __init__(self, path: Path) -> None:
        self._bpe, special = self._read(path)
        self.vocab = sorted(self._bpe.vocabulary, key=self._bpe.vocabulary.__getitem__)
        self.vocab_sha256 = files.sha256(path)
        self.lower_case = False
        self._set_special(special)
        self.ordinary = self._bpe.made
        self._leading = np.array([token[0] == SPACE and token.strip(SPACE) != "" for token in self.vocab])  # [V]

    def _read(self, path: Path) -> tuple[ByteBPE, Sequence[str]]:
        """Return the tokenizer of a file, and its [PAD], [UNK], [CLS], [SEP] and [MASK]."""
        special = (byte_bpe.PAD, byte_bpe.UNKNOWN, byte_bpe.BEGIN, byte_bpe.CLOSE, byte_bpe.MASK)
        return ByteBPE(path, byte_bpe.ROBERTA), special

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.encode`."""
        return _flat(self._bpe.encode_batch(texts))

    def within(self, text: str) -> str:
        """As `Tokenizer.within`: with a space before it, unless every text gets one."""
        return text if self._bpe.prefix else f" {text}"

    def joins(self) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.joins`."""
        return joins(self.vocab, alone=self._bpe.added)

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `Tokenizer.encode_with_offsets`."""
        encoded = self._bpe.encode_with_offsets(texts)
        ids, splits = _flat([row for row, _ in encoded])
        spans = np.fromiter(chain.from_iterable(chain.from_iterable(part for _, part in encoded)), np.int64)
        begin, end = spans.reshape(-1, 2).T
        leading = self._leading[ids]
        if self._bpe.prefix:  # the space that a text got is none of its characters
            owners = np.repeat(np.arange(len(texts)), np.diff(splits)).tolist()
            leading &= np.array([texts[n][at] == " " for n, at in zip(owners, begin.tolist(), strict=True)], np.bool_)
        begin = begin + leading
        return ids, splits, begin, np.maximum(end, begin + 1)

    def split_at_masks(self, text: str) -> list[str]:
        """As `Tokenizer.split_at_masks`; a mask may stand for the spaces before it, too, as its file says."""
        *before, last = text.split(self.mask)
        return [*(part.rstrip() if self._bpe.mask_strips else part for part in before), last]

    def word(self, number: int) -> str:
        """Return the text of a token, with the space before it; bytes that are no character become U+FFFD."""
        return self._bpe.decode([number])


class BracketedTokenizer(BytePairTokenizer):
    """The tokenizer of ModernBERT's `tokenizer.json`: [CLS] text [SEP], or [CLS] first [SEP] second [SEP].

    Raise InputError if the file is of another kind.
    """

    separators = 1

    def _read(self, path: Path) -> tuple[ByteBPE, Sequence[str]]:
        return BracketedBPE(path), bracketed_bpe.SPECIAL


class UnigramTokenizer(Tokenizer):
    """The tokenizer of XLM-RoBERTa's `tokenizer.json`, with rows as `BytePairTokenizer` has them.

    Raise InputError if the file is of another kind.
    """

    separators = 2
    second_segment = 0

    def __init__(self, path: Path) -> None:
        self._unigram = Unigram(path)
        self.vocab = sorted(self._unigram.vocabulary, key=self._unigram.vocabulary.__getitem__)
        self.vocab_sha256 = files.sha256(path)
        self.lower_case = False
        special = (unigram.PAD, unigram.UNKNOWN, unigram.BEGIN, unigram.CLOSE, unigram.MASK)
        self._set_special(special)
        self.ordinary = np.flatnonzero([token not in (*special, *unigram.NOT_USED) for token in self.vocab])

    def joins(self) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.joins`: a word begins with a space."""
        goes_on = np.array([not token.startswith(unigram.SPACE) for token in self.vocab], np.uint8)
        return goes_on, np.ones(len(self.vocab), np.uint8)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.encode`."""
        return _flat(self._unigram.encode(texts))

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `Tokenizer.encode_with_offsets`."""
        encoded = self._unigram.encode_with_offsets(texts)
        ids, splits = _flat([row for row, _ in encoded])
        begin, end = np.concatenate([np.zeros((0, 2), np.int64), *(spans for _, spans in encoded)]).T
        return ids, splits, begin, end

    def split_at_masks(self, text: str) -> list[str]:
        """As `Tokenizer.split_at_masks`; a mask may stand for the spaces before it, too, as its file says."""
        *before, last = text.split(self.mask)
        return [*(part.rstrip() if self._unigram.mask_strips else part for part in before), last]

    def word(self, number: int) -> str:
        """Return the text of a token, with the space before it."""
        return self.vocab[number].replace(unigram.SPACE, " ")


KINDS: dict[tokenizer_kind.Kind, Callable[[Path], Tokenizer]] = {
    "word pieces": WordPieceTokenizer,
    "byte pairs": BytePairTokenizer,
    "bracketed byte pairs": BracketedTokenizer,
    "unigram": UnigramTokenizer,
}


def read(vocab: Path) -> Tokenizer:
    """Return the tokenizer of a `vocab.txt` or a `tokenizer.json`."""
    return KINDS[tokenizer_kind.of(vocab)](vocab)


def tokenizer_for(vocab: Path, config: ModelConfig, spaced: bool = True) -> Tokenizer:
    """Return the tokenizer of a `vocab.txt` or a `tokenizer.json`.

    spaced: as `Tokenizer.spaced`. Raises InputError if the model is causal or has another vocabulary size.
    """
    if config.causal:
        raise InputError(f"{vocab.parent}: a causal model, which reads no word pieces; give the run of a BERT model")
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


def _flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all rows, flat [n] int32, and their row splits."""
    splits = np.cumsum([0, *map(len, rows)])
    return np.fromiter(chain.from_iterable(rows), np.int32, splits[-1]), splits
