"""The tokenizers of a `tokenizer.json`, of RoBERTa, ModernBERT and XLM-RoBERTa.

`BytePairTokenizer` is RoBERTa's, a byte-level BPE (`extensions.tokenizers.byte_bpe`), `BracketedTokenizer` ModernBERT's
(`extensions.tokenizers.bracketed_bpe`), and `UnigramTokenizer` XLM-RoBERTa's (`extensions.tokenizers.unigram`).

n tokens of all texts, V entries of the vocabulary.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from bert.core import files
from bert.text.tokenization import Tokenizer
from bert.text.tokenizer_kind import TokenizerSpec
from extensions.tokenizers import bracketed_bpe, byte_bpe, unigram
from extensions.tokenizers.bracketed_bpe import BracketedBPE
from extensions.tokenizers.byte_bpe import ByteBPE
from extensions.tokenizers.byte_words import SPACE, joins
from extensions.tokenizers.unigram import Unigram


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


BYTE_PAIRS = TokenizerSpec(tokenizer=BytePairTokenizer, content=byte_bpe.read_roberta)
BRACKETED = TokenizerSpec(tokenizer=BracketedTokenizer, content=bracketed_bpe.text_of, is_kind=bracketed_bpe.is_kind)
UNIGRAM = TokenizerSpec(tokenizer=UnigramTokenizer, content=unigram.text_of, is_kind=unigram.is_kind)


def _flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all rows, flat [n] int32, and their row splits."""
    splits = np.cumsum([0, *map(len, rows)])
    return np.fromiter(chain.from_iterable(rows), np.int32, splits[-1]), splits
